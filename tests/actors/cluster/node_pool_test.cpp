// The nodes of a pool and their job, with stand-ins for nodes, processes and who gives the job.
#include "actors/cluster/node_pool.hpp"

#include <gtest/gtest.h>

#include <caf/all.hpp>

#include <condition_variable>
#include <csignal>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <thread>
#include <tuple>

#include "actors/cluster/node_agent.hpp"
#include "messages/exit_code.hpp"

namespace grapevine {
namespace node_pool_test {

constexpr auto kDeadline = std::chrono::seconds(60);  // only a hang reaches it
constexpr char kSecret[] = "pool's own";

// ---- the layout ----

TEST(NodeLayout, FillsNodeAfterNode) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::int32_t> slots(1 + random() % 6);
    for (auto& count : slots) count = 1 + static_cast<std::int32_t>(random() % 5);
    const auto all = std::accumulate(slots.begin(), slots.end(), 0);
    const auto processes = static_cast<std::int32_t>(random() % static_cast<unsigned>(all + 1));
    const auto shares = lay_out(slots, processes);
    ASSERT_TRUE(shares.ok());
    std::int32_t next = 0;
    for (std::size_t i = 0; i < shares->size(); ++i) {
      const NodeShare& share = (*shares)[i];
      EXPECT_EQ(share.node, i);
      EXPECT_EQ(share.first, next);
      EXPECT_GE(share.count, 1);
      next += share.count;
      const bool last = i + 1 == shares->size();
      EXPECT_TRUE(last ? share.count <= slots[i] : share.count == slots[i]);
    }
    EXPECT_EQ(next, processes == 0 ? all : processes);
    const auto too_many = lay_out(slots, all + 1);
    ASSERT_FALSE(too_many.ok());
    EXPECT_EQ(too_many.error().code, Errc::bad_input);
  }
}

// ---- seals ----

struct BothSides {
  SealedSession pool, caller;
};

BothSides make_session(const std::string& pool_secret, const std::string& caller_secret) {
  const Greet greet{random_hex(16)};
  const Greeting greeting = answer_greeting(pool_secret, greet, 7);
  auto caller = caller_session(caller_secret, greet, greeting);
  EXPECT_EQ(caller.ok(), pool_secret == caller_secret);
  return {pool_session(pool_secret, greet, greeting), caller ? *caller : SealedSession{}};
}

class NodeSeal : public testing::Test {
 protected:
  caf::actor_system_config config_;
  caf::actor_system system_{config_};
};

TEST_F(NodeSeal, OpensForWhoKnowsTheSecretAndOnlyOnce) {
  BothSides sides = make_session("secret", "secret");
  const SignalJob sealed = sides.caller.to.sealed(system_, SignalJob{{}, 3, SIGINT});
  EXPECT_TRUE(sides.pool.from.opens(system_, sealed));
  EXPECT_FALSE(sides.pool.from.opens(system_, sealed)) << "a second time";
  EXPECT_FALSE(sides.caller.from.opens(system_, sealed)) << "sent back to its sender";
}

TEST_F(NodeSeal, CoversAllThatAMessageSays) {
  BothSides sides = make_session("secret", "secret");
  const SignalJob sealed = sides.caller.to.sealed(system_, SignalJob{{}, 3, SIGINT});
  std::vector<SignalJob> changed(5, sealed);
  changed[0].job = 4;
  changed[1].number = SIGTERM;
  ++changed[2].seal.number;
  ++changed[3].seal.session;
  changed[4].seal.mac.back() ^= 1;
  for (const SignalJob& other : changed) EXPECT_FALSE(sides.pool.from.opens(system_, other));
  // Another message with the same fields.
  const SignalRanks same{sealed.seal, sealed.job, sealed.number};
  EXPECT_FALSE(sides.pool.from.opens(system_, same));
  EXPECT_TRUE(sides.pool.from.opens(system_, sealed));
}

TEST_F(NodeSeal, LaterMessagesMayOvertakeEarlierOnes) {
  BothSides sides = make_session("", "");
  std::vector<SignalJob> sealed;
  for (int i = 0; i < 10'000; ++i)
    sealed.push_back(sides.caller.to.sealed(system_, SignalJob{{}, i, SIGINT}));
  for (const int i : {3, 1, 2, 0, 5000})
    EXPECT_TRUE(sides.pool.from.opens(system_, sealed[static_cast<std::size_t>(i)])) << i;
  EXPECT_TRUE(sides.pool.from.opens(system_, sealed[4000]));
  EXPECT_FALSE(sides.pool.from.opens(system_, sealed[4000]));
  EXPECT_FALSE(sides.pool.from.opens(system_, sealed[4])) << "too late to tell whether it is new";
}

// Who listens in a pool's place learns nothing that is of use, and is found out first.
TEST_F(NodeSeal, WhoDoesNotKnowTheSecretIsFoundOut) {
  for (const auto& [pool, caller] : std::vector<std::pair<std::string, std::string>>{
           {"secret", "guess"}, {"", "secret"}, {"secret", ""}})
    make_session(pool, caller);  // expects that the caller refuses
}

// ---- the pool ----

// What the actors of a test have heard, for its own thread.
struct Heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<int, StartRanks>> started;    // by node
  std::vector<std::pair<int, std::int32_t>> signals;  // node, number
  std::vector<std::pair<int, SignalRanks>> to_one;    // by node: those for one process
  std::vector<JobOutput> output;
  std::vector<JobEnded> ended;
  std::vector<PoolStatus> statuses;
  std::vector<std::pair<int, PoolGone>> gone;  // by node
  int closed = 0;

  template <class F>
  void add(F change) {
    const std::lock_guard<std::mutex> lock(mutex);
    change();
    changed.notify_all();
  }
  template <class F>
  bool wait(F until) {
    std::unique_lock<std::mutex> lock(mutex);
    return changed.wait_for(lock, kDeadline, until);
  }
  template <class F>
  auto read(F look) {
    const std::lock_guard<std::mutex> lock(mutex);
    return look();
  }
};

// Where the pool's process is, or another one.
enum class Place { here, elsewhere };

using AgentBase = NodeAgentActor::stateful_base<NodeAgentState>;

class AgentElsewhere : public AgentBase {
 public:
  AgentElsewhere(caf::actor_config& actor, NodeAgentConfig config)
      : AgentBase(actor), config_(std::move(config)) {}

 protected:
  behavior_type make_behavior() override { return node_agent(this, config_); }

 private:
  NodeAgentConfig config_;
};

// Runs here, and says of itself that it belongs to another process.
NodeAgentActor spawn_elsewhere(caf::actor_system& system, const NodeAgentConfig& config) {
  caf::node_id::default_data::host_id_type host;
  host.fill(7);
  caf::actor_config actor{system.dummy_execution_unit()};
  auto agent = caf::make_actor<AgentElsewhere, NodeAgentActor>(
      system.next_actor_id(), caf::make_node_id(1, host), &system, actor, config);
  static_cast<AgentElsewhere*>(caf::actor_cast<caf::abstract_actor*>(agent))
      ->launch(system.dummy_execution_unit(), false, false);
  return agent;
}

