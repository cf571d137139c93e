// The processes of a worker in a job: how they join, and what a member does.
#pragma once
#include <functional>

#include "messages/expected.hpp"

namespace grapevine {

struct TrainJob;

// With several processes for a worker: the lead listens until its members have joined
// (job.members); a member joins its lead (job.lead). Both for --join-timeout at most. With one it
// does nothing. REQUIRES: the job's computes and identity. Errors: timeout: a process did not come;
// bad_input: the processes do not fit together; io.
Expected<void> link_replicas(TrainJob& job);

// Of a member, after link_replicas(): see serve_lead().
Expected<void> serve_lead_of(TrainJob& job, const std::function<bool()>& stop_requested);

}  // namespace grapevine
