// The processes of a worker in a job: how they join, and what a member does.
#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <string>

#include "apps/train/replicas/replica_memory.hpp"
#include "apps/train/replicas/worker_members.hpp"
#include "gpu/replicas/gradient_group.hpp"
#include "messages/expected.hpp"

namespace grapevine {

struct TrainJob;

// This process, as link_replicas() needs it.
struct LinkedReplica {
  std::string rank;  // "rank 0", for lines
  ReplicaShape shape;
  at::Device device;
  std::string shared;  // why others may use the device as well; empty: they do not
  ReplicaLimits limits;
};

// With several processes for a worker: the lead listens until its members have joined
// (job.members); a member joins its lead (job.lead). Both for --join-timeout at most. Then all join
// a group, where each has a GPU of its own and NCCL; else null is returned, and the lead sums. A
// line in the lead's log says which and why. REQUIRES: job.parameters. Errors: timeout: a process
// did not join; peer_down: one was lost; bad_input: the processes do not fit together; io; NCCL's.
Expected<std::shared_ptr<GradientGroup>> link_replicas(TrainJob& job, const LinkedReplica& replica);

// Of a member, after link_replicas(): see serve_lead().
Expected<void> serve_lead_of(TrainJob& job, const std::function<bool()>& stop_requested);

}  // namespace grapevine