class NodePoolTest : public testing::Test {
 protected:
  void SetUp() override { open(); }
  // With settings that a test has changed. REQUIRES: before the first node.
  void restart_pool() {
    caf::anon_send_exit(pool_, caf::exit_reason::user_shutdown);
    open();
  }
  void open() {
    NodePoolConfig config;
    config.secret = kSecret;
    config.version = "1";
    config.directory = "/there";
    config.grace = grace_;
    config.lost_grace = lost_grace_;
    config.kill_grace = kill_grace_;
    config.joins_timeout = joins_timeout_;
    config.output_window = output_window_;
    config.output_backlog = output_backlog_;
    config.reserve_port = [] { return Expected<ReservedPort>(ReservedPort{4711, {}}); };
    config.places_of_run = [](const std::vector<std::string>& arguments) {
      return arguments.back() == "--resume=of 3 places" ? 3 : 0;
    };
    config.on_change = [heard = heard_](const PoolStatus& status, const std::string&) {
      heard->add([&] { heard->statuses.push_back(status); });
    };
    config.on_closed = [heard = heard_] { heard->add([&] { ++heard->closed; }); };
    pool_ = system_.spawn(node_pool, config);
  }
  void TearDown() override {
    caf::anon_send_exit(pool_, caf::exit_reason::user_shutdown);
    for (const NodeAgentActor& node : nodes_)
      caf::anon_send_exit(node, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(submitter_, caf::exit_reason::user_shutdown);
    nodes_.clear();
    submitter_ = SubmitterActor{};
    pool_ = NodePoolActor{};
  }

  // `from`: of a session that is not with the pool of this test.
  NodeAgentActor make_node(Place place = Place::here, const SealReader* from = nullptr) {
    const int number = static_cast<int>(nodes_.size());
    NodeAgentConfig config;
    SealedSession session = greet();
    config.from_pool = from != nullptr ? *from : session.from;
    seals_.push_back(std::move(session.to));
    config.hooks.start = [heard = heard_, number](StartRanks start) {
      heard->add([&] { heard->started.emplace_back(number, start); });
    };
    config.hooks.signal = [heard = heard_, number](SignalRanks signal) {
      heard->add([&] {
        if (signal.process < 0)
          heard->signals.emplace_back(number, signal.number);
        else
          heard->to_one.emplace_back(number, signal);
      });
    };
    config.hooks.pool_gone = [heard = heard_, number](PoolGone how) {
      heard->add([&] { heard->gone.emplace_back(number, how); });
    };
    nodes_.push_back(place == Place::here ? system_.spawn(node_agent, config)
                                          : spawn_elsewhere(system_, config));
    return nodes_.back();
  }

  static std::string address_of(std::size_t node) {
    return "10.0.0." + std::to_string(node) + ":7";
  }

  Enlist enlistment(std::int32_t slots, Place place = Place::here) {
    Enlist enlist;
    enlist.version = "1";
    enlist.host = "host";
    enlist.address = address_of(nodes_.size());
    enlist.slots = slots;
    enlist.agent = make_node(place);
    return enlist;
  }

  SubmitJob job(std::int32_t processes = 0) {
    if (!submitter_) {
      auto behavior = [heard = heard_](SubmitterActor::pointer) -> SubmitterActor::behavior_type {
        return {[heard](const JobOutput& output) {
                  heard->add([&] { heard->output.push_back(output); });
                },
                [heard](const JobEnded& ended) {
                  heard->add([&] { heard->ended.push_back(ended); });
                  return JobEndHeard{};
                }};
      };
      submitter_ = system_.spawn(behavior);
    }
    SubmitJob submit;
    submit.version = "1";
    submit.user = "somebody@somewhere";
    submit.arguments = {"--steps=1"};
    submit.processes = processes;
    submit.submitter = submitter_;
    return submit;
  }

  SealedSession greet(const std::string& secret = kSecret) {
    const Greet greet{random_hex(16)};
    const auto greeting = ask_plainly<Greeting>(greet);
    auto session = caller_session(secret, greet, greeting);
    return session ? *session : SealedSession{};
  }
  // By the node whose processes are 2n and 2n + 1.
  template <class Message>
  void send_by_node(std::int32_t process, Message message) {
    const std::size_t node = process < 0 || process > 3 ? 0 : static_cast<std::size_t>(process) / 2;
    caf::anon_send(pool_, seals_.at(node).sealed(system_, std::move(message)));
  }
  void signal(std::int64_t job, std::int32_t number) {
    caf::anon_send(pool_, submission_.to.sealed(system_, SignalJob{{}, job, number}));
  }

  // With the seal of who asks.
  template <class Answer, class Question>
  Answer ask(Question question) {
    if constexpr (std::is_same_v<Question, SubmitJob>) {
      SealedSession session = greet();
      const auto answer = ask_plainly<Answer>(session.to.sealed(system_, std::move(question)));
      if (!answer.refused) submission_ = std::move(session);
      return answer;
    } else {
      for (std::size_t node = 0; node < nodes_.size(); ++node)
        if (nodes_[node] == question.agent)
          return ask_plainly<Answer>(seals_[node].sealed(system_, std::move(question)));
      return {};
    }
  }

  template <class Answer, class Question>
  Answer ask_plainly(Question question) {
    caf::scoped_actor self{system_};
    Answer result;
    bool answered = false;
    self->request(pool_, kDeadline, std::move(question))
        .receive(
            [&](const Answer& answer) {
              result = answer;
              answered = true;
            },
            [](const caf::error&) {});
    EXPECT_TRUE(answered);
    return result;
  }

  void exit(std::int64_t job, std::int32_t process, std::int32_t code, std::int32_t signal = 0,
            const std::string& error = "") {
    send_by_node(process, RankExited{{}, job, process, code, signal, error});
  }
  JobEnded await_end() {
    EXPECT_TRUE(heard_->wait([this] { return !heard_->ended.empty(); }));
    return heard_->read(
        [this] { return heard_->ended.empty() ? JobEnded{} : heard_->ended.back(); });
  }
  bool await_signal(int node, std::int32_t number) {
    return heard_->wait([&] {
      return std::find(heard_->signals.begin(), heard_->signals.end(),
                       std::make_pair(node, number)) != heard_->signals.end();
    });
  }
  // Until the pool has dealt with what this thread has sent to it.
  void await_pool() {
    SubmitJob unproven;
    EXPECT_TRUE(ask_plainly<JobAccepted>(unproven).refused);
  }
  std::size_t count_signals() {
    return heard_->read([this] { return heard_->signals.size(); });
  }
  // Two nodes with two slots each, and a job in all of them.
  std::int64_t begin_job() {
    for (int node = 0; node < 2; ++node) EXPECT_FALSE(ask<Enlisted>(enlistment(2)).refused);
    const JobAccepted accepted = ask<JobAccepted>(job());
    EXPECT_FALSE(accepted.refused) << accepted.error.message;
    EXPECT_EQ(accepted.processes, 4);
    EXPECT_EQ(accepted.nodes, 2);
    EXPECT_EQ(accepted.directory, "/there");
    EXPECT_TRUE(heard_->wait([this] { return heard_->started.size() == 2; }));
    return accepted.job;
  }

  Duration grace_ = std::chrono::seconds(50);
  Duration lost_grace_ = std::chrono::seconds(50);
  Duration kill_grace_ = std::chrono::seconds(50);
  Duration joins_timeout_ = std::chrono::milliseconds(1);
  std::size_t output_window_ = NodePoolConfig{}.output_window;
  std::size_t output_backlog_ = NodePoolConfig{}.output_backlog;
  caf::actor_system_config config_;
  caf::actor_system system_{config_};
  std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
  NodePoolActor pool_;
  std::vector<NodeAgentActor> nodes_;
  std::vector<Sealer> seals_;  // of the nodes
  SealedSession submission_;   // of the last job that was accepted
  SubmitterActor submitter_;
};

class NodePoolWithShortGrace : public NodePoolTest {
 protected:
  NodePoolWithShortGrace() { grace_ = std::chrono::milliseconds(1); }
};

class NodePoolAfterALoss : public NodePoolTest {
 protected:
  NodePoolAfterALoss() { lost_grace_ = std::chrono::milliseconds(1); }
};

class NodePoolThatGivesUp : public NodePoolWithShortGrace {
 protected:
  NodePoolThatGivesUp() { kill_grace_ = std::chrono::milliseconds(1); }
};
class NodePoolWithLittleMemory : public NodePoolTest {
 protected:
  NodePoolWithLittleMemory() {
    output_window_ = 1000;
    output_backlog_ = 2000;
  }
  // Until the pool, and then the submitter, have dealt with what was sent to them.
  std::vector<JobOutput> output_so_far() {
    await_pool();
    JobOutput marker;
    marker.process = -77;
    caf::anon_send(submitter_, marker);
    const auto is_marker = [](const JobOutput& output) { return output.process == -77; };
    std::vector<JobOutput>& output = heard_->output;
    EXPECT_TRUE(heard_->wait([&] { return std::any_of(output.begin(), output.end(), is_marker); }));
    return heard_->read([&] {
      output.erase(std::remove_if(output.begin(), output.end(), is_marker), output.end());
      return output;
    });
  }
};
class NodePoolThatGivesUpTheKilled : public NodePoolTest {
 protected:
  NodePoolThatGivesUpTheKilled() { kill_grace_ = std::chrono::milliseconds(1); }
};

TEST_F(NodePoolTest, RunsAJobInAllSlotsToItsEnd) {
  const std::int64_t id = begin_job();
  const auto started = heard_->read([this] { return heard_->started; });
  for (const auto& [node, start] : started) {
    EXPECT_EQ(start.first, 2 * node);
    EXPECT_EQ(start.count, 2);
    EXPECT_EQ(start.processes, 4);
    EXPECT_EQ(start.port, 4711);
    EXPECT_EQ(start.arguments, std::vector<std::string>{"--steps=1"});
    EXPECT_EQ(start.other_host, "10.0.0.1");
  }
  send_by_node(0, RankOutput{{}, id, 0, false, "result"});
  for (std::int32_t process = 0; process < 4; ++process) {
    await_pool();
    EXPECT_TRUE(heard_->read([this] { return heard_->ended.empty(); })) << "before " << process;
    exit(id, process, 0);
  }
  EXPECT_FALSE(await_end().failed);
  const auto output = heard_->read([this] { return heard_->output; });
  ASSERT_EQ(output.size(), 1U);
  EXPECT_EQ(output[0].line, "result");
  EXPECT_TRUE(submission_.from.opens(system_, output[0]));
  ASSERT_TRUE(heard_->wait([this] { return heard_->statuses.back().job == 0; }));
  const PoolStatus last = heard_->read([this] { return heard_->statuses.back(); });
  EXPECT_EQ(last.nodes, 2);
  EXPECT_EQ(last.slots, 4);
  EXPECT_FALSE(ask<JobAccepted>(job(3)).refused) << "the pool is free for another job";
}

// The nodes write at the same time; their parts arrive in any order.
TEST_F(NodePoolTest, JoinsThePartsOfTheLinesOfItsNodes) {
  const std::int64_t id = begin_job();
  const std::string a(kLongestOutputLine, 'a'), b(kLongestOutputLine, 'b');
  await_pool();
  send_by_node(0, RankOutput{{}, id, 0, false, a, true});
  send_by_node(0, RankOutput{{}, id, 0, true, "while it writes"});
  await_pool();
  send_by_node(2, RankOutput{{}, id, 2, false, b, true});
  await_pool();
  send_by_node(0, RankOutput{{}, id, 0, false, "end of a"});
  await_pool();
  send_by_node(2, RankOutput{{}, id, 2, false, "without an end", true});
  for (std::int32_t process = 0; process < 4; ++process) exit(id, process, 0);
  EXPECT_FALSE(await_end().failed);
  std::vector<std::string> lines;
  std::string line;
  for (const JobOutput& output : heard_->read([this] { return heard_->output; })) {
    EXPECT_LE(output.line.size(), kLongestOutputLine);
    line += output.line;
    if (!output.continues) lines.push_back(std::exchange(line, std::string()));
  }
  EXPECT_EQ(lines,
            (std::vector<std::string>{"while it writes", a + "end of a", b + "without an end"}));
  EXPECT_EQ(line, "");
}

TEST_F(NodePoolTest, SendsAwayWhoDoesNotBelongToIt) {
  Enlist unproven = enlistment(1);
  EXPECT_NE(ask_plainly<Enlisted>(unproven).error.message.find("does not prove"),
            std::string::npos);
  unproven.seal = {1, 1, mac_of("guessed", {"anything"})};
  EXPECT_TRUE(ask_plainly<Enlisted>(unproven).refused);
  Enlist older = enlistment(1);
  older.version = "0";
  EXPECT_NE(ask<Enlisted>(older).error.message.find("runs version 0, the first node version 1"),
            std::string::npos);
  Enlist huge = enlistment(1);
  huge.slots = 2'000'000'000;
  EXPECT_TRUE(ask<Enlisted>(huge).refused);
  EXPECT_TRUE(ask<JobAccepted>(job()).refused) << "no node, no job";
  EXPECT_FALSE(ask<Enlisted>(enlistment(1)).refused);
  SubmitJob without = job();
  EXPECT_NE(ask_plainly<JobAccepted>(without).error.message.find("does not prove"),
            std::string::npos);
  SubmitJob newer = job();
  newer.version = "2";
  EXPECT_NE(ask<JobAccepted>(newer).error.message.find("runs version 2"), std::string::npos);
  EXPECT_NE(ask<JobAccepted>(job(9)).error.message.find("--processes 9: the nodes have 1 slot"),
            std::string::npos);
  SubmitJob shell = job();
  shell.arguments = {"--steps=1", "--requeue-command=touch /tmp/x"};
  EXPECT_NE(ask<JobAccepted>(shell).error.message.find("--requeue-command"), std::string::npos);
  // One of this machine, which might hold any option.
  SubmitJob file = job();
  file.arguments = {"--set", "wiring.peers=1", "job.toml"};
  EXPECT_NE(ask<JobAccepted>(file).error.message.find("'job.toml' is no option"),
            std::string::npos);
  EXPECT_TRUE(heard_->read([this] { return heard_->started.empty(); }));
}

// A flood of greetings pushes out the sessions of those that have not spoken since.
TEST_F(NodePoolTest, ACallerWhoseSessionWasForgottenIsToldToStartAgain) {
  const Enlist late = enlistment(1);
  for (int i = 0; i < 1024; ++i) greet();
  const Error error = ask<Enlisted>(late).error;
  EXPECT_EQ(error.code, Errc::peer_down);
  EXPECT_EQ(error.message, "the session of the sender is unknown: start again");
  EXPECT_FALSE(ask<Enlisted>(enlistment(1)).refused);
}

TEST_F(NodePoolTest, HasRoomForSoManySlotsAndNoMore) {
  EXPECT_FALSE(ask<Enlisted>(enlistment(1)).refused);
  EXPECT_TRUE(ask<Enlisted>(enlistment(kMaxSlots)).refused);
  const Enlisted last = ask<Enlisted>(enlistment(kMaxSlots - 1));
  EXPECT_FALSE(last.refused) << last.error.message;
  EXPECT_EQ(last.slots, kMaxSlots);
  const Enlisted more = ask<Enlisted>(enlistment(1));
  EXPECT_TRUE(more.refused);
  EXPECT_EQ(more.slots, kMaxSlots);
  EXPECT_NE(more.error.message.find(std::to_string(kMaxSlots) + " of all nodes together"),
            std::string::npos)
      << more.error.message;
}

// ---- jobs that continue without lost processes ----

class NodePoolThatContinues : public NodePoolTest {
 protected:
  SubmitJob lasting_job(std::int32_t processes, std::int32_t places = 0,
                        std::int32_t restarts = 2) {
    SubmitJob submit = job(processes);
    submit.continues = true;
    submit.places = places;
    submit.restarts = restarts;
    return submit;
  }
  // All `processes` have joined.
  void report_begun(std::int64_t job, std::int32_t processes, std::int32_t places = 0,
                    std::int32_t least = 0) {
    const RunBegin begin{processes, std::max(processes, places),
                         least > 0 ? least : processes / 2 + 1};
    send_by_node(0, RankOutput{{}, job, 0, true, text_of(begin)});
    await_pool();
  }
  std::int64_t begin(int nodes, const SubmitJob& submit) {
    const std::int64_t id = submit_on(nodes, submit);
    report_begun(id, submit.processes, submit.places, submit.least);
    return id;
  }
  // On nodes with two slots each; the run has not begun.
  std::int64_t submit_on(int nodes, const SubmitJob& submit) {
    for (int node = 0; node < nodes; ++node) EXPECT_FALSE(ask<Enlisted>(enlistment(2)).refused);
    const JobAccepted accepted = ask<JobAccepted>(submit);
    EXPECT_FALSE(accepted.refused) << accepted.error.message;
    EXPECT_TRUE(
        heard_->wait([&] { return static_cast<int>(heard_->started.size()) == accepted.nodes; }));
    return accepted.job;
  }
  // The order to start that is number `index` of all.
  std::pair<int, StartRanks> start_number(std::size_t index) {
    EXPECT_TRUE(heard_->wait([&] { return heard_->started.size() > index; }));
    return heard_->read([&] {
      return heard_->started.size() > index ? heard_->started[index] : std::pair<int, StartRanks>();
    });
  }
  std::size_t count_starts() {
    await_pool();
    return heard_->read([this] { return heard_->started.size(); });
  }
  void exit_on(std::size_t node, std::int64_t job, std::int32_t process, std::int32_t code,
               std::int32_t signal = 0) {
    caf::anon_send(pool_,
                   seals_.at(node).sealed(system_, RankExited{{}, job, process, code, signal, ""}));
  }
  bool await_line(const std::string& text) {
    return heard_->wait([&] {
      return std::any_of(heard_->output.begin(), heard_->output.end(), [&](const JobOutput& o) {
        return o.line.find(text) != std::string::npos;
      });
    });
  }
};

TEST_F(NodePoolThatContinues, AKilledProcessIsStartedAgainWhereItRan) {
  const std::int64_t id = begin(2, lasting_job(4));
  exit(id, 3, -1, SIGKILL);
  auto [node, start] = start_number(2);
  EXPECT_EQ(node, 1);
  EXPECT_EQ(std::make_tuple(start.first, start.count, start.processes), std::make_tuple(3, 1, 4));
  EXPECT_EQ(std::make_tuple(start.slot, start.here, start.job), std::make_tuple(1, 2, id));
  EXPECT_EQ(start.nonce, heard_->read([this] { return heard_->started[0].second.nonce; }));
  EXPECT_TRUE(
      await_line("process 3 on node 10.0.0.1:7 was killed by signal 9 (SIGKILL): starting it "
                 "again (1 of 2); the others continue"));
  exit(id, 1, 3);  // it has lost a link
  std::tie(node, start) = start_number(3);
  EXPECT_EQ(std::make_tuple(node, start.first, start.slot), std::make_tuple(0, 1, 1));
  exit(id, 2, -1, SIGSEGV);
  EXPECT_TRUE(
      await_line("process 2 on node 10.0.0.1:7 was killed by signal 11 (SIGSEGV): the others "
                 "continue"));
  EXPECT_EQ(count_starts(), 4U) << "no restart is left";
  for (const std::int32_t process : {1, 3, 0}) exit(id, process, 0);
  EXPECT_FALSE(await_end().failed) << "the run is that of process 0";
}

// Also where a lower slot is free: launchers' variables say a rank below the number of ranks.
TEST_F(NodePoolThatContinues, TheLocalRankIsBelowTheNumberOfLocalRanks) {
  for (const std::int32_t slots : {1, 3}) EXPECT_FALSE(ask<Enlisted>(enlistment(slots)).refused);
  const std::int64_t id = ask<JobAccepted>(lasting_job(4)).job;
  EXPECT_TRUE(heard_->wait([this] { return heard_->started.size() == 2; }));
  report_begun(id, 4);
  exit_on(1, id, 1, 0);  // drained: it has slot 0
  exit_on(1, id, 3, -1, SIGKILL);
  const StartRanks start = start_number(2).second;
  EXPECT_EQ(std::make_tuple(start.first, start.slot, start.here), std::make_tuple(3, 2, 3));
}

// Processes that lose the run end before process 0 does: no news of each, and no restart.
TEST_F(NodePoolThatContinues, TheEndOfARunIsNotTheLossOfEachProcess) {
  joins_timeout_ = std::chrono::seconds(50);
  restart_pool();
  const std::int64_t id = begin(2, lasting_job(4));
  for (const std::int32_t process : {1, 2, 3}) {
    send_by_node(
        process,
        RankOutput{{}, id, process, true, "error: rank 7 is gone; resume with --resume x"});
    exit(id, process, 3);
  }
  await_pool();
  send_by_node(0, RankOutput{{}, id, 0, true, "error: rank 7 is gone; resume with --resume x"});
  exit(id, 0, 3);
  const JobEnded ended = await_end();
  EXPECT_EQ(ended.error.message, "rank 7 is gone; resume with --resume x");
  EXPECT_TRUE(heard_->read([this] { return heard_->output.empty(); }));
  EXPECT_EQ(heard_->read([this] { return heard_->started.size(); }), 2U);
}

TEST_F(NodePoolThatContinues, AStopIsThatOfProcessZeroWhoeverIsJoining) {
  const std::int64_t id = begin(2, lasting_job(4));
  exit(id, 3, -1, SIGKILL);
  start_number(2);
  signal(id, SIGINT);
  EXPECT_TRUE(await_signal(1, SIGTERM));
  exit(id, 3, -1, SIGTERM);  // it had not come far
  send_by_node(2, RankOutput{{}, id, 2, true, "error: process 2 has lost everybody"});
  exit(id, 2, 1);
  send_by_node(0, RankOutput{{}, id, 0, true, "error: stopped by request; resume with --resume x"});
  exit(id, 0, 4);
  exit(id, 1, 0);
  const JobEnded ended = await_end();
  EXPECT_EQ(ended.error.code, Errc::stopped);
  EXPECT_EQ(ended.error.message, "stopped by request; resume with --resume x");
}

// A process that does not end by itself once the run has ended is frozen: the result stands.
TEST_F(NodePoolThatContinues, AFrozenProcessDoesNotHoldUpTheEnd) {
  grace_ = std::chrono::milliseconds(1);
  restart_pool();
  const std::int64_t id = begin(2, lasting_job(4));
  for (const std::int32_t process : {0, 1, 2}) exit(id, process, 0);
  EXPECT_TRUE(await_signal(1, SIGKILL));
  exit(id, 3, -1, SIGKILL);
  EXPECT_FALSE(await_end().failed);
}

TEST_F(NodePoolThatContinues, ANodeThatDiesAfterTheRunDoesNotChangeItsResult) {
  const std::int64_t id = begin(2, lasting_job(4));
  exit(id, 0, 0);
  await_pool();
  caf::anon_send_exit(nodes_[1], caf::exit_reason::kill);
  exit(id, 1, 0);
  EXPECT_FALSE(await_end().failed);
}

// All others have ended without it.
TEST_F(NodePoolThatContinues, AFrozenProcessZeroIsNotWaitedForWithoutEnd) {
  grace_ = std::chrono::milliseconds(1);
  restart_pool();
  const std::int64_t id = begin(2, lasting_job(4, 0, 0));
  for (const std::int32_t process : {1, 2, 3}) {
    send_by_node(process, RankOutput{{}, id, process, true, "error: process 0 is gone"});
    exit(id, process, 3);
  }
  EXPECT_TRUE(await_signal(0, SIGKILL));
  exit(id, 0, -1, SIGKILL);
  const JobEnded ended = await_end();
  EXPECT_EQ(ended.error.code, Errc::peer_down);
  EXPECT_EQ(ended.error.message.rfind("process 0 is gone", 0), 0U) << ended.error.message;
}

// The others have ended with the run, whose process 0 still writes its files.
TEST_F(NodePoolThatContinues, AProcessThatComesTooLateDoesNotEndProcessZero) {
  grace_ = std::chrono::milliseconds(1);
  restart_pool();
  const std::int64_t id = begin(2, lasting_job(4));
  for (const std::int32_t process : {1, 2, 3}) exit(id, process, 0);
  await_pool();
  EXPECT_FALSE(ask<Enlisted>(enlistment(2)).refused);
  for (const std::size_t start : {2, 3}) {
    const auto [node, started] = start_number(start);
    EXPECT_EQ(node, 2);
    exit_on(2, id, started.first, 2);
    EXPECT_TRUE(await_line("process " + std::to_string(started.first) +
                           " on node 10.0.0.2:7 exited with code 2: the others continue"));
  }
  for (int i = 0; i < 100; ++i) await_pool();  // longer than the grace period
  EXPECT_EQ(count_signals(), 0U);
  exit(id, 0, 0);
  EXPECT_FALSE(await_end().failed);
}

// The others would wait for it until the deadline of the rendezvous.
TEST_F(NodePoolThatContinues, AProcessThatFailsBeforeTheRunHasBegunEndsTheJob) {
  const std::int64_t id = submit_on(2, lasting_job(4));
  send_by_node(2, RankOutput{{}, id, 2, true, "error: no memory for the model"});
  exit(id, 2, 1);
  EXPECT_TRUE(await_signal(0, SIGTERM));
  for (const std::int32_t process : {0, 1, 3}) {
    send_by_node(
        process,
        RankOutput{{}, id, process, true, "error: stopped by a signal before training began"});
    exit(id, process, 1);
  }
  const JobEnded ended = await_end();
  EXPECT_EQ(ended.error.code, Errc::failed);
  EXPECT_EQ(ended.error.message, "process 2 on node 10.0.0.1:7: no memory for the model");
}

TEST_F(NodePoolThatContinues, OneThatIsKilledBeforeTheRunHasBegunIsStartedAgainOrEndsTheJob) {
  const std::int64_t id = submit_on(2, lasting_job(4, 0, 1));
  exit(id, 3, -1, SIGKILL);
  EXPECT_EQ(start_number(2).second.first, 3);
  EXPECT_TRUE(await_line("starting it again (1 of 1); the others wait"));
  exit(id, 3, -1, SIGKILL);
  EXPECT_TRUE(await_signal(0, SIGTERM));
  for (const std::int32_t process : {0, 1, 2}) exit(id, process, -1, SIGTERM);
  const JobEnded ended = await_end();
  EXPECT_EQ(ended.error.code, Errc::peer_down);
  EXPECT_EQ(ended.error.message, "process 3 on node 10.0.0.1:7 was killed by signal 9 (SIGKILL)");
}

TEST_F(NodePoolThatContinues, ANodeThatDiesBeforeTheRunHasBegunIsReplacedWholeOrEndsTheJob) {
  const std::int64_t id = submit_on(3, lasting_job(4));
  caf::anon_send_exit(nodes_[1], caf::exit_reason::kill);
  for (const std::size_t index : {std::size_t{2}, std::size_t{3}})
    EXPECT_EQ(start_number(index).first, 2) << "the third node is free";
  EXPECT_TRUE(await_line("died during the job, with processes 2, 3: the others wait"));
  caf::anon_send_exit(nodes_[2], caf::exit_reason::kill);
  EXPECT_TRUE(await_signal(0, SIGTERM));
  for (const std::int32_t process : {0, 1}) exit(id, process, -1, SIGTERM);
  const JobEnded ended = await_end();
  EXPECT_EQ(ended.error.code, Errc::peer_down);
  EXPECT_EQ(ended.error.message.rfind("node 10.0.0.2:7 (host) died during the job", 0), 0U)
      << ended.error.message;
}

// One in a vacant place is not waited for. The line is the pool's alone.
TEST_F(NodePoolThatContinues, ABeginIsThatOfTheFirstProcesses) {
  const std::int64_t id = submit_on(2, lasting_job(4, 6));
  EXPECT_FALSE(ask<Enlisted>(enlistment(2)).refused);
  EXPECT_EQ(start_number(3).second.first, 5);
  exit_on(2, id, 5, 1);
  EXPECT_TRUE(await_line("process 5 on node 10.0.0.2:7 exited with code 1: the others wait"));
  const std::string line = text_of(RunBegin{4, 6, 3});
  send_by_node(2, RankOutput{{}, id, 2, true, line});  // this is process 0's to say
  report_begun(id, 4, 6, 3);
  exit(id, 2, 1);
  EXPECT_TRUE(await_line("process 2 on node 10.0.0.1:7 exited with code 1: the others continue"));
  const auto lines = heard_->read([this] { return heard_->output; });
  EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                          [&](const JobOutput& output) { return output.line == line; }),
            1);
}

