// ReplicaLaunch: a collective's launches, one by each replica, with nothing in between.
#pragma once
#include <cstddef>
#include <functional>

#include "gpu/replicas/launch_gate.hpp"
#include "gpu/replicas/replica_barrier.hpp"
#include "messages/expected.hpp"
#include "messages/time.hpp"

namespace grapevine {

// Thread-safe: each replica calls run() on a thread of its own.
class ReplicaLaunch {
 public:
  ReplicaLaunch(std::size_t replicas, LaunchGate& gate) : barrier_(replicas), gate_(gate) {}

  // Returns when all replicas have called `launch`: all are here before one begins, the gate is
  // closed from the first launch to the last, and all have launched before one continues. Errors:
  // that of `launch`; timeout where a replica does not arrive or the gate does not close within
  // `timeout`; peer_down where another replica failed. Each ends this for all, and for good.
  Expected<void> run(std::size_t replica, Duration timeout,
                     const std::function<Expected<void>()>& launch);

  // Replicas that wait return with an error. Idempotent.
  void end() { barrier_.end(); }

 private:
  Expected<void> launch_together(Duration timeout, const std::function<Expected<void>()>& launch);

  ReplicaBarrier barrier_;
  LaunchGate& gate_;
};

}  // namespace grapevine
