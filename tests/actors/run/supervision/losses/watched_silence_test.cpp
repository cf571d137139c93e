// The supervisor and processes that answer nothing, in virtual time: which of them it gives up, and
// that it gives up no other. The ranks and the agents of the processes are played.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/run/supervisor.hpp"
#include "algorithms/role.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "messages/random.hpp"
#include "tests/actors/virtual_actors.hpp"

namespace grapevine {
namespace watched_silence_test {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Duration kTick = milliseconds(100);
constexpr Duration kLostAfter = seconds(3);

class Lines : public RunObserver {
 public:
  void on_step(const StepReport&) override {}
  void on_rank_lost(Rank rank) override { lost.push_back(rank); }
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string& message) override { warnings += message + "\n"; }
  void on_end(RunResult result) override { end = std::move(result); }

  std::vector<Rank> lost;
  std::string warnings;
  std::optional<RunResult> end;
};

// What the test plays knows and does.
struct Played {
  std::set<std::int32_t> stopped;  // processes that neither answer nor report
  std::set<Rank> joining;          // ranks that wait for the state of training
  std::set<Rank> followers;        // ranks that exchange nothing
  std::int64_t pings = 0;
  Timestamp now{0};
  // When the answer to a question is due.
  std::function<Timestamp()> due = [] { return Timestamp{0}; };
  std::vector<std::pair<std::int32_t, std::string>> ends;  // of processes, with the reason
  std::optional<InstallView> view;                         // the newest
};

using Answers = std::vector<std::pair<Timestamp, caf::typed_response_promise<Pong>>>;

// A process that answers questions with a delay: at a tick those that are due, the newest one
// first. Plays a ProcessAgentActor.
caf::behavior agent_of(caf::event_based_actor* self, std::int32_t process,
                       std::shared_ptr<Played> played,
                       std::function<SupervisorActor()> supervisor) {
  const auto answers = std::make_shared<Answers>();
  return {
      [=](const RunEnded& ended) {
        played->ends.emplace_back(process, ended.error.message);
        self->send(supervisor(), ProcessClosed{process});
      },
      [](ProcessLost) {},
      [=](Ping) -> caf::result<Pong> {
        ++played->pings;
        auto answer = self->make_response_promise<Pong>();
        const bool stopped = played->stopped.count(process) > 0;
        answers->emplace_back(stopped ? Timestamp::max() : played->due(), answer);
        return answer;
      },
      [=](caf::tick_atom) {
        for (std::size_t i = answers->size(); i-- > 0;) {
          if ((*answers)[i].first > played->now) continue;
          (*answers)[i].second.deliver(Pong{});
          answers->erase(answers->begin() + static_cast<std::ptrdiff_t>(i));
        }
      },
  };
}

// A rank takes its part in changes of members, without any message to others.
caf::behavior rank_of(caf::event_based_actor* self, Rank rank, std::int32_t process,
                      std::shared_ptr<Played> played, std::function<SupervisorActor()> supervisor) {
  const auto answers = [=] { return played->stopped.count(process) == 0; };
  return {
      [=](const AskTraffic& ask) {
        if (answers()) self->send(supervisor(), Traffic{ask.view, ask.round, rank, 0, 0});
      },
      [=](CloseView close) {
        if (!answers()) return;
        ViewClosed closed;
        closed.view = close.view;
        closed.rank = rank;
        if (played->followers.count(rank) > 0) closed.operations = Role::kFollows;
        if (played->joining.count(rank) > 0) closed.operations = ViewClosed::kJoins;
        self->send(supervisor(), closed);
      },
      [](const ViewCounts&) {},
      [=](const InstallView& view) { played->view = view; },
      [](StartTraining) {},
      [](const HoldForView&) {},
      [](QueryWaits) {},
      [](const PeerLost&) {},
      [](Collect) {},
  };
}

class WatchedSilence : public VirtualActors {
 protected:
  using Change = std::function<void(SupervisorConfig&)>;

  ~WatchedSilence() override {
    for (const auto* actors : {&actors_, &agents_})
      for (const caf::actor& actor : *actors) kill(actor);
    kill(supervisor_);
  }

