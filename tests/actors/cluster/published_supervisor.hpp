// A Supervisor of a run of two ranks, with a model of four parameters, that other processes reach
// over real connections, as those of a cluster do.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/dial.hpp"
#include "actors/cluster/rendezvous.hpp"
#include "actors/run/supervisor.hpp"

namespace grapevine {

// It ends the Supervisor with itself, and waits for all actors of its system then: those that a
// test has spawned in it have to be told to exit before.
class PublishedSupervisor {
 public:
  static constexpr Rank kRanks = 2;

  explicit PublishedSupervisor(std::shared_ptr<RunObserver> observer) {
    configure_for_cluster(config_, std::chrono::seconds(10));
    system_ = std::make_unique<caf::actor_system>(config_);
    SupervisorConfig config;
    config.ranks = kRanks;
    config.parameters = 4;
    config.buffers = 0;
    config.observer = std::move(observer);
    actor_ = system_->spawn(supervisor, config);
    const auto port = system_->middleman().publish(actor_, 0, "127.0.0.1");
    EXPECT_TRUE(port);
    if (port) port_ = *port;
  }
  ~PublishedSupervisor() { caf::anon_send_exit(actor_, caf::exit_reason::kill); }
  PublishedSupervisor(const PublishedSupervisor&) = delete;
  PublishedSupervisor& operator=(const PublishedSupervisor&) = delete;

  caf::actor_system& system() const { return *system_; }
  const SupervisorActor& actor() const { return actor_; }

  // As another process finds it; null, and a failure of the test, if it does not.
  SupervisorActor found_by(caf::actor_system& process) const {
    const auto found = dial<SupervisorActor>(
        process, {"the supervisor", "127.0.0.1", port_, std::chrono::seconds(30), nullptr});
    EXPECT_TRUE(found.ok());
    return found ? *found : SupervisorActor{};
  }

  // Each rank takes one step and ends its training.
  void finish_ranks() const {
    for (Rank rank = 0; rank < kRanks; ++rank) {
      StepReport step;
      step.rank = rank;
      caf::anon_send(actor_, step);
      caf::anon_send(actor_, RankFinished{rank});
    }
  }

 private:
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  SupervisorActor actor_;
  std::uint16_t port_ = 0;
};

}  // namespace grapevine
