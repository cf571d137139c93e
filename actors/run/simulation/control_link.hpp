// The control plane of a run in virtual time: its messages take a while, as between machines.
#pragma once
#include <caf/all.hpp>

#include "messages/time.hpp"

namespace grapevine {

// Stands for `target`: what is sent to it, exit messages as well, arrives there `delay` later and
// in order. Its end is that of the target, as much later. A request that the target does not live
// to see is answered with an error when it would have arrived, as CAF answers it. REQUIRES: a
// virtual clock; one thread.
caf::strong_actor_ptr make_control_link(caf::actor_system& system, caf::strong_actor_ptr target,
                                        Duration delay);

// The same for a typed handle; the handle itself where there is no delay.
template <class Handle>
Handle across_control_link(caf::actor_system& system, const Handle& target, Duration delay) {
  if (delay <= Duration::zero()) return target;
  return caf::actor_cast<Handle>(
      make_control_link(system, caf::actor_cast<caf::strong_actor_ptr>(target), delay));
}

}  // namespace grapevine