  // `ranks` evenly in `processes`; all of them train.
  void begin(std::int32_t ranks, std::int32_t processes, const Change& change = nullptr) {
    SupervisorConfig config;
    config.ranks = ranks;
    config.observer = lines_;
    config.changes_members = config.tolerates_worker_loss = true;
    config.horizon = {100'000, 1000};
    config.lost_after = kLostAfter;
    if (change) change(config);
    of_process_ = ranks / processes;
    supervisor_ = system_.spawn(grapevine::supervisor, config);
    const auto supervisor = [this] { return supervisor_; };
    BeginRun crew;
    for (Rank rank = 0; rank < ranks; ++rank) {
      const caf::actor actor = system_.spawn(rank_of, rank, process_of(rank), played_, supervisor);
      actors_.push_back(actor);
      crew.peers.push_back(caf::actor_cast<PeerActor>(actor));
      all_.insert(rank);
    }
    for (std::int32_t process = 1; process < processes; ++process) {
      agents_.push_back(system_.spawn(agent_of, process, played_, supervisor));
      crew.agents.push_back(caf::actor_cast<ProcessAgentActor>(agents_.back()));
    }
    self_->send(supervisor_, crew);
    settle();
  }

  std::int32_t process_of(Rank rank) const { return rank / of_process_; }

  // Time passes while these ranks take a step in each tick.
  void pass_ticks(Duration time, const std::set<Rank>& steps = {}) {
    for (const Timestamp end = played_->now + time; played_->now < end;) {
      skip(kTick);
      for (const caf::actor& agent : agents_) self_->send(agent, caf::tick_atom::value);
      settle();
      for (const Rank rank : steps)
        if (played_->stopped.count(process_of(rank)) == 0) step(rank);
      settle();
    }
  }
  // Nothing is handled meanwhile.
  void skip(Duration time) {
    played_->now += time;
    scheduler_.advance_time(time);
    settle();
  }
  void step(Rank rank) {
    StepReport report;
    report.rank = rank;
    report.step = steps_[rank]++;
    self_->send(supervisor_, report);
  }
  // The end of the rank's actor, whose process continues.
  void end_rank(Rank rank) {
    self_->send_exit(actors_[static_cast<std::size_t>(rank)], caf::exit_reason::user_shutdown);
    settle();
  }
  void stop(std::int32_t process) { played_->stopped.insert(process); }

  bool continues() const { return !lines_->end && lines_->lost.empty() && played_->ends.empty(); }
  std::string said() const {
    return lines_->warnings +
           (lines_->end && lines_->end->error ? lines_->end->error->message : "");
  }

  std::shared_ptr<Lines> lines_ = std::make_shared<Lines>();
  std::shared_ptr<Played> played_ = std::make_shared<Played>();
  std::vector<caf::actor> actors_;  // by rank
  std::vector<caf::actor> agents_;  // of all processes but the supervisor's
  std::set<Rank> all_;
  std::map<Rank, Step> steps_;
  std::int32_t of_process_ = 1;
  SupervisorActor supervisor_;
};

TEST_F(WatchedSilence, AStoppedProcessIsGivenUpWhileOthersWait) {
  begin(3, 3);
  pass_ticks(seconds(2), all_);
  stop(2);
  pass_ticks(kLostAfter - kTick);
  EXPECT_TRUE(continues()) << said();
  pass_ticks(kLostAfter);
  EXPECT_EQ(lines_->lost, std::vector<Rank>{2}) << said();
  EXPECT_FALSE(lines_->end);
  ASSERT_TRUE(played_->view);
  EXPECT_EQ(played_->view->members, (std::vector<Rank>{0, 1}));
}

// Each process answers within half of the limit, in the order that chance gives: a rank may compute
// for minutes.
TEST_F(WatchedSilence, AProcessThatAnswersIsNotGivenUp) {
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    auto rng = std::make_shared<Rng>(seed);
    played_->due = [played = played_.get(), rng] {
      return played->now + kTick * static_cast<int>((*rng)() % 14);
    };
    if (seed == 1) begin(3, 3);
    pass_ticks(seconds(2), all_);
    const std::int64_t before = played_->pings;
    pass_ticks(seconds(90));
    EXPECT_GT(played_->pings, before + 60) << "few questions: little was tested";
    ASSERT_TRUE(continues()) << said();
  }
}

TEST_F(WatchedSilence, WhereNobodyWaitsNobodyIsAskedOrGivenUp) {
  begin(3, 3);
  pass_ticks(seconds(60), all_);
  EXPECT_EQ(played_->pings, 0);
  EXPECT_TRUE(continues()) << said();
}

// Its own ranks are the only ones that take no step.
TEST_F(WatchedSilence, AProcessThatNobodyWaitsForIsNotGivenUp) {
  begin(4, 2);
  pass_ticks(seconds(2), all_);
  stop(1);
  pass_ticks(seconds(200), {0, 1});
  EXPECT_GT(played_->pings, 0);
  EXPECT_TRUE(continues()) << said();
}

// Process 0 is suspended at any moment of a wait. What the others have sent meanwhile is handled
// only after its first look. One pause in each run: those that recur would be usual.
class PausedSupervisor : public WatchedSilence, public testing::WithParamInterface<int> {};

TEST_P(PausedSupervisor, GivesNobodyUp) {
  Rng rng(static_cast<std::uint64_t>(GetParam()));
  begin(3, 3);
  played_->due = [played = played_.get()] { return played->now + kTick * GetParam(); };
  pass_ticks(seconds(2), all_);
  pass_ticks(kTick * static_cast<int>(1 + rng() % 60));
  const std::int64_t before = played_->pings;
  skip(seconds(5 + static_cast<int>(rng() % 100)));
  pass_ticks(seconds(10));
  EXPECT_GT(played_->pings, before);
  EXPECT_TRUE(continues()) << said();
}

INSTANTIATE_TEST_SUITE_P(Seeds, PausedSupervisor, testing::Range(1, 13));

// Processes of three ranks are the nodes. Rank 0 ends, and ranks 1 and 2 of its process join anew
// behind the head of the other one, which alone has the state of training until they have it.
class LastDonor : public WatchedSilence {
 protected:
  void begin_with_one_donor(std::int32_t processes) {
    begin(3 * processes, processes, [](SupervisorConfig& config) { config.models.node_size = 3; });
    for (const Rank rank : all_)
      if (rank % 3 > 0) played_->followers.insert(rank);
    pass_ticks(seconds(2), all_);
    end_rank(0);
    pass_ticks(seconds(1));
    ASSERT_TRUE(played_->view);
    ASSERT_EQ(played_->view->joining, (std::vector<Rank>{1, 2}));
    played_->joining = {1, 2};
    played_->followers.erase(1);
    lines_->lost.clear();
  }
};

TEST_F(LastDonor, IsNotGivenUp) {
  begin_with_one_donor(2);
  stop(1);
  pass_ticks(seconds(50));
  EXPECT_TRUE(continues()) << said();
}

TEST_F(LastDonor, IsNoneOnceAnotherRankHasTakenAStep) {
  begin_with_one_donor(2);
  played_->joining.clear();
  pass_ticks(seconds(1), {1, 2, 3, 4, 5});
  stop(1);
  pass_ticks(seconds(10));
  EXPECT_EQ(lines_->lost, (std::vector<Rank>{3, 4, 5})) << said();
  EXPECT_FALSE(lines_->end) << said();
  EXPECT_EQ(played_->view->members, (std::vector<Rank>{1, 2}));
}

// It would be dropped first: it is the one at the other end of the link.
TEST_F(LastDonor, OfABrokenLinkTheOtherProcessIsDropped) {
  begin_with_one_donor(3);
  played_->joining.insert({6, 7, 8});
  end_rank(6);  // its node joins anew, too
  pass_ticks(seconds(1));
  lines_->lost.clear();
  self_->send(supervisor_, LinkLost{7, 3, "reset by a switch"});
  pass_ticks(seconds(1));
  EXPECT_EQ(lines_->lost, (std::vector<Rank>{7, 8})) << said();
  EXPECT_FALSE(lines_->end) << said();
}

// ---- wirings that have no form among the others ----

class FixedNumber : public WatchedSilence {
 protected:
  void begin_on(const std::string& topology) {
    auto wiring = find_preset("d-psgd")->wiring;
    ASSERT_TRUE(wiring.set("topology", topology));
    LrConfig rate;
    rate.lr = 0.1;
    const auto parts = make_parts(*resolve(wiring), {100'000, 1000}, *LrSchedule::make(rate),
                                  OptimizerConfig(), 4);
    ASSERT_TRUE(parts.ok()) << parts.error().message;
    begin(4, 4, [&](SupervisorConfig& config) {
      config.change = [made = *parts](const LiveSettings&) {
        return Expected<std::shared_ptr<const SharedParts>>(made);
      };
    });
    pass_ticks(seconds(2), all_);
  }
};

TEST_F(FixedNumber, OfRanksLosesNone) {
  begin_on("hypercube");
  stop(3);
  pass_ticks(seconds(50));
  EXPECT_TRUE(continues()) << said();
}

TEST_F(FixedNumber, OfRanksIsNeededByFewTopologies) {
  begin_on("ring");
  stop(3);
  pass_ticks(seconds(10));
  EXPECT_EQ(lines_->lost, std::vector<Rank>{3}) << said();
}

TEST_F(FixedNumber, OfRanksDrainsNone) {
  begin_on("hypercube");
  ControlRequest request;
  request.kind = ControlRequest::Kind::drain;
  request.rank = 3;
  auto answer = self_->request(supervisor_, caf::infinite, request);
  settle();
  answer.receive(
      [](const ControlReply& reply) {
        EXPECT_TRUE(reply.refused);
        EXPECT_EQ(reply.text.rfind("drain 3: the other ranks do not continue by themselves: "
                                   "topology 'hypercube' with 3 ranks",
                                   0),
                  0U)
            << reply.text;
      },
      [](const caf::error&) { ADD_FAILURE() << "no answer"; });
  pass_ticks(seconds(1), all_);
  EXPECT_TRUE(continues()) << said();
}

}  // namespace watched_silence_test
}  // namespace grapevine