// Its submitter knows neither its places nor how many processes it needs.
TEST_F(NodePoolThatContinues, AResumedJobReportsItsPlaces) {
  const std::int64_t id = submit_on(2, lasting_job(3));
  EXPECT_FALSE(ask<Enlisted>(enlistment(2)).refused);
  EXPECT_EQ(count_starts(), 2U) << "no place is known";
  report_begun(id, 3, 6, 3);
  EXPECT_EQ(start_number(2).second.first, 3);
  EXPECT_EQ(start_number(3).second.first, 4);
  EXPECT_EQ(start_number(3).second.processes, 6);
  EXPECT_EQ(count_starts(), 4U) << "the slot of the second node was free when the job began";
  EXPECT_FALSE(ask<Enlisted>(enlistment(2)).refused);
  EXPECT_EQ(start_number(4).second.first, 5);
  EXPECT_EQ(count_starts(), 5U);
}

// Process 0 listens for other nodes: the places of a resumed run are known too late for that.
TEST_F(NodePoolThatContinues, AResumedJobOfOneNodeMayGrow) {
  SubmitJob submit = lasting_job(2);
  submit.arguments.push_back("--resume=run");
  submit_on(1, submit);
  EXPECT_TRUE(start_number(0).second.grows);
}

// More processes than the run has places for would end it before it begins.
TEST_F(NodePoolThatContinues, AResumedJobBeginsWithNoMoreProcessesThanItHasPlaces) {
  SubmitJob submit = lasting_job(0);
  submit.arguments.push_back("--resume=of 3 places");
  const std::int64_t id = submit_on(3, submit);
  EXPECT_EQ(start_number(0).second.processes, 3);
  EXPECT_EQ(start_number(0).second.count + start_number(1).second.count, 3);
  report_begun(id, 3, 3);
  EXPECT_EQ(count_starts(), 2U) << "the third node has none of them";
  for (const std::int32_t process : {1, 2, 0}) exit(id, process, 0);
  EXPECT_FALSE(await_end().failed);
  submit.processes = 4;  // a number that was given counts: process 0 says why it does not fit
  EXPECT_EQ(ask<JobAccepted>(submit).processes, 4);
}

