// `grapevine trace RUN --perfetto FILE`: a run for the eyes, in a timeline viewer.
#pragma once
#include <cstdint>
#include <string>

#include "messages/expected.hpp"
#include "messages/trace/merged_trace.hpp"

namespace grapevine {

// A .json file of more records has hundreds of megabytes, which no viewer of that format loads.
inline constexpr std::uint64_t kMostChromeRecords = 500'000;

// Errors (bad_input): neither .pftrace nor .json. For the check of a command line.
Expected<void> check_perfetto_path(const std::string& path);

// Writes the whole trace: .pftrace as Perfetto's protobuf trace, .json in Chrome's trace event
// format. Reads the trace from its beginning, twice (see MessageFlows), and leaves it at its
// beginning. The file appears when it is whole. Errors: bad_input as above, and more than
// kMostChromeRecords for .json; io: the file cannot be written.
Expected<void> export_perfetto(MergedTrace& trace, const std::string& path);

}  // namespace grapevine
