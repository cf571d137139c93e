// Orders that reach the Supervisor from other processes before its run begins, over real
// connections: those of a process of the run count once it begins, those of others never.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/rendezvous.hpp"
#include "actors/run/supervisor.hpp"
#include "tests/actors/cluster/published_supervisor.hpp"
#include "tests/log_lines.hpp"

namespace grapevine {
namespace early_orders_of_others_test {

constexpr auto kDeadline = std::chrono::seconds(60);  // only a hang reaches it
constexpr int kFlood = 100;                           // more orders than wait

class Ending : public RunObserver {
 public:
  void on_step(const StepReport&) override { ++steps; }
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string&) override {}
  void on_end(RunResult result) override { end.set_value(std::move(result)); }

  std::promise<RunResult> end;
  std::atomic<int> steps{0};
};

// One process beside that of the supervisor.
struct Process {
  Process() { configure_for_cluster(config, std::chrono::seconds(10)); }
  void start() { system = std::make_unique<caf::actor_system>(config); }
  // Each order has a sender of its own.
  void flood() const {
    for (int i = 0; i < kFlood; ++i) {
      caf::scoped_actor self{*system};
      self->send(supervisor, StopRequested{});
      self->send(supervisor, RankFailed{{Errc::failed, "an order of another program"}});
      self->send(supervisor, CheckpointRequested{});
    }
  }

  caf::actor_system_config config;
  std::unique_ptr<caf::actor_system> system;
  SupervisorActor supervisor;
};

// The agent of a process of the run. It passes an order of the test on, and answers then.
caf::behavior agent_of_run(caf::event_based_actor* self, SupervisorActor supervisor) {
  return {[=](const RankFailed& order) {
            self->send(supervisor, order);
            return caf::ok_atom::value;
          },
          [=](const RunEnded&) { self->send(supervisor, ProcessClosed{1}); }};
}

caf::behavior rank_of_run(caf::event_based_actor* self, Rank rank, SupervisorActor supervisor) {
  return {[](StartTraining) {},
          [=](Collect collect) {
            RankReport report;
            report.rank = rank;
            report.step = 1;
            if (collect.with_model) report.z = FrozenTensor::freeze(at::ones({4}));
            self->send(supervisor, std::move(report));
          }};
}

class EarlyOrdersOfOthers : public testing::Test {
 protected:
  EarlyOrdersOfOthers() {
    for (Process* process : {&hostile_, &member_}) {
      process->start();
      process->supervisor = supervisor_.found_by(*process->system);
    }
  }
  ~EarlyOrdersOfOthers() override {
    for (const caf::actor& actor : actors_) caf::anon_send_exit(actor, caf::exit_reason::kill);
    actors_.clear();
    hostile_.supervisor = member_.supervisor = SupervisorActor{};
  }

  // An actor of that process, as the supervisor's process knows it.
  caf::actor known_here(const caf::actor& actor) {
    const auto port = member_.system->middleman().publish(actor, 0, "127.0.0.1");
    EXPECT_TRUE(port);
    auto found =
        supervisor_.system().middleman().remote_actor("127.0.0.1", port ? *port : std::uint16_t{0});
    EXPECT_TRUE(found);
    return found ? *found : caf::actor{};
  }

  // The run begins, and its ranks have nothing to do but to give their last states.
  void begin(BeginRun crew) {
    for (Rank rank = 0; rank < PublishedSupervisor::kRanks; ++rank) {
      actors_.push_back(supervisor_.system().spawn(rank_of_run, rank, supervisor_.actor()));
      crew.peers.push_back(caf::actor_cast<PeerActor>(actors_.back()));
    }
    caf::anon_send(supervisor_.actor(), crew);
    supervisor_.finish_ranks();
  }
  RunResult end() {
    auto end = observer_->end.get_future();
    if (end.wait_for(kDeadline) == std::future_status::ready) return end.get();
    ADD_FAILURE() << "the run does not end: " << log_.text();
    return {};
  }
  // Until the supervisor has what that process has sent: messages of a connection keep their order.
  void await_orders_of(const Process& process) {
    const int before = observer_->steps;
    const auto deadline = std::chrono::steady_clock::now() + kDeadline;
    caf::anon_send(caf::actor_cast<caf::actor>(process.supervisor), StepReport{});
    while (observer_->steps == before && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_GT(observer_->steps, before) << "the supervisor does not answer";
  }

  const LogLines log_;  // outlives the actors
  std::shared_ptr<Ending> observer_ = std::make_shared<Ending>();
  PublishedSupervisor supervisor_{observer_};
  Process hostile_, member_;
  std::vector<caf::actor> actors_;
};

TEST_F(EarlyOrdersOfOthers, OfAHostileProcessAreIgnored) {
  hostile_.flood();
  await_orders_of(hostile_);
  begin({});
  const RunResult result = end();
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_FALSE(result.interrupted);
}

TEST_F(EarlyOrdersOfOthers, OfAProcessOfTheRunAreObeyedOnceItBegins) {
  hostile_.flood();
  await_orders_of(hostile_);
  const caf::actor agent = member_.system->spawn(agent_of_run, member_.supervisor);
  actors_.push_back(agent);
  BeginRun crew;
  crew.agents.push_back(caf::actor_cast<ProcessAgentActor>(known_here(agent)));
  caf::scoped_actor self{*member_.system};
  self->request(agent, kDeadline,
                RankFailed{{Errc::failed, "an early failure of a process of the run"}})
      .receive([](caf::ok_atom) {}, [](const caf::error&) { ADD_FAILURE() << "no agent"; });
  await_orders_of(member_);
  begin(std::move(crew));
  const RunResult result = end();
  ASSERT_TRUE(result.error) << "the order was lost";
  EXPECT_NE(result.error->message.find("an early failure of a process of the run"),
            std::string::npos)
      << result.error->message;
}

}  // namespace early_orders_of_others_test
}  // namespace grapevine
