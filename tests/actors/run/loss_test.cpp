// What the actors of a run do about a process that ends and a link that breaks: the supervisor, the
// agent and the peer, each by itself. Everybody else is the test.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <caf/all.hpp>

#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "actors/cluster/process_agent.hpp"
#include "actors/record/resume_hint.hpp"
#include "actors/run/peer.hpp"
#include "actors/run/supervisor.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "gpu/quadratic_compute.hpp"

namespace grapevine {
namespace loss_test {

constexpr auto kDeadline = std::chrono::seconds(60);  // only a hang reaches it

class Ending : public RunObserver {
 public:
  void on_step(const StepReport&) override {}
  void on_figures(const RankFigures& figures) override { figures_of_.push_back(figures.rank); }
  void on_rank_lost(Rank rank) override { lost_.push_back(rank); }
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string& message) override { warnings_.push_back(message); }
  void on_end(RunResult result) override { end_.set_value(std::move(result)); }

  RunResult result() {
    if (future_.wait_for(kDeadline) == std::future_status::ready) return future_.get();
    ADD_FAILURE() << "the run does not end";
    return {};
  }
  // Once the run has ended.
  const std::vector<Rank>& figures_of() const { return figures_of_; }
  const std::vector<Rank>& lost() const { return lost_; }
  std::string warnings() const {
    std::string all;
    for (const std::string& warning : warnings_) all += warning + "\n";
    return all;
  }

 private:
  std::vector<std::string> warnings_;
  std::vector<Rank> figures_of_, lost_;
  std::promise<RunResult> end_;
  std::future<RunResult> future_ = end_.get_future();
};

// Which processes a transport was told to have lost. Thread-safe.
class Told {
 public:
  std::function<void(std::int32_t)> teller() {
    return [this](std::int32_t process) {
      const std::lock_guard<std::mutex> lock(mutex_);
      processes_.push_back(process);
    };
  }
  std::vector<std::int32_t> processes() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return processes_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::int32_t> processes_;
};

using Processes = std::vector<std::int32_t>;

// An actor that the test plays.
class Player {
 public:
  explicit Player(caf::actor_system& system) : self_(system) {}

  template <class Handle>
  Handle as() {
    return caf::actor_cast<Handle>(caf::actor_cast<caf::strong_actor_ptr>(self_.ptr()));
  }
  template <class To, class Message>
  void send(const To& to, Message message) {
    self_->send(to, std::move(message));
  }
  // The next message, which must be of that type.
  template <class Message>
  Message expect() {
    Message received{};
    self_->receive([&](const Message& message) { received = message; },
                   caf::after(kDeadline) >> fail_of("nothing came"));
    return received;
  }
  // Others before it are thrown away.
  template <class Message>
  Message await() {
    Message received{};
    bool found = false;
    while (!found)
      self_->receive(
          [&](const Message& message) {
            received = message;
            found = true;
          },
          caf::others >>
              [](caf::message_view&) -> caf::result<caf::message> { return caf::message{}; },
          caf::after(kDeadline) >> fail_of("nothing came"));
    return received;
  }
  // All of a type, until the first of another, which is returned.
  template <class Each, class Last, class Take>
  Last take_until(Take take) {
    Last last{};
    for (bool over = false; !over;)
      self_->receive([&](const Each& message) { take(message); },
                     [&](const Last& message) {
                       last = message;
                       over = true;
                     },
                     caf::after(kDeadline) >> fail_of("nothing came"));
    return last;
  }
  // Whether there is such a message among those that have come; all are thrown away.
  template <class Message>
  bool has() {
    bool found = false;
    for (bool more = true; more;)
      self_->receive([&](const Message&) { found = true; },
                     caf::others >> [](caf::message_view&) -> caf::result<caf::message> {
                       return caf::message{};
                     },
                     caf::after(std::chrono::seconds(0)) >> [&] { more = false; });
    return found;
  }
  void answer_ping() {
    self_->receive([](Ping) { return Pong{}; }, caf::after(kDeadline) >> fail_of("nobody asks"));
  }
  // Until the first of that type comes; others are thrown away.
  template <class Message>
  Message answer_pings_until() {
    Message received{};
    for (bool found = false; !found;)
      self_->receive([](Ping) { return Pong{}; },
                     [&](const Message& message) {
                       received = message;
                       found = true;
                     },
                     caf::others >> [](caf::message_view&) -> caf::result<caf::message> {
                       return caf::message{};
                     },
                     caf::after(kDeadline) >> fail_of("nothing came"));
    return received;
  }

 private:
  // Ends the test, as a caller may ask for messages until the right one comes.
  static std::function<void()> fail_of(const char* reason) {
    return [reason] { throw std::runtime_error(reason); };
  }

  caf::scoped_actor self_;
};

StepReport step_of(Rank rank, Step step) {
  StepReport report;
  report.rank = rank;
  report.step = step;
  return report;
}

// A run of three processes: the supervisor's own and two others, with a rank each.
class LossTest : public testing::Test {
 protected:
  // `own`: plays rank `its`; null: as the others.
  void begin(const std::function<void(SupervisorConfig&)>& change = {}, Player* own = nullptr,
             Rank its = 1) {
    SupervisorConfig config;
    config.ranks = 3;
    config.observer = observer_;
    config.checkpoints = true;
    config.process_down = told_.teller();
    if (change) change(config);
    supervisor_ = system_.spawn(grapevine::supervisor, config);
    for (int i = 0; i < 2; ++i) agents_.push_back(std::make_unique<Player>(system_));
    BeginRun crew;
    for (std::int32_t rank = 0; rank < config.ranks; ++rank)
      crew.peers.push_back((rank == its && own != nullptr ? *own : peers_).as<PeerActor>());
    for (const auto& agent : agents_) crew.agents.push_back(agent->as<ProcessAgentActor>());
    crew.writer = peers_.as<CheckpointWriterActor>();
    if (tracer_) crew.tracer = tracer_->as<TracerActor>();
    if (evaluator_) crew.evaluator = evaluator_->as<EvaluatorActor>();
    if (averager_) crew.averager = averager_->as<ModelAveragerActor>();
    peers_.send(supervisor_, crew);
    for (std::int32_t rank = own == nullptr ? 0 : 1; rank < config.ranks; ++rank)
      peers_.expect<StartTraining>();
  }

