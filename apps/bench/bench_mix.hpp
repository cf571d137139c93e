// `grapevine bench mix`: the arithmetic of a step on models, beside memcpy and torch's own.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

struct MixBenchOptions {
  std::vector<std::int64_t> bytes;  // of a float32 model, >= 4 each
  std::int64_t iterations = 20;
  bool json = false;
};

// Prints a line for each size and operation: `memcpy`, `fold` (a share into a model), `meet` (the
// passive half of an average of two), `debias` (x / w), `sgd-step` (the fused step with momentum),
// `torch-sgd` (the same step by torch's operators), and `push-sum-step` (what a step of `sgp` with
// one peer does: the fused step, a fold, x / w). All use one thread. Errors (failed): the fused
// step's result differs from torch's.
Expected<void> run_mix_bench(const MixBenchOptions& options, std::ostream& out);

}  // namespace grapevine
