// The time by the clock of an actor system: real, or virtual in a simulation.
#pragma once
#include <caf/actor_clock.hpp>

#include <chrono>

#include "messages/time.hpp"

namespace grapevine {

// Since the clock's own zero. Any thread.
inline Timestamp clock_time(const caf::actor_clock& clock) {
  return std::chrono::duration_cast<Timestamp>(clock.now().time_since_epoch());
}

}  // namespace grapevine