  Player& agent(std::int32_t process) { return *agents_[static_cast<std::size_t>(process) - 1]; }
  // Its actors end, as others see the end of a process.
  void kill(std::int32_t process) { agents_[static_cast<std::size_t>(process) - 1].reset(); }
  void lose_link(Rank reporter, Rank peer, const std::string& reason = "reset by a switch") {
    peers_.send(supervisor_, LinkLost{reporter, peer, reason});
  }
  // The process receives the end of the run and announces its own.
  Error end_of(std::int32_t process) {
    const auto ended = agent(process).await<RunEnded>();
    agent(process).send(supervisor_, ProcessClosed{process});
    EXPECT_TRUE(ended.failed);
    return ended.error;
  }

  // The last reports of these ranks, with z equal to the rank.
  void report(
      const std::vector<Rank>& ranks,
      const std::function<void(RankReport&)>& fill = [](RankReport&) {}) {
    for (const Rank rank : ranks) {
      RankReport report;
      report.rank = rank;
      report.z = FrozenTensor::copy_of(at::full({1}, 1.0 * rank));
      fill(report);
      peers_.send(supervisor_, report);
    }
  }
  // In the rounds of a run of four ranks that ends: sent and received are asked for until they
  // agree.
  void report_in_rounds(
      const std::vector<Rank>& ranks,
      const std::function<void(RankReport&)>& fill = [](RankReport&) {}) {
    for (int round = 0; round < 3; ++round) {
      for (int peer = 0; peer < 4; ++peer) peers_.await<Collect>();
      report(ranks, fill);
    }
  }

  // The ranks, all of which the test plays, agree on the view that has them as its members. `its`:
  // plays rank 1, if there is such a player.
  void agree_on(const std::vector<Rank>& ranks, Player* its = nullptr) {
    HoldForView hold;
    while (hold.members != ranks) hold = peers_.await<HoldForView>();
    const auto player = [&](Rank rank) -> Player& {
      return rank == 1 && its != nullptr ? *its : peers_;
    };
    const auto answer = [&](const AskTraffic& ask) {
      for (const Rank rank : ranks)
        player(rank).send(supervisor_, Traffic{ask.view, ask.round, rank, 0, 0});
    };
    // Those of the view before have come to all ranks.
    while (peers_.take_until<AskTraffic, CloseView>(answer).view != hold.view) {
    }
    for (const Rank rank : ranks) {
      ViewClosed closed;
      closed.view = hold.view;
      closed.rank = rank;
      closed.w = 1;
      player(rank).send(supervisor_, closed);
    }
    InstallView installed;
    while (installed.view != hold.view) installed = peers_.await<InstallView>();
    EXPECT_EQ(installed.members, ranks);
  }

  // Whatever the reason looks like: it becomes one line.
  void expect_advice(const std::string& reason, const std::string& advice) {
    begin();
    lose_link(2, 0, reason + "\n#0 a frame");
    end_of(1);
    end_of(2);
    const RunResult result = observer_->result();
    ASSERT_TRUE(result.error);
    EXPECT_NE(result.error->message.find(reason + " #0 a frame; both processes live: " + advice),
              std::string::npos)
        << result.error->message;
  }

  Told told_;  // actors of the system below tell it until they end
  caf::actor_system_config system_config_;
  caf::actor_system system_{system_config_};
  Player peers_{system_};
  std::vector<std::unique_ptr<Player>> agents_;  // of processes 1 and 2
  std::unique_ptr<Player> tracer_;               // null: no trace
  std::unique_ptr<Player> evaluator_;            // null: no validation
  std::unique_ptr<Player> averager_;             // null: all models are in process 0
  std::shared_ptr<Ending> observer_ = std::make_shared<Ending>();
  SupervisorActor supervisor_;
};

// The end of a lost process is not awaited.
TEST_F(LossTest, AProcessThatDiesEndsTheRunAtOnce) {
  begin();
  kill(2);
  EXPECT_EQ(agent(1).expect<ProcessLost>().process, 2);
  const Error error = end_of(1);
  const RunResult result = observer_->result();
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, Errc::peer_down);
  EXPECT_EQ(result.error->message,
            "rank 2 of process 2 is gone: it ended or cannot be reached any more; its own output "
            "says why; no checkpoint was written");
  EXPECT_EQ(error.message, result.error->message);
  EXPECT_EQ(observer_->warnings(), "");
  EXPECT_EQ(told_.processes(), Processes{2});
}

TEST_F(LossTest, SoDoTwoThatDieTogether) {
  begin();
  kill(1);
  kill(2);
  EXPECT_TRUE(observer_->result().error);
  EXPECT_EQ(observer_->warnings(), "");
}

TEST_F(LossTest, TheLastLineNamesTheCheckpointToResumeFrom) {
  begin([](SupervisorConfig& config) { config.resumed_from = "runs/old/checkpoint/final"; });
  peers_.send(supervisor_, CheckpointWritten{1, "runs/new/checkpoint/epoch-0003", ""});
  kill(1);
  end_of(2);
  const RunResult result = observer_->result();
  ASSERT_TRUE(result.error);
  EXPECT_EQ(resume_hint_in(result.error->message), "; resume with --resume runs/new");
}

TEST_F(LossTest, TheOtherProcessesHearWhatToResumeFrom) {
  begin([](SupervisorConfig& config) { config.resumed_from = "runs/old/checkpoint/final"; });
  EXPECT_EQ(agent(1).expect<ResumeFrom>().path, "runs/old/checkpoint/final");
  peers_.send(supervisor_, CheckpointWritten{1, "runs/new/checkpoint/epoch-0003", ""});
  EXPECT_EQ(agent(1).expect<ResumeFrom>().path, "runs/new");
  peers_.send(supervisor_, RankFailed{{Errc::failed, "the end of this test"}});
  end_of(1);
  end_of(2);
  observer_->result();
}

