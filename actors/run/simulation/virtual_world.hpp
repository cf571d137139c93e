// VirtualWorld: the surroundings of a run in virtual time, and what it counts.
#pragma once
#include <cstddef>
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
  // Chooses which of several actors, the one that has been ready longest first, handles its next
  // message; asked where more than one is ready. Null: the first.
  std::function<std::size_t(std::size_t ready)> next_actor;
  // Asked now and then; true stops the run with a checkpoint. Null: never.
  std::function<bool()> stop_requested;
  // The time, in virtual seconds since the start, at which a run that has not ended fails. 0: none.
  Duration deadline{0};

  // Results.
  std::uint64_t events = 0;  // messages that actors handled, and events of the network
  Timestamp now{0};          // since the start
};

}  // namespace grapevine
