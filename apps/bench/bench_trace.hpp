// `grapevine bench trace`: what a message trace costs to record, to write and to read.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

struct TraceBenchOptions {
  std::vector<std::int64_t> bytes;  // of a file, >= 1 each
  std::int64_t iterations = 20;
  bool json = false;
};

// Prints a line for each size and operation: `record` (a rank notes its events), `encode` (the
// tracer makes frames of them), `write` (frames to a file, synced at its end) and `read` (all
// records, merged in causal order). The size is that of the file, to within the last batch of
// records. Its folder is a new one in $TMPDIR. Errors (io): the file cannot be written or read.
Expected<void> run_trace_bench(const TraceBenchOptions& options, std::ostream& out);

}  // namespace grapevine