// What has come of it is removed; the one before it stays.
TEST_F(LossTest, AProcessThatIsLostDuringACutCancelsIt) {
  begin([](SupervisorConfig& config) { config.checkpoint_folder = "runs/new/checkpoint"; });
  peers_.send(supervisor_, StepReport{});
  peers_.send(supervisor_, CheckpointRequested{});
  const auto prepare = peers_.await<PrepareShards>();
  EXPECT_EQ(prepare.folder, "runs/new/checkpoint/.writing-shards-1");
  EXPECT_EQ(prepare.peers.size(), 3U);
  EXPECT_EQ(peers_.expect<TakeSnapshot>().shards, prepare.folder);
  peers_.send(supervisor_, RankSnapshot{prepare.id, 0, 1, {}});
  peers_.send(supervisor_, StateStored{prepare.id, 2, 1, 10, 11});
  kill(1);
  peers_.await<DropShards>();
  EXPECT_TRUE(observer_->result().error);
  EXPECT_FALSE(peers_.has<WriteCheckpoint>());
}

// States come through a Peer of process 0: another one where rank 0 has left.
TEST_F(LossTest, StatesOfOtherProcessesGoToARankOfProcess0ThatLives) {
  auto rank0 = std::make_unique<Player>(system_);
  begin(
      [](SupervisorConfig& config) {
        config.ranks = 6;
        config.changes_members = config.tolerates_worker_loss = true;
        config.checkpoint_folder = "runs/new/checkpoint";
      },
      rank0.get(), 0);
  peers_.send(supervisor_, StepReport{});
  peers_.send(supervisor_, CheckpointRequested{});
  EXPECT_EQ(peers_.await<TakeSnapshot>().receiver, 0);
  rank0.reset();
  agree_on({1, 2, 3, 4, 5});
  EXPECT_EQ(peers_.await<TakeSnapshot>().receiver, 1) << "the cut that was given up, again";
  peers_.send(supervisor_, RankFailed{{Errc::failed, "the end of this test"}});
  end_of(1);
  end_of(2);
  observer_->result();
}

// A state that is stored counts as one that came.
TEST_F(LossTest, StatesOfOtherProcessesAreTakenFromTheirFiles) {
  begin();
  peers_.send(supervisor_, StepReport{});
  peers_.send(supervisor_, CheckpointRequested{});
  const auto cut = peers_.await<TakeSnapshot>();
  for (const Rank rank : {1, 2}) peers_.send(supervisor_, StateStored{cut.id, rank, 1, 10, 11});
  peers_.send(supervisor_, RankSnapshot{cut.id, 0, 1, {}});
  const auto write = peers_.await<WriteCheckpoint>();
  ASSERT_EQ(write.ranks.size(), 3U);
  EXPECT_FALSE(write.ranks[0].file);
  for (const std::size_t rank : {1U, 2U}) {
    ASSERT_TRUE(write.ranks[rank].file);
    EXPECT_EQ(write.ranks[rank].file->bytes, 10U);
    EXPECT_EQ(write.ranks[rank].file->crc32, 11U);
  }
  peers_.send(supervisor_, RankFailed{{Errc::failed, "the end of this test"}});
  end_of(1);
  end_of(2);
  observer_->result();
}

// The first one of the run. A rank whose state comes twice counts once.
TEST_F(LossTest, ACheckpointThatIsBeingWrittenIsNotDenied) {
  begin([](SupervisorConfig& config) { config.out = "runs/new"; });
  StepReport step;
  peers_.send(supervisor_, step);
  peers_.send(supervisor_, CheckpointRequested{});
  const auto cut = peers_.expect<TakeSnapshot>();
  for (int i = 0; i < 2; ++i) peers_.expect<TakeSnapshot>();
  for (const Rank rank : {0, 1, 1, 2}) peers_.send(supervisor_, RankSnapshot{cut.id, rank, 1, {}});
  const auto write = peers_.expect<WriteCheckpoint>();
  ASSERT_EQ(write.ranks.size(), 3U);
  for (Rank rank = 0; rank < 3; ++rank)
    EXPECT_EQ(write.ranks[static_cast<std::size_t>(rank)].rank, rank);
  kill(1);
  end_of(2);
  const RunResult result = observer_->result();
  ASSERT_TRUE(result.error);
  EXPECT_EQ(resume_hint_in(result.error->message),
            "; a checkpoint was being written: look in runs/new");
}

TEST_F(LossTest, WithoutOneOfItsOwnARunNamesTheOneThatItResumed) {
  begin([](SupervisorConfig& config) { config.resumed_from = "runs/old/checkpoint/final"; });
  kill(1);
  end_of(2);
  const RunResult result = observer_->result();
  ASSERT_TRUE(result.error);
  EXPECT_EQ(resume_hint_in(result.error->message),
            "; resume with --resume runs/old/checkpoint/final");
}

TEST_F(LossTest, ABrokenLinkBetweenLiveProcessesEndsTheRunByName) {
  begin();
  lose_link(1, 2);
  agent(2).answer_ping();
  end_of(1);
  end_of(2);
  const RunResult result = observer_->result();
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, Errc::peer_down);
  EXPECT_EQ(result.error->message,
            "link between rank 1 (process 1) and rank 2 (process 2) was lost: reset by a switch; "
            "both processes live: look at the network between them; no checkpoint was written");
  EXPECT_TRUE(told_.processes().empty()) << "nobody has died";
}

TEST_F(LossTest, TheAdviceForASilentLinkIsTheNetwork) {
  expect_advice("no data arrived from it for 60 s", "look at the network between them");
}
TEST_F(LossTest, TheAdviceForAnErrorOfTheReceiverIsItsOutput) {
  expect_advice("an error in this process: out of memory", "look at the output of process 2");
}
TEST_F(LossTest, TheAdviceForAMalformedMessageIsTheVersion) {
  expect_advice("a malformed message: it sent number 7 twice",
                "see whether both run the same version");
}

TEST_F(LossTest, ASuspectThatAnswersNothingIsLost) {
  begin([](SupervisorConfig& config) { config.silence = std::chrono::seconds(1); });
  lose_link(1, 2);  // and the agent of process 2 says nothing
  const auto ended = agent(1).await<RunEnded>();
  EXPECT_EQ(ended.error.message.rfind("rank 2 of process 2 is gone", 0), 0U) << ended.error.message;
  agent(1).send(supervisor_, ProcessClosed{1});
  EXPECT_TRUE(observer_->result().error);
  EXPECT_NE(observer_->warnings().find("process 2, to which rank 1 has lost its link, does not "
                                       "answer: it counts as lost after 1 s"),
            std::string::npos)
      << observer_->warnings();
  EXPECT_EQ(told_.processes(), Processes{2});
}