TEST_F(NodePoolThatContinues, AResumedJobOfAnyNumberOfPlacesTakesAllSlots) {
  SubmitJob submit = lasting_job(0);
  submit.arguments.push_back("--resume=run");
  submit_on(2, submit);
  EXPECT_EQ(start_number(0).second.processes, 4);
}

TEST_F(NodePoolThatContinues, AnotherJobOfOneNodeStaysThere) {
  submit_on(1, lasting_job(2));
  EXPECT_FALSE(start_number(0).second.grows);
}

// It may be why the others did not come far.
TEST_F(NodePoolThatContinues, AnEarlierFailureIsNamedBesideThatOfProcessZero) {
  const std::int64_t id = begin(2, lasting_job(4));
  send_by_node(2, RankOutput{{}, id, 2, true, "error: no memory for the model"});
  exit(id, 2, 1);
  send_by_node(0, RankOutput{{}, id, 0, true, "error: process 2 did not join within 60 s"});
  exit(id, 0, 1);
  for (const std::int32_t process : {1, 3}) exit(id, process, 1);
  EXPECT_EQ(
      await_end().error.message,
      "process 0 on node 10.0.0.0:7: process 2 did not join within 60 s; before that process 2 on "
      "node 10.0.0.1:7: no memory for the model");
}

