// GradientGroup: collectives of a worker's devices: parameters from slices or from the first one,
// the mean of gradients.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "messages/expected.hpp"
#include "messages/time.hpp"

namespace grapevine {

// Replicas are numbered in the order of the devices that the group was made for.
class GradientGroup {
 public:
  virtual ~GradientGroup() = default;

  // Called by each replica once for every pass, before the model is computed and so before
  // all_reduce_mean(), on a thread of its own and in the stream that reads `flat` (flat float32 of
  // replicas * n elements, on the replica's device). It has the replica's slice, the elements
  // [replica * n, (replica + 1) * n); behind what is in the stream it becomes all slices,
  // bit-identical on all. May return before that is done, but not before all replicas of
  // this process have called it. Errors: those of all_reduce_mean().
  virtual Expected<void> all_gather(std::size_t replica, at::Tensor& flat) = 0;

  // Called by each replica where z of a pass is on the device of replica 0, before the model is
  // computed, as all_gather() is, for the same vectors in the same order by all (flat float32, on
  // the replica's device): behind what is in the stream, `flat` becomes that of replica 0, which
  // only reads its own. Errors: those of all_reduce_mean().
  virtual Expected<void> broadcast(std::size_t replica, const at::Tensor& flat) = 0;

  // Called by each replica for every bucket of its gradient in a pass, in the same order and of the
  // same sizes by all, one after the other, on a thread of its own and in a stream behind what has
  // computed `bucket` (flat float32, on the replica's device): behind what is there, `bucket`
  // becomes the mean over all replicas, bit-identical on all. May return before that is done, but
  // not before all replicas of this process have called it. Errors: a replica did not arrive in
  // time, or the group was aborted; it is of no use then.
  virtual Expected<void> all_reduce_mean(std::size_t replica, at::Tensor& bucket) = 0;

  // After an error: which replica's process is lost, as a line; empty: none that is known. The
  // errors of the other replicas follow from it, and may come first. Any thread.
  virtual std::string lost_replica() const { return {}; }

  // Ends the group, and the waits of its replicas, on the devices as well. Any thread. Idempotent.
  virtual void abort() = 0;
};

struct GroupChoice {
  bool nccl = false;
  std::string why;  // one line for the log: what was chosen and what decided it
};

// Whether gradients of a worker's `devices` are summed by NCCL or in the host's memory. NCCL takes
// one replica for each GPU, and no other worker may use the GPUs: collectives of two groups that
// reach two GPUs in different orders wait for each other for ever. `shared`: why others may use
// them as well, as a clause for the line; empty: they do not. `built_in`: whether this build has
// NCCL. Pure.
GroupChoice choose_group(const std::vector<at::Device>& devices, const std::string& shared,
                         bool built_in);

// The group of `devices`, or null where gradients are summed in the host's memory; a line in the
// log, in the name of `worker`, says which and why: a warning where there are GPUs. `timeout`:
// longest wait for a replica. Errors: NCCL's.
Expected<std::shared_ptr<GradientGroup>> open_group(const std::string& worker,
                                                    const std::vector<at::Device>& devices,
                                                    const std::string& shared, Duration timeout);

}  // namespace grapevine
