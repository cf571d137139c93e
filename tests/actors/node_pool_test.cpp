// The nodes of a pool and their job, with stand-ins for nodes, processes and who gives the job.
#include "actors/node_pool.hpp"

#include <gtest/gtest.h>

#include <caf/all.hpp>

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <numeric>
#include <random>

#include "actors/node_agent.hpp"

namespace grapevine {
namespace {

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

TEST(NodeSecret, OnlyEqualOnesAreEqual) {
  EXPECT_TRUE(same_secret("", ""));
  EXPECT_TRUE(same_secret("abc", "abc"));
  for (const std::string other : {"", "a", "ab", "abd", "abcabc", "abcd", "Abc"})
    EXPECT_FALSE(same_secret("abc", other)) << other;
  EXPECT_FALSE(same_secret("", "abc"));
}

// ---- the pool ----

// What the actors of a test have heard, for its own thread.
struct Heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::pair<int, StartRanks>> started;    // by node
  std::vector<std::pair<int, std::int32_t>> signals;  // node, number
  std::vector<JobOutput> output;
  std::vector<JobEnded> ended;
  std::vector<PoolStatus> statuses;
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
};

class NodePoolTest : public testing::Test {
 protected:
  void SetUp() override {
    NodePoolConfig config;
    config.secret = kSecret;
    config.version = "1";
    config.directory = "/there";
    config.grace = grace_;
    config.free_port = [] { return Expected<std::uint16_t>(std::uint16_t{4711}); };
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

  NodeAgentActor make_node() {
    const int number = static_cast<int>(nodes_.size());
    NodeAgentConfig config;
    config.secret = kSecret;
    config.hooks.start = [heard = heard_, number](StartRanks start) {
      heard->add([&] { heard->started.emplace_back(number, start); });
    };
    config.hooks.signal = [heard = heard_, number](SignalRanks signal) {
      heard->add([&] { heard->signals.emplace_back(number, signal.number); });
    };
    config.hooks.pool_gone = [heard = heard_](bool) { heard->add([&] { ++heard->closed; }); };
    nodes_.push_back(system_.spawn(node_agent, config));
    return nodes_.back();
  }

  static std::string address_of(std::size_t node) {
    return "10.0.0." + std::to_string(node) + ":7";
  }

  Enlist enlistment(std::int32_t slots) {
    Enlist enlist;
    enlist.secret = kSecret;
    enlist.version = "1";
    enlist.host = "host";
    enlist.address = address_of(nodes_.size());
    enlist.slots = slots;
    enlist.agent = make_node();
    return enlist;
  }

  SubmitJob job(std::int32_t processes = 0) {
    if (!submitter_) {
      auto behavior = [heard = heard_](SubmitterActor::pointer) -> SubmitterActor::behavior_type {
        return {
            [heard](const JobOutput& output) {
              heard->add([&] { heard->output.push_back(output); });
            },
            [heard](const JobEnded& ended) { heard->add([&] { heard->ended.push_back(ended); }); }};
      };
      submitter_ = system_.spawn(behavior);
    }
    SubmitJob submit;
    submit.secret = kSecret;
    submit.version = "1";
    submit.user = "somebody@somewhere";
    submit.arguments = {"--steps=1"};
    submit.processes = processes;
    submit.submitter = submitter_;
    return submit;
  }

  template <class Answer, class Question>
  Answer ask(Question question) {
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
    caf::anon_send(pool_, RankExited{kSecret, job, process, code, signal, error});
  }
  JobEnded await_end() {
    EXPECT_TRUE(heard_->wait([this] { return !heard_->ended.empty(); }));
    return heard_->ended.empty() ? JobEnded{} : heard_->ended.back();
  }
  bool await_signal(int node, std::int32_t number) {
    return heard_->wait([&] {
      return std::find(heard_->signals.begin(), heard_->signals.end(),
                       std::make_pair(node, number)) != heard_->signals.end();
    });
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
  caf::actor_system_config config_;
  caf::actor_system system_{config_};
  std::shared_ptr<Heard> heard_ = std::make_shared<Heard>();
  NodePoolActor pool_;
  std::vector<NodeAgentActor> nodes_;
  SubmitterActor submitter_;
};

class NodePoolWithoutPatience : public NodePoolTest {
 protected:
  NodePoolWithoutPatience() { grace_ = std::chrono::milliseconds(1); }
};

TEST_F(NodePoolTest, RunsAJobInAllSlotsToItsEnd) {
  const std::int64_t id = begin_job();
  for (const auto& [node, start] : heard_->started) {
    EXPECT_EQ(start.first, 2 * node);
    EXPECT_EQ(start.count, 2);
    EXPECT_EQ(start.processes, 4);
    EXPECT_EQ(start.port, 4711);
    EXPECT_EQ(start.arguments, std::vector<std::string>{"--steps=1"});
    EXPECT_EQ(start.other_host, "10.0.0.1");
  }
  caf::anon_send(pool_, RankOutput{kSecret, id, 0, false, "result"});
  for (std::int32_t process = 0; process < 4; ++process) {
    EXPECT_TRUE(heard_->ended.empty());
    exit(id, process, 0);
  }
  EXPECT_FALSE(await_end().failed);
  ASSERT_EQ(heard_->output.size(), 1U);
  EXPECT_EQ(heard_->output[0].line, "result");
  ASSERT_TRUE(heard_->wait([this] { return heard_->statuses.back().job == 0; }));
  EXPECT_EQ(heard_->statuses.back().nodes, 2);
  EXPECT_EQ(heard_->statuses.back().slots, 4);
  EXPECT_FALSE(ask<JobAccepted>(job(3)).refused) << "the pool is free for another job";
}

TEST_F(NodePoolTest, SendsAwayWhoDoesNotBelongToIt) {
  Enlist stranger = enlistment(1);
  stranger.secret = "guessed";
  EXPECT_NE(ask<Enlisted>(stranger).error.message.find("the secret differs"), std::string::npos);
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
  without.secret.clear();
  EXPECT_NE(ask<JobAccepted>(without).error.message.find("the secret differs"), std::string::npos);
  SubmitJob newer = job();
  newer.version = "2";
  EXPECT_NE(ask<JobAccepted>(newer).error.message.find("runs version 2"), std::string::npos);
  EXPECT_NE(ask<JobAccepted>(job(9)).error.message.find("--processes 9: the nodes have 1 slot"),
            std::string::npos);
  EXPECT_TRUE(heard_->started.empty());
}

TEST_F(NodePoolTest, RefusesASecondJobWhileOneRuns) {
  begin_job();
  const JobAccepted second = ask<JobAccepted>(job());
  ASSERT_TRUE(second.refused);
  EXPECT_NE(second.error.message.find("busy with job 1 of somebody@somewhere"), std::string::npos);
  EXPECT_EQ(heard_->started.size(), 2U);
}

TEST_F(NodePoolTest, OneFailedProcessEndsTheOthersAndIsNamed) {
  const std::int64_t id = begin_job();
  caf::anon_send(pool_, RankOutput{kSecret, id, 3, true, "error: no such file: /data"});
  exit(id, 3, 2);
  EXPECT_TRUE(await_signal(0, SIGTERM));
  EXPECT_TRUE(await_signal(1, SIGTERM));
  exit(id, 0, 1);            // it has lost a peer
  exit(id, 1, -1, SIGTERM);  // it had not come far
  exit(id, 2, 1);
  const JobEnded ended = await_end();
  EXPECT_TRUE(ended.failed);
  EXPECT_EQ(ended.error.code, Errc::bad_input);
  EXPECT_EQ(ended.error.message, "rank 3 on node 10.0.0.1:7: no such file: /data");
}

// Those who lost a peer may end before the one that was killed is known to have died.
TEST_F(NodePoolTest, WhatKilledCountsMoreThanWhoLostAPeer) {
  const std::int64_t id = begin_job();
  exit(id, 0, 1);
  exit(id, 2, -1, SIGKILL);
  exit(id, 1, 1);
  exit(id, 3, 1);
  // By then everybody had been asked to end: SIGKILL is the pool's own, as far as it can know.
  EXPECT_TRUE(await_end().failed);
  heard_->add([this] { heard_->ended.clear(); });
  const JobAccepted again = ask<JobAccepted>(job());
  ASSERT_FALSE(again.refused);
  exit(again.job, 2, -1, SIGSEGV);
  for (const std::int32_t process : {0, 1, 3}) exit(again.job, process, 1);
  const JobEnded ended = await_end();
  EXPECT_EQ(ended.error.message, "rank 2 on node 10.0.0.1:7 was killed by signal 11 (SIGSEGV)");
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
  ASSERT_TRUE(heard_->wait([this] { return heard_->statuses.back().job == 0; }));
  EXPECT_EQ(heard_->statuses.back().nodes, 1);
}

TEST_F(NodePoolTest, ANodeThatDiesWhileIdleIsDropped) {
  for (int node = 0; node < 2; ++node) ask<Enlisted>(enlistment(2));
  caf::anon_send_exit(nodes_[1], caf::exit_reason::kill);
  ASSERT_TRUE(heard_->wait([this] { return heard_->statuses.back().nodes == 1; }));
  EXPECT_EQ(ask<JobAccepted>(job()).processes, 2);
}

TEST_F(NodePoolTest, TheJobStopsWhereItsSubmitterOrANodeGoes) {
  const std::int64_t id = begin_job();
  LeavePool leave{kSecret, nodes_[1]};
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
  caf::anon_send(pool_, SignalJob{"guessed", id, SIGINT});
  caf::anon_send(pool_, SignalJob{kSecret, id, SIGUSR1});
  EXPECT_TRUE(await_signal(1, SIGUSR1));
  EXPECT_EQ(heard_->signals.size(), 2U) << "the guess has done nothing";
  caf::anon_send(pool_, SignalJob{kSecret, id, SIGINT});
  EXPECT_TRUE(await_signal(1, SIGTERM));
  caf::anon_send(pool_, SignalJob{kSecret, id, SIGINT});
  EXPECT_TRUE(await_signal(1, SIGKILL));
}

TEST_F(NodePoolWithoutPatience, KillsWhoDoesNotEndInTime) {
  const std::int64_t id = begin_job();
  caf::anon_send(pool_, SignalJob{kSecret, id, SIGTERM});
  EXPECT_TRUE(await_signal(0, SIGKILL));
  for (std::int32_t process = 0; process < 4; ++process) exit(id, process, -1, SIGKILL);
  EXPECT_TRUE(await_end().failed);
}

TEST_F(NodePoolTest, ClosesOnceItsJobHasStopped) {
  const std::int64_t id = begin_job();
  caf::anon_send(pool_, ClosePool{});
  EXPECT_TRUE(await_signal(0, SIGTERM));
  EXPECT_EQ(heard_->closed, 0);
  EXPECT_TRUE(ask<JobAccepted>(job()).refused);
  for (std::int32_t process = 0; process < 4; ++process) exit(id, process, 0);
  EXPECT_TRUE(heard_->wait([this] { return heard_->closed == 3; })) << "itself and two nodes";
}

// What no process of this job could say changes nothing.
TEST_F(NodePoolTest, IgnoresWhatMakesNoSense) {
  const std::int64_t id = begin_job();
  for (const std::int32_t process : {-1, 4, 2'000'000'000}) exit(id, process, 1);
  exit(id + 1, 0, 1);
  caf::anon_send(pool_, RankExited{"guessed", id, 0, 1, 0, ""});
  caf::anon_send(pool_, RankOutput{kSecret, id, 77, false, "x"});
  caf::anon_send(pool_, SignalJob{kSecret, id, 4711});
  exit(id, 0, 0);
  exit(id, 0, 1);  // twice
  for (std::int32_t process = 1; process < 4; ++process) exit(id, process, 0);
  EXPECT_FALSE(await_end().failed);
  EXPECT_TRUE(heard_->signals.empty());
}

}  // namespace
}  // namespace grapevine