TEST_F(LossTest, ALinkToTheSupervisorsOwnProcessNeedsNoQuestion) {
  begin();
  lose_link(2, 0);
  end_of(1);
  end_of(2);
  const RunResult result = observer_->result();
  ASSERT_TRUE(result.error);
  EXPECT_NE(result.error->message.find("rank 2 (process 2) and rank 0 (process 0)"),
            std::string::npos)
      << result.error->message;
}

// The end of a process breaks its links first.
TEST_F(LossTest, ALinkThatBreaksBecauseItsProcessDiesIsNotTheCause) {
  begin();
  lose_link(1, 2);
  lose_link(0, 2);
  agent(2).expect<Ping>();  // unanswered
  kill(2);
  end_of(1);
  const RunResult result = observer_->result();
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->message.rfind("rank 2 of process 2 is gone", 0), 0U)
      << result.error->message;
}

TEST_F(LossTest, LinksOfTheDeadAndOfNobodySayNothing) {
  begin([](SupervisorConfig& config) {
    config.ranks = 4;
    config.servers = 1;
    config.tolerates_worker_loss = true;
  });
  kill(1);
  EXPECT_EQ(agent(2).expect<ProcessLost>().process, 1);
  for (const auto& [reporter, peer] :
       std::vector<std::pair<Rank, Rank>>{{0, 1}, {1, 2}, {-1, 0}, {0, 99}})
    lose_link(reporter, peer);
  RankFigures figures;
  for (figures.rank = 0; figures.rank < 3; ++figures.rank) peers_.send(supervisor_, figures);
  peers_.send(supervisor_, RankFailed{{Errc::failed, "the end of this test"}});
  EXPECT_EQ(end_of(2).message, "the end of this test");
  EXPECT_EQ(observer_->result().lost, std::vector<Rank>{1});
  EXPECT_EQ(observer_->lost(), std::vector<Rank>{1});
  EXPECT_EQ(observer_->figures_of(), (std::vector<Rank>{0, 2})) << "late ones are left out";
  EXPECT_EQ(told_.processes(), Processes{1});
}

// Servers are in process 0.
TEST_F(LossTest, ARunThatToleratesWorkerLossDropsTheWorkersOfABrokenLink) {
  begin([](SupervisorConfig& config) {
    config.ranks = 4;
    config.servers = 1;
    config.tolerates_worker_loss = true;
  });
  lose_link(3, 1);
  agent(1).answer_ping();
  EXPECT_NE(end_of(1).message.find("rank 3 (process 0) and rank 1 (process 1)"), std::string::npos);
  EXPECT_EQ(agent(2).expect<ProcessLost>().process, 1);
  peers_.send(supervisor_, RankFailed{{Errc::failed, "the end of this test"}});
  EXPECT_EQ(end_of(2).message, "the end of this test");
  EXPECT_EQ(observer_->result().lost, std::vector<Rank>{1});
  EXPECT_EQ(told_.processes(), Processes{1});
}

// What a lost rank has computed counts as far as it was heard of.
TEST_F(LossTest, SamplesAndContributionsOfALostRankStayInTheTotal) {
  begin([](SupervisorConfig& config) {
    config.ranks = 4;
    config.servers = 1;
    config.tolerates_worker_loss = true;
    config.checkpoints = false;
  });
  StepReport step;
  step.rank = 1;
  step.samples = 32;
  for (step.step = 0; step.step < 3; ++step.step) peers_.send(supervisor_, step);
  RankFigures figures;
  figures.rank = 1;
  figures.ledger.produced = 3;
  figures.ledger.committed = 1;
  peers_.send(supervisor_, figures);
  peers_.send(supervisor_, RankFinished{0});
  peers_.send(supervisor_, RankFinished{2});
  peers_.send(supervisor_, RankFinished{3});
  lose_link(3, 1);
  agent(1).answer_ping();
  end_of(1);
  report_in_rounds({0, 2, 3}, [](RankReport& report) {
    const bool server = report.rank == 3;
    report.ledger.samples = server ? 0 : 1000;
    report.ledger.produced = report.ledger.committed = server ? 0 : 7;
  });
  agent(2).await<RunEnded>();
  agent(2).send(supervisor_, ProcessClosed{2});
  const RunResult result = observer_->result();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(result.lost, std::vector<Rank>{1});
  EXPECT_EQ(result.ledger.samples, 2 * 1000 + 3 * 32);
  EXPECT_EQ(result.ledger.produced, 2 * 7 + 3);
  EXPECT_EQ(result.ledger.committed, 2 * 7 + 1);
  EXPECT_EQ(result.destroyed, 2) << "produced, and never applied";
}

TEST_F(LossTest, ARunEndsBelowItsLeastNumberOfWorkers) {
  begin([](SupervisorConfig& config) {
    config.ranks = 4;
    config.servers = 1;
    config.tolerates_worker_loss = true;
    config.min_workers = 3;
  });
  kill(1);
  const Error error = end_of(2);
  EXPECT_EQ(error.code, Errc::peer_down) << "the process ends with 3: a restart may help";
  EXPECT_NE(error.message.find("2 of 3 ranks that train remain, and --min-ranks needs 3"),
            std::string::npos)
      << error.message;
  EXPECT_EQ(observer_->result().lost, std::vector<Rank>{1});
  EXPECT_TRUE(observer_->lost().empty());
}

// The servers are in the process that no run can do without: the client goes.
TEST_F(LossTest, AClientWithoutALinkToItsServerIsDropped) {
  begin([](SupervisorConfig& config) {
    config.ranks = 4;
    config.servers = 1;
    config.tolerates_worker_loss = true;
  });
  lose_link(2, 3);
  EXPECT_NE(end_of(2).message.find("rank 2 (process 2) and rank 3 (process 0)"), std::string::npos);
  EXPECT_EQ(agent(1).expect<ProcessLost>().process, 2);
  peers_.send(supervisor_, RankFailed{{Errc::failed, "the end of this test"}});
  EXPECT_EQ(end_of(1).message, "the end of this test");
  EXPECT_EQ(observer_->result().lost, std::vector<Rank>{2});
}