TEST_F(NodePoolThatContinues, OtherEndsAreThoseOfTheJob) {
  std::int64_t id = begin(2, lasting_job(4));
  const auto ends_with = [&](std::int32_t process, std::int32_t code, std::int32_t signal) {
    exit(id, process, code, signal);
    EXPECT_TRUE(await_signal(0, SIGTERM));
    for (std::int32_t other = 0; other < 4; ++other)
      if (other != process) exit(id, other, 0);
    const JobEnded ended = await_end();
    EXPECT_TRUE(ended.failed);
    heard_->add([this] {
      heard_->ended.clear();
      heard_->signals.clear();
      heard_->started.clear();
    });
    id = ask<JobAccepted>(lasting_job(4)).job;
    report_begun(id, 4);
    return ended.error.code;
  };
  EXPECT_EQ(ends_with(2, 2, 0), Errc::bad_input);
  EXPECT_EQ(ends_with(2, 4, 0), Errc::stopped);
  EXPECT_EQ(ends_with(0, -1, SIGKILL), Errc::peer_down);
  EXPECT_EQ(ends_with(0, 1, 0), Errc::failed);
}

TEST_F(NodePoolThatContinues, FreeSlotsTakeThePlacesOfANodeThatDies) {
  const std::int64_t id = begin(3, lasting_job(5));  // a slot of the third node is free
  caf::anon_send_exit(nodes_[1], caf::exit_reason::kill);
  const auto [node, start] = start_number(3);
  EXPECT_EQ(node, 2);
  EXPECT_EQ(std::make_tuple(start.first, start.count, start.slot, start.here),
            std::make_tuple(2, 1, 1, 2));
  EXPECT_TRUE(
      await_line("node 10.0.0.1:7 (host) died during the job, with processes 2, 3: the others "
                 "continue"));
  // A node that comes later takes the other one.
  EXPECT_FALSE(ask<Enlisted>(enlistment(2)).refused);
  const auto [later, second] = start_number(4);
  EXPECT_EQ(std::make_tuple(later, second.first, second.slot), std::make_tuple(3, 3, 0));
  EXPECT_EQ(count_starts(), 5U);
  for (const auto& [on, process] :
       std::vector<std::pair<std::size_t, std::int32_t>>{{2, 2}, {3, 3}, {2, 4}, {0, 1}, {0, 0}})
    exit_on(on, id, process, 0);
  EXPECT_FALSE(await_end().failed);
}

// The processes of a silent node may train on: one in the place of such a process is refused until
// they end.
TEST_F(NodePoolThatContinues, AReplacementThatFindsItsPlaceTakenIsStartedAgain) {
  const std::int64_t id = begin(3, lasting_job(5));
  caf::anon_send_exit(nodes_[1], caf::exit_reason::kill);
  EXPECT_EQ(start_number(3).second.first, 2);
  const auto says = [&](std::size_t node, std::int32_t process, const std::string& line) {
    caf::anon_send(pool_, seals_.at(node).sealed(system_, RankOutput{{}, id, process, true, line}));
  };
  says(2, 2, std::string("error: process 2 on host ") + kPlaceTaken);
  exit_on(2, id, 2, 2);
  const auto [node, start] = start_number(4);
  EXPECT_EQ(std::make_tuple(node, start.first), std::make_tuple(2, 2));
  EXPECT_TRUE(await_line("exited with code 2: starting it again (1 of 2); the others continue"));
  says(2, 2, "error: no such file");
  exit_on(2, id, 2, 2);
  EXPECT_TRUE(await_line("exited with code 2: the others continue"));
  EXPECT_EQ(count_starts(), 5U);
}

// Or until they count as lost.
TEST_F(NodePoolThatContinues, AReplacementOfASilentProcessIsStartedAgain) {
  const std::int64_t id = begin(3, lasting_job(5));
  caf::anon_send_exit(nodes_[1], caf::exit_reason::kill);
  EXPECT_EQ(start_number(3).second.first, 2);
  const std::string line =
      std::string("error: process 2 on host finds its place taken: the one on node1 ") +
      kPlaceOfSilent + ": end that process";
  caf::anon_send(pool_, seals_.at(2).sealed(system_, RankOutput{{}, id, 2, true, line}));
  exit_on(2, id, 2, 2);
  EXPECT_EQ(start_number(4).second.first, 2);
  EXPECT_TRUE(await_line("exited with code 2: starting it again (1 of 2); the others continue"));
}

// A drain makes room on a node; its slot is not to be taken at once.
TEST_F(NodePoolThatContinues, ANodeThatJoinsTakesThePlaceOfADrainedProcess) {
  const std::int64_t id = begin(2, lasting_job(4, 5));
  exit(id, 3, 0);
  EXPECT_EQ(count_starts(), 2U);
  EXPECT_FALSE(ask<Enlisted>(enlistment(2)).refused);
  EXPECT_EQ(start_number(2).second.first, 3);
  EXPECT_EQ(start_number(3).second.first, 4);
  for (const auto& [on, process] :
       std::vector<std::pair<std::size_t, std::int32_t>>{{2, 3}, {2, 4}, {1, 2}, {0, 1}, {0, 0}})
    exit_on(on, id, process, 0);
  EXPECT_FALSE(await_end().failed);
}

// With as many places as --max-ranks has.
TEST_F(NodePoolThatContinues, ANodeThatJoinsTakesVacantPlaces) {
  const std::int64_t id = begin(2, lasting_job(3, 5));
  EXPECT_EQ(start_number(0).second.processes, 3);
  EXPECT_TRUE(start_number(0).second.grows);
  EXPECT_EQ(count_starts(), 2U) << "the free slot was there when the job began";
  exit(id, 2, 1);  // failed by itself: not started again
  EXPECT_TRUE(await_line("process 2 on node 10.0.0.1:7 exited with code 1: the others continue"));
  EXPECT_FALSE(ask<Enlisted>(enlistment(2)).refused);
  EXPECT_EQ(start_number(2).second.first, 2) << "lost places come first";
  EXPECT_EQ(start_number(2).second.processes, 3);
  EXPECT_EQ(start_number(3).second.first, 3);
  EXPECT_EQ(start_number(3).second.processes, 5);
  EXPECT_FALSE(ask<Enlisted>(enlistment(2)).refused);
  EXPECT_EQ(start_number(4).first, 3);
  EXPECT_EQ(start_number(4).second.first, 4);
  EXPECT_EQ(count_starts(), 5U) << "there is no other place";
  exit_on(2, id, 3, 2);  // it could not take part
  EXPECT_TRUE(await_line("process 3 on node 10.0.0.2:7 exited with code 2: the others continue"));
  // Those that have not joined by the end of process 0 are told so.
  exit(id, 0, 0);
  EXPECT_TRUE(heard_->wait([this] { return heard_->to_one.size() == 2; }));
  exit_on(3, id, 4, 2);  // "there is no run"
  exit_on(2, id, 2, -1, SIGTERM);
  exit(id, 1, 0);
  EXPECT_FALSE(await_end().failed);
}

