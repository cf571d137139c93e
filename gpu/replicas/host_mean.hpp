// HostMean: where the replicas of one process put the mean of their gradients.
#pragma once
#include <ATen/core/Tensor.h>

#include <mutex>

#include "gpu/memory/transfers.hpp"

namespace grapevine {

// The mean of a pass in the host's memory, of which each replica of a group downloads a slice, over
// the link of its own device. Thread-safe.
class HostMean {
 public:
  // By replica 0, between the collectives of a pass: no replica uses it then.
  void set(Transfers::HostMemory memory);
  // By each replica, from the first GradientGroup::all_reduce_mean() of a pass on.
  Transfers::HostMemory get() const;
  // What was set, which is then given up. Undefined where nothing was.
  at::Tensor take();

 private:
  mutable std::mutex mutex_;
  Transfers::HostMemory memory_;  // guarded by mutex_
};

}  // namespace grapevine