// The transports tell their ranks of a lost process, behind what had arrived of it.
TEST_F(LossTest, TheRanksOfALostProcessAreNotAnnouncedAgain) {
  auto lost = std::make_unique<Player>(system_);
  begin(
      [](SupervisorConfig& config) {
        config.ranks = 4;
        config.servers = 1;
        config.tolerates_worker_loss = true;
      },
      lost.get());
  kill(1);
  EXPECT_EQ(agent(2).expect<ProcessLost>().process, 1);
  lost.reset();  // its rank's actor
  peers_.send(supervisor_, RankFailed{{Errc::failed, "the end of this test"}});
  end_of(2);
  EXPECT_EQ(observer_->result().lost, std::vector<Rank>{1});
  EXPECT_FALSE(peers_.has<PeerLost>());
}

// Its model of an epoch would be awaited for ever.
TEST_F(LossTest, TheEvaluatorReceivesALossAtTheEnd) {
  evaluator_ = std::make_unique<Player>(system_);
  begin([](SupervisorConfig& config) {
    config.changes_members = config.tolerates_worker_loss = true;
    config.total_epochs = 2;
  });
  for (const Rank rank : {0, 2}) peers_.send(supervisor_, RankFinished{rank});
  kill(1);
  EXPECT_EQ(evaluator_->await<MembersChanged>().members, (std::vector<Rank>{0, 2}));
  peers_.send(supervisor_, RankFailed{{Errc::failed, "the end of this test"}});
  end_of(2);
  observer_->result();
}

// Process 1 of a run whose members change is lost, and the others agree on the view after it.
class ChangedViewTest : public LossTest {
 protected:
  void lose_process_1(const std::function<void(SupervisorConfig&)>& change = {}) {
    begin(
        [&](SupervisorConfig& config) {
          config.changes_members = config.tolerates_worker_loss = true;
          if (change) change(config);
        },
        &former_);
    peers_.send(supervisor_, StepReport{});
    kill(1);
    agree_on({0, 2});
  }
  Place ask_place() {
    Place place;
    caf::scoped_actor self{system_};
    self->request(supervisor_, kDeadline, AskPlace{1, -1})
        .receive([&](const Place& answer) { place = answer; },
                 [](const caf::error&) { FAIL() << "nothing came"; });
    return place;
  }
  // Its actors are others than those of its former life.
  ProcessReturned process_1_returned() {
    agents_[0] = std::make_unique<Player>(system_);
    rank_1_ = std::make_unique<Player>(system_);
    ProcessReturned returned;
    returned.process = 1;
    returned.agent = agent(1).as<ProcessAgentActor>();
    returned.peers = {rank_1_->as<PeerActor>()};
    return returned;
  }
  void await_view_with_process_1() {
    while (peers_.await<HoldForView>().members.size() < 3) {
    }
  }
  // Of these processes, beside the supervisor's own.
  void end_run(const Processes& processes = {2}) {
    peers_.send(supervisor_, RankFailed{{Errc::failed, "the end of this test"}});
    for (const std::int32_t process : processes)
      EXPECT_EQ(end_of(process).message.find("the end of this test"), 0U);
    observer_->result();
  }

  Player former_{system_};          // plays rank 1 until its process is lost
  std::unique_ptr<Player> rank_1_;  // plays it once its process has returned
};

// A process that is dropped may live on for a moment, and its ranks answer.
TEST_F(ChangedViewTest, TheStateOfALostRankIsOfNoCheckpoint) {
  lose_process_1();
  peers_.send(supervisor_, CheckpointRequested{});
  const auto take = peers_.await<TakeSnapshot>();
  for (const Rank rank : {1, 0}) peers_.send(supervisor_, StateStored{take.id, rank, 1, 10, 11});
  peers_.send(supervisor_, StateStored{take.id, 2, 1, 10, 11});
  const auto write = peers_.await<WriteCheckpoint>();
  ASSERT_EQ(write.ranks.size(), 2U);
  EXPECT_EQ(write.ranks[0].rank, 0);
  EXPECT_EQ(write.ranks[1].rank, 2);
  EXPECT_EQ(write.lost, std::vector<Rank>{1});
  end_run();
}

TEST_F(ChangedViewTest, APlaceThatWasGrantedIsGrantedAgain) {
  lose_process_1();
  EXPECT_TRUE(ask_place().granted);
  EXPECT_TRUE(ask_place().granted) << "the first answer came too late";
  end_run();
}

// What a cut usually takes is known from the one before: a silence beyond that is none of its work.
TEST_F(LossTest, AProcessThatIsSilentDuringACutIsLostToo) {
  begin([](SupervisorConfig& config) {
    config.changes_members = config.tolerates_worker_loss = true;
    config.lost_after = std::chrono::seconds(2);
  });
  for (Step step = 0; step < 3; ++step)
    for (const Rank rank : {0, 1, 2}) peers_.send(supervisor_, step_of(rank, step));
  peers_.send(supervisor_, CheckpointRequested{});
  const auto first = peers_.await<TakeSnapshot>();
  for (const Rank rank : {0, 1, 2})
    peers_.send(supervisor_, StateStored{first.id, rank, 3, 10, 11});
  const auto write = peers_.await<WriteCheckpoint>();
  peers_.send(supervisor_, CheckpointWritten{write.id, "runs/new/checkpoint/step-00000003", ""});
  peers_.send(supervisor_, CheckpointRequested{});
  TakeSnapshot second;
  while (second.id <= first.id) second = peers_.await<TakeSnapshot>();
  for (const Rank rank : {0, 2}) peers_.send(supervisor_, StateStored{second.id, rank, 3, 10, 11});
  EXPECT_EQ(agent(2).answer_pings_until<ProcessLost>().process, 1);
  const Error error = agent(1).await<RunEnded>().error;
  EXPECT_NE(error.message.find("while others waited (--lost-after)"), std::string::npos)
      << error.message;
  kill(1);
  peers_.send(supervisor_, RankFailed{{Errc::failed, "the end of this test"}});
  end_of(2);
  EXPECT_EQ(observer_->result().lost, std::vector<Rank>{1});
}

// Options are compared with the present settings before the place is free.
TEST_F(LossTest, AnAnswerWithoutAPlaceHasTheSettings) {
  begin([](SupervisorConfig& config) {
    config.changes_members = config.tolerates_worker_loss = true;
  });
  caf::scoped_actor self{system_};
  self->request(supervisor_, kDeadline, AskPlace{1, -1})
      .receive(
          [](const Place& place) {
            EXPECT_FALSE(place.granted);
            EXPECT_TRUE(place.later);
            EXPECT_TRUE(place.settings.has_value());
          },
          [](const caf::error&) { FAIL() << "nothing came"; });
  peers_.send(supervisor_, RankFailed{{Errc::failed, "the end of this test"}});
  for (const std::int32_t process : {1, 2}) end_of(process);
  observer_->result();
}