TEST_F(NodePoolThatContinues, AJobTakesNoMoreSlotsThanItHasPlaces) {
  SubmitJob submit = lasting_job(0, 3);
  for (int node = 0; node < 2; ++node) ASSERT_FALSE(ask<Enlisted>(enlistment(2)).refused);
  EXPECT_EQ(ask<JobAccepted>(submit).processes, 3);
}

TEST_F(NodePoolThatContinues, ANodeLeavesAJobThatGoesOnWithoutIt) {
  const std::int64_t id = begin(3, lasting_job(6));
  LeavePool leave;
  leave.agent = nodes_[1];
  ask<Left>(leave);
  EXPECT_TRUE(await_signal(1, SIGKILL));
  EXPECT_TRUE(
      await_line("node 10.0.0.1:7 (host) has left the job, with processes 2, 3: the others "
                 "continue"));
  // Without another one more than half of the ranks would be gone: the job stops.
  leave.agent = nodes_[2];
  std::thread asks([&] { ask<Left>(leave); });
  EXPECT_TRUE(await_signal(0, SIGTERM));
  for (const std::int32_t process : {0, 1}) exit(id, process, 4);
  for (const std::int32_t process : {4, 5}) exit_on(2, id, process, 0);
  asks.join();
  EXPECT_EQ(await_end().error.code, Errc::stopped);
}

TEST_F(NodePoolThatContinues, ANodeDoesNotLeaveAJobThatNeedsItsRanks) {
  SubmitJob submit = lasting_job(6);
  submit.least = 5;
  const std::int64_t id = begin(3, submit);
  LeavePool leave;
  leave.agent = nodes_[1];
  std::thread asks([&] { ask<Left>(leave); });
  EXPECT_TRUE(await_signal(0, SIGTERM));
  for (const std::int32_t process : {0, 1, 2, 3}) exit(id, process, process == 0 ? 4 : 0);
  for (const std::int32_t process : {4, 5}) exit_on(2, id, process, 0);
  asks.join();
  EXPECT_EQ(await_end().error.code, Errc::stopped);
}

// Whatever ends and comes: each place has one process at most, no node more than it has slots, and
// the job ends as process 0 does.
TEST_F(NodePoolThatContinues, AnyOrderOfLossesAndJoins) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int node = 0; node < 3; ++node) ASSERT_FALSE(ask<Enlisted>(enlistment(2)).refused);
  const std::int64_t id = ask<JobAccepted>(lasting_job(5, 8, 1000)).job;
  report_begun(id, 5, 8);
  std::map<std::int32_t, std::size_t> runs;  // process: node
  std::set<std::size_t> dead;
  std::size_t seen = 0;
  // What the nodes have been told so far; some of it may come later.
  const auto look = [&] {
    await_pool();
    const auto started = heard_->read([this] { return heard_->started; });
    for (; seen < started.size(); ++seen) {
      const auto node = static_cast<std::size_t>(started[seen].first);
      const StartRanks& start = started[seen].second;
      for (std::int32_t i = 0; i < start.count && dead.count(node) == 0; ++i)
        ASSERT_TRUE(runs.emplace(start.first + i, node).second)
            << "process " << start.first + i << " runs twice";
    }
    std::map<std::size_t, int> on_node;
    for (const auto& [process, node] : runs) EXPECT_LE(++on_node[node], 2) << "node " << node;
  };
  for (int event = 0; event < 60; ++event) {
    look();
    const auto kind = random() % 8;
    if (kind < 5 && runs.size() > 1) {
      auto victim =
          std::next(runs.begin(), static_cast<std::ptrdiff_t>(1 + random() % (runs.size() - 1)));
      const auto [process, node] = *victim;
      runs.erase(victim);
      exit_on(node, id, process, kind < 3 ? -1 : 1, kind < 3 ? SIGKILL : 0);
    } else if (kind == 5) {
      const std::size_t node = 1 + random() % (nodes_.size() - 1);
      if (!dead.insert(node).second) continue;
      for (auto it = runs.begin(); it != runs.end();)
        it = it->second == node ? runs.erase(it) : std::next(it);
      caf::anon_send_exit(nodes_[node], caf::exit_reason::kill);
      caf::scoped_actor self{system_};
      self->wait_for(nodes_[node]);
    } else if (kind == 6) {
      ASSERT_FALSE(ask<Enlisted>(enlistment(2)).refused);
    }
  }
  exit(id, 0, 0);
  runs.erase(0);
  const auto ended = [this] { return !heard_->ended.empty(); };
  while (!heard_->read(ended)) {
    look();
    for (const auto& [process, node] : runs) exit_on(node, id, process, 0);
    runs.clear();
    ASSERT_TRUE(heard_->wait([&] { return ended() || heard_->started.size() > seen; }));
  }
  EXPECT_FALSE(await_end().failed);
}

// Process 0 writes on the first node, whoever comes first.
TEST_F(NodePoolTest, TheFirstNodeIsFirstThoughAnotherOneCameBefore) {
  EXPECT_FALSE(ask<Enlisted>(enlistment(2, Place::elsewhere)).refused);
  const JobAccepted early = ask<JobAccepted>(job());
  EXPECT_NE(early.error.message.find("is still starting"), std::string::npos);
  EXPECT_FALSE(ask<Enlisted>(enlistment(1, Place::elsewhere)).refused);
  EXPECT_FALSE(ask<Enlisted>(enlistment(3)).refused);
  ASSERT_FALSE(ask<JobAccepted>(job()).refused);
  ASSERT_TRUE(heard_->wait([this] { return heard_->started.size() == 3; }));
  std::map<int, std::int32_t> first_of;
  for (const auto& [node, start] : heard_->read([this] { return heard_->started; }))
    first_of[node] = start.first;
  EXPECT_EQ(first_of, (std::map<int, std::int32_t>{{2, 0}, {0, 3}, {1, 5}}));
}

// From a loopback address the first node could not learn its own towards other machines.
TEST_F(NodePoolTest, AsksForTheRouteToAnotherMachine) {
  for (const std::string address :
       {"[::1]:7", "127.0.0.1:7", "127.8.9.10:7", "[2001:db8::5]:7", "10.0.0.9:7"}) {
    Enlist enlist = enlistment(1);
    enlist.address = address;
    ASSERT_FALSE(ask<Enlisted>(enlist).refused);
  }
  ASSERT_FALSE(ask<JobAccepted>(job()).refused);
  ASSERT_TRUE(heard_->wait([this] { return heard_->started.size() == 5; }));
  EXPECT_EQ(heard_->read([this] { return heard_->started[0].second.other_host; }), "2001:db8::5");
}

// Each question has a session of its own.
TEST_F(NodePoolTest, SaysWhereItsJobIsControlled) {
  SealedSession session;
  const auto where = [&] {
    session = greet();
    return ask_plainly<ControlPlace>(session.to.sealed(system_, AskControl{}));
  };
  EXPECT_EQ(where().error.message, "the nodes run no job now");
  const std::int64_t id = begin_job();
  EXPECT_NE(where().error.message.find("job 1 of somebody@somewhere is starting"),
            std::string::npos);
  // Of another process, of another stream, and texts that are no such line.
  send_by_node(1, RankOutput{{}, id, 1, true, "control: 10.0.0.1:9"});
  send_by_node(0, RankOutput{{}, id, 0, false, "control: 10.0.0.1:9"});
  for (const char* line : {"control: a client is refused", "control: 10.0.0.1:", "control: ::x",
                           "control: 10.0.0.1:99999", "uncontrol: h:9", "control:"})
    send_by_node(0, RankOutput{{}, id, 0, true, line});
  await_pool();
  EXPECT_TRUE(where().refused);
  send_by_node(0, RankOutput{{}, id, 0, true, "control: 10.0.0.1:4712"});
  send_by_node(0, RankOutput{{}, id, 0, true, "control: 10.0.0.1:4713"});  // the first one counts
  await_pool();
  const ControlPlace place = where();
  EXPECT_FALSE(place.refused) << place.error.message;
  EXPECT_EQ(place.job, id);
  EXPECT_EQ(place.port, 4712);
  EXPECT_EQ(place.nonce, heard_->read([this] { return heard_->started[0].second.nonce; }));
  EXPECT_TRUE(session.from.opens(system_, place));
  const ControlPlace again = ask_plainly<ControlPlace>(session.to.sealed(system_, AskControl{}));
  EXPECT_TRUE(again.refused) << "the session is over";
  const ControlPlace unproven = ask_plainly<ControlPlace>(AskControl{});
  EXPECT_TRUE(unproven.refused);
  EXPECT_TRUE(unproven.nonce.empty());
}

