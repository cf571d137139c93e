// VirtualWorld: the surroundings of a run in virtual time, and what it counts.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "messages/time.hpp"
#include "net/sim/sim_transport.hpp"

namespace grapevine {

struct VirtualWorld {
  // The transport of the run, whose time the runtime moves. Null: another one, which takes no time.
  std::shared_ptr<SimTransport> network;
  Duration control_delay{0};  // of each message between a rank and the supervisor
  // Asked now and then; true stops the run with a checkpoint. Null: never.
  std::function<bool()> stop_requested;
  // The time, in virtual seconds since the start, at which a run that has not ended fails. 0: none.
  Duration deadline{0};

  // Results.
  std::uint64_t events = 0;  // messages that actors handled, and events of the network
  Timestamp now{0};          // since the start
};

}  // namespace grapevine