// No machine was lost, and no restart would help.
TEST_F(ChangedViewTest, AProcessThatIsReadyAfterTheRunBeganToEndEndsWithIt) {
  lose_process_1();
  ASSERT_TRUE(ask_place().granted);
  peers_.send(supervisor_, StopRequested{});
  peers_.send(supervisor_, process_1_returned());
  const auto ended = agent(1).await<RunEnded>();
  EXPECT_FALSE(ended.failed) << ended.error.message;
  EXPECT_TRUE(ended.leaves);
  end_run();
}

// Its transport's report may reach a rank before HoldForView, and count for nothing.
TEST_F(ChangedViewTest, AllReceiveTheEndOfARankThatJoins) {
  lose_process_1();
  ASSERT_TRUE(ask_place().granted);
  peers_.send(supervisor_, process_1_returned());
  await_view_with_process_1();
  kill(1);
  EXPECT_EQ(peers_.await<PeerLost>().peer, 1);
  agree_on({0, 2});
  end_run();
}

// What it could not connect to lives, and has a part of the training: the one that joins has none.
TEST_F(ChangedViewTest, AProcessThatJoinsOverABrokenLinkLeavesAlone) {
  lose_process_1();
  ASSERT_TRUE(ask_place().granted);
  peers_.send(supervisor_, process_1_returned());
  await_view_with_process_1();
  rank_1_->send(supervisor_, LinkLost{1, 2, "reset by a switch"});
  agent(2).answer_ping();
  const auto ended = agent(1).await<RunEnded>();
  EXPECT_TRUE(ended.failed);
  EXPECT_EQ(ended.error.message,
            "link between rank 1 (process 1) and rank 2 (process 2) was lost: reset by a switch; "
            "both processes live: look at the network between them");
  agree_on({0, 2});
  EXPECT_FALSE(agent(2).has<RunEnded>()) << "the others continue";
  kill(1);
  ask_place();  // its answer follows the report of that end
  EXPECT_FALSE(peers_.has<HoldForView>()) << "the view without it is installed";
  end_run();
  EXPECT_NE(observer_->warnings().find("process 1 is dropped: link between rank 1"),
            std::string::npos)
      << observer_->warnings();
}

// It connects to all members: to a stopped one it could not, and no other process could come.
TEST_F(ChangedViewTest, AProcessThatJoinsWaitsForASilentOne) {
  lose_process_1([](SupervisorConfig& config) { config.lost_after = std::chrono::seconds(2); });
  for (Step step = 0; step < 3; ++step)
    for (const Rank rank : {0, 2}) peers_.send(supervisor_, step_of(rank, step));
  Player joining(system_);
  caf::scoped_actor self{system_};
  self->request(supervisor_, kDeadline, AskPlace{1, -1, joining.as<ProcessAgentActor>()})
      .receive([](const Place& place) { EXPECT_TRUE(place.granted); },
               [](const caf::error&) { FAIL() << "nothing came"; });
  // No rank waits.
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  Step step = 3;
  for (; !joining.has<ProcessLost>() && std::chrono::steady_clock::now() < deadline; ++step) {
    peers_.send(supervisor_, step_of(0, step));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_NE(agent(2).await<RunEnded>().error.message.find("(--lost-after)"), std::string::npos);
  kill(2);
  peers_.send(supervisor_, RankFailed{{Errc::failed, "the end of this test"}});
  EXPECT_EQ(observer_->result().lost, (std::vector<Rank>{1, 2}));
}

// Its process has the number of an earlier one: the addresses of its actors are the same.
TEST_F(ChangedViewTest, AnActorWithTheAddressOfAFormerOneIsHeard) {
  lose_process_1();
  ASSERT_TRUE(ask_place().granted);
  peers_.send(supervisor_, process_1_returned());
  await_view_with_process_1();
  kill(1);
  agree_on({0, 2});
  ASSERT_TRUE(ask_place().granted);
  ProcessReturned returned = process_1_returned();
  returned.peers = {former_.as<PeerActor>()};
  peers_.send(supervisor_, std::move(returned));
  agree_on({0, 1, 2}, &former_);
  end_run({1, 2});
}

// The numbers of their actors may differ: a new agent has the address of the former rank.
TEST_F(ChangedViewTest, AnAgentWithTheAddressOfAFormerRankIsHeard) {
  lose_process_1();
  ASSERT_TRUE(ask_place().granted);
  ProcessReturned returned = process_1_returned();
  returned.agent = former_.as<ProcessAgentActor>();
  peers_.send(supervisor_, std::move(returned));
  await_view_with_process_1();
  former_.send(supervisor_, RankFailed{{Errc::failed, "the end of this test"}});
  for (Player* agent : {&former_, agents_[1].get()}) {
    EXPECT_EQ(agent->await<RunEnded>().error.message.find("the end of this test"), 0U);
    agent->send(supervisor_, ProcessClosed{agent == &former_ ? 1 : 2});
  }
  observer_->result();
}

// Its process answers: the others would wait for the rank for as long as it lives.
TEST_F(ChangedViewTest, ARankThatJoinsAndDoesNotAnswerIsLost) {
  lose_process_1([](SupervisorConfig& config) { config.lost_after = std::chrono::seconds(5); });
  for (Step step = 0; step < 3; ++step)
    for (const Rank rank : {0, 2}) peers_.send(supervisor_, step_of(rank, step));
  ASSERT_TRUE(ask_place().granted);
  peers_.send(supervisor_, process_1_returned());
  auto ended =
      std::async(std::launch::async, [this] { return agent(1).answer_pings_until<RunEnded>(); });
  AskTraffic ask;
  while (ask.view < 2) ask = peers_.await<AskTraffic>();
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  while (ended.wait_for(std::chrono::milliseconds(50)) != std::future_status::ready) {
    if (std::chrono::steady_clock::now() >= deadline) {
      ADD_FAILURE() << "the others wait for it";
      return end_run();
    }
    for (const Rank rank : {0, 2})
      peers_.send(supervisor_, Traffic{ask.view, ask.round, rank, 0, 0});
  }
  const Error error = ended.get().error;
  EXPECT_EQ(error.message.find("rank 1 of process 1, which joins, has not answered for "), 0U)
      << error.message;
  agree_on({0, 2});
  EXPECT_FALSE(agent(2).has<RunEnded>()) << "the others continue";
  end_run();
}

// One that was only stopped continues, and reports that its links have ended.
TEST_F(ChangedViewTest, AFormerProcessIsNotHeard) {
  lose_process_1();
  ASSERT_TRUE(ask_place().granted);
  peers_.send(supervisor_, process_1_returned());
  await_view_with_process_1();
  former_.send(supervisor_, LinkLost{1, 2, "reset by peer"});
  former_.send(supervisor_, RankFailed{{Errc::peer_down, "a former process"}});
  end_run({1, 2});
  EXPECT_EQ(told_.processes(), Processes{1}) << "its successor stays";
}

TEST_F(LossTest, ATraceThatCannotBeWrittenIsNoFailure) {
  tracer_ = std::make_unique<Player>(system_);
  begin([](SupervisorConfig& config) { config.checkpoints = false; });
  tracer_->send(supervisor_, TraceRefused{"no space"});
  peers_.send(supervisor_, StopRequested{});
  report({0, 1, 2});
  tracer_->expect<CloseTrace>();
  tracer_->send(supervisor_, TraceClosed{0, 0, "the disk is full", 0});
  for (const std::int32_t process : {1, 2})
    agent(process).send(supervisor_, ProcessClosed{process});
  const RunResult result = observer_->result();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(observer_->warnings(),
            "the trace is not whole: no space; what follows is recorded once that works\n"
            "the trace is not whole: the disk is full\n");
}

// The mean of all models is awaited; where one is lost meanwhile, that of the others.
TEST_F(LossTest, AModelThatIsLostBeforeTheMeanIsThereDoesNotCount) {
  averager_ = std::make_unique<Player>(system_);
  begin([](SupervisorConfig& config) {
    config.ranks = 4;
    config.servers = 1;
    config.tolerates_worker_loss = true;
    config.checkpoints = false;
  });
  for (Rank rank = 0; rank < 4; ++rank) peers_.send(supervisor_, RankFinished{rank});
  report_in_rounds({0, 1, 2, 3});
  const auto all = averager_->expect<AverageModels>();
  EXPECT_EQ(all.models.size(), 4U);
  EXPECT_TRUE(all.models.back().server);
  lose_link(3, 1);
  agent(1).answer_ping();
  end_of(1);
  const auto remaining = averager_->expect<AverageModels>();
  ASSERT_EQ(remaining.models.size(), 3U);
  EXPECT_EQ(remaining.models[1].z.data<float>()[0], 2);
  const auto answer = [&](std::int64_t round, double z) {
    averager_->send(supervisor_,
                    AveragedModels{round, FrozenTensor::copy_of(at::full({1}, z)), {}, 0.25, ""});
  };
  answer(all.round, 7);  // too late
  answer(remaining.round, 9);
  agent(2).await<RunEnded>();
  agent(2).send(supervisor_, ProcessClosed{2});
  const RunResult result = observer_->result();
  EXPECT_FALSE(result.error) << result.error->message;
  ASSERT_EQ(result.z.numel(), 1);
  EXPECT_EQ(result.z.data<float>()[0], 9);
  EXPECT_EQ(result.consensus_distance, 0.25);
}

TEST_F(LossTest, AModelThatCannotBeFetchedEndsTheRunWithItsReason) {
  averager_ = std::make_unique<Player>(system_);
  begin([](SupervisorConfig& config) { config.checkpoints = false; });
  peers_.send(supervisor_, StopRequested{});
  report({0, 1, 2});
  const auto order = averager_->expect<AverageModels>();
  averager_->send(supervisor_, AveragedModels{order.round, {}, {}, 0, "no memory for 5 bytes"});
  for (const std::int32_t process : {1, 2}) end_of(process);
  const RunResult result = observer_->result();
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->message, "the final model: no memory for 5 bytes");
}

