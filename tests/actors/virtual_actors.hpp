// Actors on one thread and in virtual time; the test is one of them.
#pragma once
#include <gtest/gtest.h>

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <chrono>

namespace grapevine {

class VirtualActors : public testing::Test {
 protected:
  // Until nobody has anything left to do now.
  void settle() { scheduler_.run(); }

  void pass(int seconds) {
    settle();
    for (int i = 0; i < seconds; ++i) {
      scheduler_.advance_time(std::chrono::seconds(1));
      settle();
    }
  }

  // The test in the place of such an actor.
  template <class Handle>
  Handle played() {
    return caf::actor_cast<Handle>(caf::actor_cast<caf::strong_actor_ptr>(self_.ptr()));
  }

  // Before the system ends: timers hold the actor, and the actor the system.
  template <class Handle>
  void kill(const Handle& actor) {
    self_->send_exit(actor, caf::exit_reason::kill);
    settle();
  }

  struct VirtualTime : caf::actor_system_config {
    VirtualTime() { set("scheduler.policy", caf::atom("testing")); }
  };

  VirtualTime system_config_;
  caf::actor_system system_{system_config_};
  caf::scheduler::test_coordinator& scheduler_ =
      dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler());
  caf::scoped_actor self_{system_};
};

}  // namespace grapevine
