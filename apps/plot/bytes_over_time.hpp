// The bytes that a run had sent by each time: the x axis `bytes`.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

// `time_s` as in metrics.csv: seconds of training, those before a resume included.
struct BytesAt {
  double time_s = 0;
  double bytes = 0;  // payload and headers that all ranks have handed to transports until then
};

struct BytesOverTime {
  std::vector<BytesAt> points;       // both numbers ascend, and at least one entry is there
  std::vector<std::string> missing;  // what the trace does not tell, a sentence each
};

// From the trace of the run. Errors (bad_input): the run has no trace, this build does not read it,
// or it has the messages of some steps only.
Expected<BytesOverTime> bytes_over_time(const std::filesystem::path& run_folder);

}  // namespace grapevine
