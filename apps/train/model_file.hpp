// model.pt: the model that training ends with.
#pragma once
#include "apps/train/train_job.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// Writes result.z with its buffers. REQUIRES: result.z is defined. Errors (io): the file.
Expected<void> save_model(const TrainJob& job, const RunResult& result);

}  // namespace grapevine
