// The trace of a training run: its options, and its place.
#pragma once
#include <string>

#include "apps/train/train_job.hpp"

namespace grapevine {

// Errors (bad_input): --trace, --trace-limit or --trace-sample.
Expected<void> check_trace_options(const TrainOptions& options);

// What the trace of this process says of it. REQUIRES: job.launched is set where there is one.
void describe_trace(TrainJob& job);

// Sets the folder of a process's trace, which it makes, and its part: a resumed run adds a file to
// those of the runs before it. Errors (bad_input): the folder cannot be written to.
Expected<void> place_trace(const std::string& out, bool resumed, TraceSettings& trace);

}  // namespace grapevine