// ---- the agent ----

class ProcessAgentTest : public testing::Test {
 protected:
  void assign(const std::string& out, bool is_connected = true) {
    agent_ = system_.spawn(grapevine::process_agent,
                           ProcessAgentConfig{1, 3, "head:29500", observer_, told_.teller()});
    head_ = std::make_unique<Player>(system_);
    caf::anon_send(agent_, WatchSupervisor{head_->as<SupervisorActor>(), out});
    if (is_connected)
      caf::anon_send(agent_, AssignRun{head_->as<SupervisorActor>(), {}, TracerActor{}});
  }

  caf::actor_system_config system_config_;
  caf::actor_system system_{system_config_};
  std::unique_ptr<Player> head_;
  std::shared_ptr<Ending> observer_ = std::make_shared<Ending>();
  Told told_;
  LocalProcessAgent agent_;
};

TEST_F(ProcessAgentTest, AnswersAndTellsItsTransportWhoIsLost) {
  assign("run");
  for (const std::int32_t process : {2, 1, -1, 3}) head_->send(agent_, ProcessLost{process});
  caf::scoped_actor self{system_};
  bool answered = false;
  self->request(agent_, kDeadline, Ping{})
      .receive([&](Pong) { answered = true; }, [](const caf::error&) {});
  EXPECT_TRUE(answered);
  EXPECT_EQ(told_.processes(), Processes{2}) << "itself and nobody are not lost";
  RunEnded end;
  end.interrupted = true;
  end.checkpoint = "out/checkpoint/step-1";
  head_->send(agent_, end);
  EXPECT_EQ(head_->expect<ProcessClosed>().process, 1);
  const RunResult result = observer_->result();
  EXPECT_TRUE(result.interrupted);
  EXPECT_EQ(result.checkpoint, "out/checkpoint/step-1");
}