TEST_F(NodePoolTest, RefusesAJobWhoseOptionsAreTooLong) {
  EXPECT_FALSE(ask<Enlisted>(enlistment(1)).refused);
  SubmitJob submit = job();
  submit.arguments = {"--out=" + std::string(kMostArgumentBytes, 'x')};
  EXPECT_NE(ask<JobAccepted>(submit).error.message.find("and a job of nodes has at most"),
            std::string::npos);
}

TEST_F(NodePoolTest, RefusesASecondJobWhileOneRuns) {
  begin_job();
  const JobAccepted second = ask<JobAccepted>(job());
  ASSERT_TRUE(second.refused);
  EXPECT_NE(second.error.message.find("busy with job 1 of somebody@somewhere"), std::string::npos);
  EXPECT_EQ(heard_->read([this] { return heard_->started.size(); }), 2U);
}

TEST_F(NodePoolTest, OneFailedProcessEndsTheOthersAndIsNamed) {
  const std::int64_t id = begin_job();
  send_by_node(3, RankOutput{{}, id, 3, true, "error: no such file: /data"});
  exit(id, 3, 2);
  EXPECT_TRUE(await_signal(0, SIGTERM));
  EXPECT_TRUE(await_signal(1, SIGTERM));
  exit(id, 0, 1);            // it has lost a peer
  exit(id, 1, -1, SIGTERM);  // it had not come far
  exit(id, 2, 1);
  const JobEnded ended = await_end();
  EXPECT_TRUE(ended.failed);
  EXPECT_EQ(ended.error.code, Errc::bad_input);
  EXPECT_EQ(ended.error.message, "process 3 on node 10.0.0.1:7: no such file: /data");
}

// The others may still read their data when they are asked to end.
TEST_F(NodePoolTest, AProcessThatHasNotBegunSaysNothingOfBeingAskedToEnd) {
  const std::int64_t id = begin_job();
  send_by_node(3, RankOutput{{}, id, 3, true, "error: no such file: /data"});
  exit(id, 3, 2);
  for (const std::int32_t process : {0, 1, 2}) {
    send_by_node(
        process,
        RankOutput{{}, id, process, true, "error: stopped by a signal before training began"});
    exit(id, process, 1);
  }
  EXPECT_EQ(await_end().error.message, "process 3 on node 10.0.0.1:7: no such file: /data");
  EXPECT_TRUE(heard_->read([this] { return heard_->output.empty(); }));
}

// Those who lost a peer may end before the one that was killed is known to have died.
TEST_F(NodePoolTest, WhatKilledCountsMoreThanWhoLostAPeer) {
  const std::int64_t id = begin_job();
  exit(id, 0, 1);
  exit(id, 2, -1, SIGKILL);
  exit(id, 1, 1);
  exit(id, 3, 1);
  // By then everybody had been asked to end: SIGKILL is the pool's own, as far as it can know.
  EXPECT_EQ(await_end().error.message, "process 0 on node 10.0.0.0:7 exited with code 1");
  heard_->add([this] { heard_->ended.clear(); });
  const JobAccepted again = ask<JobAccepted>(job());
  ASSERT_FALSE(again.refused);
  exit(again.job, 0, 1);
  exit(again.job, 2, -1, SIGSEGV);
  for (const std::int32_t process : {1, 3}) exit(again.job, process, 1);
  const JobEnded ended = await_end();
  EXPECT_EQ(ended.error.message, "process 2 on node 10.0.0.1:7 was killed by signal 11 (SIGSEGV)");
}

// What all say is of the job, not of the process that is heard first.
TEST_F(NodePoolTest, WhatSeveralProcessesSayIsQuotedAlone) {
  const std::int64_t id = begin_job();
  for (const std::int32_t process : {1, 0, 2, 3}) {
    send_by_node(process, RankOutput{{}, id, process, true, "error: rank 3: boom"});
    exit(id, process, 1);
  }
  EXPECT_EQ(await_end().error.message, "rank 3: boom");
}

TEST_F(NodePoolTest, ALostProcessAndAStopAreToldByTheCodeOfTheEnd) {
  const std::string hint = "; resume with --resume out";
  const std::int64_t id = begin_job();
  send_by_node(0, RankOutput{{}, id, 0, true, "error: rank 3 is gone" + hint});
  exit(id, 0, 3);
  exit(id, 3, -1, SIGKILL);  // stopped all the while, and killed at the end
  for (const std::int32_t process : {1, 2}) exit(id, process, 1);
  JobEnded ended = await_end();
  EXPECT_EQ(ended.error.code, Errc::peer_down);
  EXPECT_EQ(ended.error.message, "rank 3 is gone" + hint);

  heard_->add([this] { heard_->ended.clear(); });
  JobAccepted next = ask<JobAccepted>(job());
  exit(next.job, 2, -1, SIGSEGV);
  for (const std::int32_t process : {0, 1, 3}) {
    send_by_node(process, RankOutput{{}, next.job, process, true, "error: rank 2" + hint});
    exit(next.job, process, 3);
  }
  ended = await_end();
  EXPECT_EQ(ended.error.code, Errc::peer_down);
  EXPECT_EQ(ended.error.message,
            "process 2 on node 10.0.0.1:7 was killed by signal 11 (SIGSEGV)" + hint);

  heard_->add([this] { heard_->ended.clear(); });
  next = ask<JobAccepted>(job());
  for (const std::int32_t process : {0, 1, 2, 3}) {
    send_by_node(process, RankOutput{{}, next.job, process, true, "error: stopped" + hint});
    exit(next.job, process, 4);
  }
  ended = await_end();
  EXPECT_EQ(ended.error.code, Errc::stopped);
  EXPECT_EQ(ended.error.message, "stopped" + hint);
}

TEST_F(NodePoolTest, ANodeThatDiesDuringTheJobIsNamed) {
  const std::int64_t id = begin_job();
  exit(id, 0, 1);  // has noticed before the pool has
  caf::anon_send_exit(nodes_[1], caf::exit_reason::kill);
  exit(id, 1, 1);
  const JobEnded ended = await_end();
  EXPECT_TRUE(ended.failed);
  EXPECT_NE(ended.error.message.find("node 10.0.0.1:7 (host) died during the job"),
            std::string::npos)
      << ended.error.message;
  EXPECT_NE(ended.error.message.find("; resume with --resume"), std::string::npos);
  ASSERT_TRUE(heard_->wait([this] { return heard_->statuses.back().job == 0; }));
  EXPECT_EQ(heard_->read([this] { return heard_->statuses.back().nodes; }), 1);
}

TEST_F(NodePoolTest, ANodeThatDiesWhileIdleIsDropped) {
  for (int node = 0; node < 2; ++node) ask<Enlisted>(enlistment(2));
  caf::anon_send_exit(nodes_[1], caf::exit_reason::kill);
  ASSERT_TRUE(heard_->wait([this] { return heard_->statuses.back().nodes == 1; }));
  EXPECT_EQ(ask<JobAccepted>(job()).processes, 2);
}

TEST_F(NodePoolTest, TheJobStopsWhereItsSubmitterOrANodeGoes) {
  const std::int64_t id = begin_job();
  const LeavePool leave = seals_[1].sealed(system_, LeavePool{{}, nodes_[1]});
  caf::scoped_actor self{system_};
  auto left = self->request(pool_, kDeadline, leave);
  EXPECT_TRUE(await_signal(0, SIGTERM));
  for (std::int32_t process = 0; process < 4; ++process) exit(id, process, 0);
  EXPECT_FALSE(await_end().failed) << "a stop that was asked for is no failure";
  bool answered = false;
  left.receive([&](const Left&) { answered = true; }, [](const caf::error&) {});
  EXPECT_TRUE(answered);
  ASSERT_TRUE(heard_->wait([this] { return heard_->statuses.back().nodes == 1; }));

  heard_->add([this] { heard_->signals.clear(); });
  ASSERT_FALSE(ask<JobAccepted>(job()).refused);
  caf::anon_send_exit(submitter_, caf::exit_reason::kill);
  EXPECT_TRUE(await_signal(0, SIGTERM));
}

TEST_F(NodePoolTest, PassesSignalsOnAndKillsAtTheSecondInterrupt) {
  const std::int64_t id = begin_job();
  caf::anon_send(pool_, SignalJob{{1, 1, "guessed"}, id, SIGINT});
  signal(id, SIGUSR1);
  EXPECT_TRUE(await_signal(1, SIGUSR1));
  EXPECT_TRUE(await_signal(0, SIGUSR1));
  EXPECT_EQ(count_signals(), 2U) << "the guess has done nothing";
  signal(id, SIGINT);
  EXPECT_TRUE(await_signal(1, SIGTERM));
  signal(id, SIGINT);
  EXPECT_TRUE(await_signal(1, SIGKILL));
}

TEST_F(NodePoolWithShortGrace, KillsWhoDoesNotEndInTime) {
  const std::int64_t id = begin_job();
  signal(id, SIGTERM);
  EXPECT_TRUE(await_signal(0, SIGKILL));
  for (std::int32_t process = 0; process < 4; ++process) exit(id, process, -1, SIGKILL);
  EXPECT_TRUE(await_end().failed);
}

