// `grapevine bench sparse`: selection and merging of sparse vectors, beside torch::topk.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

struct SparseBenchOptions {
  std::vector<std::int64_t> bytes;  // of dense float32 vectors, >= 4 each
  std::vector<double> densities;    // each in (0, 1]
  std::int64_t iterations = 20;
  bool json = false;
};

// Prints a line for each size, density and operation: `select` (the k largest, exactly),
// `select-sampled` (about k), `torch-topk` (the same vector's magnitudes, made beforehand,
// unsorted) and `merge` (two lists of k into the k largest of their sum). The operations of an
// iteration follow each other, so that all see the same machine. Errors (failed): a selection that
// differs from torch's.
Expected<void> run_sparse_bench(const SparseBenchOptions& options, std::ostream& out);

}  // namespace grapevine