// The folder is on the head's machine: what lies in one of that name here says nothing.
TEST_F(ProcessAgentTest, TheEndOfTheHeadEndsItsProcessWithWhatIsKnownOfItsCheckpoints) {
  struct Case {
    std::string out, heard, hint;
  };
  for (const Case& c : {Case{"runs/x", "runs/x", "; resume with --resume runs/x"},
                        Case{"runs/x", "", "; look for a checkpoint in runs/x on head"},
                        Case{"", "", "; no checkpoint was written"}}) {
    observer_ = std::make_shared<Ending>();
    assign(c.out);
    if (!c.heard.empty()) head_->send(agent_, ResumeFrom{c.heard});
    caf::scoped_actor self{system_};  // once it answers, it watches the head
    self->request(agent_, kDeadline, Ping{}).receive([](Pong) {}, [](const caf::error&) {});
    head_.reset();
    const RunResult result = observer_->result();
    ASSERT_TRUE(result.error);
    EXPECT_EQ(result.error->code, Errc::peer_down);
    EXPECT_EQ(result.error->message,
              "process 0 at head:29500 is gone: its own output says why" + c.hint);
  }
  EXPECT_EQ(told_.processes(), (Processes{0, 0, 0}));
}

// The rendezvous may say why, after the supervisor has ended.
TEST_F(ProcessAgentTest, TheEndOfTheHeadEndsAProcessThatConnects) {
  for (const bool has_reason : {false, true}) {
    observer_ = std::make_shared<Ending>();
    assign("runs/x", false);
    caf::scoped_actor self{system_};
    self->request(agent_, kDeadline, Ping{}).receive([](Pong) {}, [](const caf::error&) {});
    head_.reset();
    if (has_reason) self->send(agent_, RunEnded{true, bad_input("a reason"), false, ""});
    const RunResult result = observer_->result();
    ASSERT_TRUE(result.error);
    EXPECT_EQ(result.error->message, has_reason
                                         ? "a reason"
                                         : "process 0 at head:29500 is gone: its own output "
                                           "says why; look for a checkpoint in runs/x on head");
  }
}

// ---- the peer ----

// Takes what is sent, and hands the inbox to the test.
class DeadEnd final : public Transport {
 public:
  Expected<void> attach(Rank, std::shared_ptr<Inbox>) override { return {}; }
  void detach(Rank) override {}
  void send(Envelope) override {}
  TransportCounters counters(Rank) const override { return {}; }
  std::int32_t world_size() const override { return 2; }
};

// Rank 0 of two that gossip.
class PeerTest : public testing::Test {
 protected:
  PeerTest() {
    OptimizerConfig optimizer;
    LrConfig rate;
    rate.lr = 0.1;
    const Plan plan = *resolve(find_preset("sgp")->wiring);
    QuadraticConfig quadratic;
    quadratic.dimension = 4;
    quadratic.ranks = 2;
    PeerConfig config;
    config.workers = config.ranks = 2;
    config.parts = *make_parts(plan, {1000, 10}, *LrSchedule::make(rate), optimizer, config.ranks);
    config.transport = std::make_shared<DeadEnd>();
    config.worker.compute = std::move(*QuadraticCompute::make(quadratic));
    config.parameters = config.worker.compute->initial_parameters();
    config.supervisor = supervisor_.as<SupervisorActor>();
    config.tracer = tracer_.as<TracerActor>();
    peer_ = system_.spawn(grapevine::peer, config);
    inbox_ = make_mailbox_inbox(peer_);
  }
  ~PeerTest() override {
    inbox_.reset();
    caf::anon_send_exit(peer_, caf::exit_reason::user_shutdown);
    peer_ = PeerActor{};
  }

  static Envelope share(std::uint64_t sequence) {
    Envelope envelope;
    envelope.from = 1;
    envelope.to = 0;
    envelope.stamp.origin = 1;
    envelope.stamp.sequence = sequence;
    envelope.payload = Share{0, 0.5, FrozenTensor::copy_of(at::ones({4}))};
    return envelope;
  }
  // The numbers of the messages of rank 1 that have reached the role, by a trace that is flushed.
  std::vector<std::uint64_t> received() {
    supervisor_.send(peer_, Collect{false});
    supervisor_.await<RankReport>();
    std::vector<std::uint64_t> numbers;
    supervisor_.send(tracer_.as<TracerActor>(), CloseTrace{});  // behind what the peer has flushed
    tracer_.take_until<TraceBatch, CloseTrace>([&](const TraceBatch& batch) {
      for (const TraceRecord& record : batch.records)
        if (record.kind == EventKind::received) numbers.push_back(record.sequence);
    });
    return numbers;
  }

  caf::actor_system_config system_config_;
  caf::actor_system system_{system_config_};
  Player supervisor_{system_}, tracer_{system_};
  PeerActor peer_;
  std::shared_ptr<Inbox> inbox_;
};

using Numbers = std::vector<std::uint64_t>;

// What a rank has sent before the news of its end counts, also where training begins later than
// that; what comes after the news does not.
TEST_F(PeerTest, WhatArrivedBeforeTheNewsOfALossIsDelivered) {
  inbox_->deliver(share(7));
  inbox_->peer_down(1, "");
  inbox_->deliver(share(8));
  supervisor_.send(peer_, StartTraining{});
  EXPECT_EQ(received(), Numbers{7});
}

TEST_F(PeerTest, AndWhileTrainingIsUnderWay) {
  supervisor_.send(peer_, StartTraining{});
  inbox_->deliver(share(7));
  inbox_->peer_down(1, "");
  inbox_->deliver(share(8));
  EXPECT_EQ(received(), Numbers{7});
}

TEST_F(PeerTest, ABrokenLinkReachesTheSupervisorWithItsReason) {
  supervisor_.send(peer_, StartTraining{});
  inbox_->peer_down(1, "reset by a switch");
  const auto lost = supervisor_.await<LinkLost>();
  EXPECT_EQ(lost.reporter, 0);
  EXPECT_EQ(lost.peer, 1);
  EXPECT_EQ(lost.reason, "reset by a switch");
}

TEST(ResumeHint, IsFoundWhereItWasPut) {
  for (const std::string path : {"", "runs/a b", "/x/y"})
    EXPECT_EQ(resume_hint_in("rank 1 is gone" + resume_hint(path)), resume_hint(path));
  for (const std::string& hint : {writing_hint("runs/a b"), search_hint("runs/a", "head")})
    EXPECT_EQ(resume_hint_in("rank 1 is gone" + hint), hint);
  EXPECT_EQ(resume_hint_in("rank 1 is gone"), "");
  EXPECT_EQ(run_folder_of("runs/a/checkpoint/final"), "runs/a");
  EXPECT_EQ(run_folder_of("checkpoint/final"), ".");
  EXPECT_EQ(run_folder_of("elsewhere/final"), "elsewhere/final");
}

}  // namespace loss_test
}  // namespace grapevine