// It writes the model and the summary.
TEST_F(NodePoolAfterALoss, ProcessZeroHasTheWholeGrace) {
  const std::int64_t id = begin_job();
  exit(id, 3, 3);
  EXPECT_TRUE(await_signal(0, SIGTERM));
  EXPECT_TRUE(await_signal(1, SIGTERM));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  await_pool();
  EXPECT_EQ(count_signals(), 2U) << "killed before process 0 had ended";
  exit(id, 0, 3);
  EXPECT_TRUE(await_signal(1, SIGKILL)) << "the others need no more time";
  for (const std::int32_t process : {1, 2}) exit(id, process, -1, SIGKILL);
  EXPECT_EQ(await_end().error.code, Errc::peer_down);
}

// A process that the kernel holds, or a node whose main thread is stuck, hangs nobody.
TEST_F(NodePoolThatGivesUp, DropsANodeWhoseProcessesDoNotEvenEndWhenKilled) {
  const std::int64_t id = begin_job();
  for (const std::int32_t process : {0, 1, 2}) exit(id, process, 0);
  signal(id, SIGTERM);
  EXPECT_TRUE(await_signal(1, SIGKILL));
  const JobEnded ended = await_end();
  EXPECT_TRUE(ended.failed);
  EXPECT_NE(ended.error.message.find("node 10.0.0.1:7 (host) has not ended its processes"),
            std::string::npos)
      << ended.error.message;
  ASSERT_TRUE(heard_->wait([this] { return !heard_->gone.empty(); }));
  EXPECT_EQ(heard_->read([this] { return heard_->gone; }),
            (std::vector<std::pair<int, PoolGone>>{{1, PoolGone::dropped}}));
  EXPECT_EQ(ask<JobAccepted>(job()).processes, 2) << "the other node goes on";
}

TEST_F(NodePoolThatGivesUpTheKilled, AlsoAfterTheSecondInterrupt) {
  const std::int64_t id = begin_job();
  for (int i = 0; i < 2; ++i) signal(id, SIGINT);
  EXPECT_TRUE(await_end().failed);
  EXPECT_TRUE(ask<JobAccepted>(job()).refused) << "its own node is gone, too";
}

// One that is suspended, or whose link or reader is slow.
TEST_F(NodePoolWithLittleMemory, ASubmitterThatAcknowledgesNothingHoldsNoJobUp) {
  constexpr std::int32_t kLines = 300;
  const std::int64_t id = begin_job();
  for (std::int32_t i = 0; i < kLines; ++i)
    send_by_node(0, RankOutput{{}, id, 0, false, std::to_string(1000 + i) + std::string(96, 'x')});
  const std::size_t first = output_so_far().size();
  EXPECT_GE(first, 2U);
  EXPECT_LE(first, output_window_ / 100 + 1) << "lines of 100 bytes";
  const OutputWritten written{{}, id, static_cast<std::int64_t>(first)};
  caf::anon_send(pool_, OutputWritten{{1, 1, "guessed"}, id, kLines});
  caf::anon_send(pool_, seals_[0].sealed(system_, written));  // which is not the submitter's
  EXPECT_EQ(output_so_far().size(), first);

  caf::anon_send(pool_, submission_.to.sealed(system_, written));
  const std::vector<JobOutput> second = output_so_far();
  ASSERT_GT(second.size(), first + 1);
  EXPECT_LE(second.size(), first + output_window_ / 100 + 2);
  const JobOutput& note = second[first];
  EXPECT_EQ(note.process, -1);
  EXPECT_NE(note.line.find(" lines are left out: they came faster"), std::string::npos)
      << note.line;
  const std::int64_t missing = std::stoll(note.line);

  for (std::int32_t process = 0; process < 4; ++process) exit(id, process, 0);
  EXPECT_FALSE(await_end().failed);
  // Some are missing, once; the last ones are there, in order.
  std::int64_t next = 1000;
  for (const JobOutput& output : output_so_far()) {
    if (output.process < 0) {
      next += missing;
    } else {
      EXPECT_EQ(std::stoll(output.line), next++);
    }
  }
  EXPECT_EQ(next, 1000 + kLines);
}

TEST_F(NodePoolWithLittleMemory, ASubmitterThatAcknowledgesMissesNothing) {
  const std::int64_t id = begin_job();
  for (std::int32_t i = 0; i < 100; ++i) {
    send_by_node(0, RankOutput{{}, id, 0, false, std::to_string(i) + std::string(96, 'x')});
    caf::anon_send(pool_, submission_.to.sealed(system_, OutputWritten{{}, id, i}));
    EXPECT_EQ(output_so_far().size(), static_cast<std::size_t>(i) + 1);
  }
  for (std::int32_t process = 0; process < 4; ++process) exit(id, process, 0);
  EXPECT_FALSE(await_end().failed);
  EXPECT_EQ(output_so_far().size(), 100U);
  // Late, of a job that is over.
  caf::anon_send(pool_, submission_.to.sealed(system_, OutputWritten{{}, id, 100}));
  EXPECT_FALSE(ask<JobAccepted>(job()).refused);
}

TEST_F(NodePoolTest, ClosesOnceItsJobHasStopped) {
  const std::int64_t id = begin_job();
  caf::anon_send(pool_, ClosePool{});
  EXPECT_TRUE(await_signal(0, SIGTERM));
  await_pool();
  EXPECT_EQ(heard_->read([this] { return heard_->closed; }), 0);
  EXPECT_TRUE(ask<JobAccepted>(job()).refused);
  for (std::int32_t process = 0; process < 4; ++process) exit(id, process, 0);
  EXPECT_TRUE(heard_->wait([this] { return heard_->closed == 1 && heard_->gone.size() == 2; }));
  for (const auto& [node, how] : heard_->read([this] { return heard_->gone; }))
    EXPECT_EQ(how, PoolGone::closed) << node;
}

// The first node's process ends after on_closed(): the news must be out by then.
TEST_F(NodePoolTest, ClosesOnlyWhenWhoGaveTheJobHasHeardOfItsEnd) {
  submitter_ = system_.spawn([heard = heard_](SubmitterActor::pointer self) {
    const auto held = std::make_shared<std::optional<caf::typed_response_promise<JobEndHeard>>>();
    return SubmitterActor::behavior_type{
        [held](const JobOutput&) {  // until then it says nothing
          if (*held) (*held)->deliver(JobEndHeard{});
        },
        [held, heard, self](const JobEnded& ended) -> caf::result<JobEndHeard> {
          *held = self->make_response_promise<JobEndHeard>();
          heard->add([&] { heard->ended.push_back(ended); });
          return **held;
        }};
  });
  const std::int64_t id = begin_job();
  caf::anon_send(pool_, ClosePool{});
  for (std::int32_t process = 0; process < 4; ++process) exit(id, process, 0);
  EXPECT_FALSE(await_end().failed);
  await_pool();
  EXPECT_EQ(heard_->read([this] { return heard_->closed; }), 0);
  caf::anon_send(submitter_, JobOutput{});
  EXPECT_TRUE(heard_->wait([this] { return heard_->closed == 1; }));
}

// Only the pool that a node has joined can be lost.
TEST_F(NodePoolTest, ANodeLosesNoPoolButItsOwn) {
  BothSides sides = make_session(kSecret, kSecret);
  const NodeAgentActor node = make_node(Place::here, &sides.caller.from);
  const auto any = caf::actor_cast<caf::actor>(node);
  caf::anon_send(any, caf::down_msg{pool_.address(), caf::exit_reason::kill});
  caf::anon_send(node, JoinedPool{pool_.address()});
  caf::anon_send(any, caf::down_msg{node.address(), caf::exit_reason::kill});
  caf::anon_send(node, SignalRanks{{7, 1, "guessed"}, 1, SIGINT});
  caf::anon_send(node, sides.pool.to.sealed(system_, SignalRanks{{}, 1, SIGUSR1}));
  ASSERT_TRUE(await_signal(0, SIGUSR1));
  EXPECT_EQ(count_signals(), 1U) << "the guess has done nothing";
  EXPECT_TRUE(heard_->read([this] { return heard_->gone.empty(); }));
  caf::anon_send_exit(pool_, caf::exit_reason::kill);
  EXPECT_TRUE(heard_->wait([this] { return heard_->gone.size() == 1; }));
}

// What no process of this job could say changes nothing.
TEST_F(NodePoolTest, IgnoresWhatMakesNoSense) {
  const std::int64_t id = begin_job();
  for (const std::int32_t process : {-1, 4, 2'000'000'000}) exit(id, process, 1);
  exit(id + 1, 0, 1);
  caf::anon_send(pool_, RankExited{{1, 1, "guessed"}, id, 0, 1, 0, ""});
  send_by_node(77, RankOutput{{}, id, 77, false, "x"});
  signal(id, 4711);
  exit(id, 0, 0);
  exit(id, 0, 1);  // twice
  for (std::int32_t process = 1; process < 4; ++process) exit(id, process, 0);
  EXPECT_FALSE(await_end().failed);
  const JobAccepted next = ask<JobAccepted>(job());
  ASSERT_FALSE(next.refused) << next.error.message;
  signal(next.job, SIGUSR1);
  for (int node = 0; node < 2; ++node) EXPECT_TRUE(await_signal(node, SIGUSR1));
  EXPECT_EQ(count_signals(), 2U) << "these two alone";
}

}  // namespace node_pool_test
}  // namespace grapevine
