// The computes of the workers of a process: models on devices.
#pragma once
#include "apps/train/train_job.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// Gives the workers of this process, and the head's evaluator, a Compute each; sets
// job.parameters. REQUIRES: the job's options, ranks, data and model. Errors: the device's, the
// model's, the data's.
Expected<void> make_computes(TrainJob& job);

// Whether --peers is one of "host", "device" and "auto". Errors (bad_input): it is not.
Expected<void> check_peers(const std::string& asked);
// Whether --bind-threads is "near" or "none". Errors (bad_input): it is not.
Expected<void> check_bind_threads(const std::string& asked);

}  // namespace grapevine
