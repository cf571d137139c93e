// The bytes that a run had sent by each time: the x axis `bytes`.
#pragma once
#include <filesystem>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

// `time_s` as in metrics.csv: seconds of training, those before a resume included.
struct BytesAt {
  double time_s = 0;
  double bytes = 0;  // payload and headers that all ranks have handed to transports until then
};

// From the trace of the run; both numbers ascend, and at least one entry is there. Errors
// (bad_input): the run has no trace, or this build does not read it.
Expected<std::vector<BytesAt>> bytes_over_time(const std::filesystem::path& run_folder);

}  // namespace grapevine
