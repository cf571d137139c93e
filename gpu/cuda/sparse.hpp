// Sparse vectors on the device: u32 indices, strictly increasing, and a float32 for each; the terms
// of steps.hpp. What algorithms/kernels/sparse_vector.hpp's functions give, bit for bit.
#pragma once
#include <cstddef>
#include <cstdint>

#include "gpu/cuda/error.hpp"

namespace grapevine::cuda {

// x += factor * entries. No atomics: no index comes twice. REQUIRES: all indices below x's size.
Expected<void> add_entries(float* x, const std::uint32_t* indices, const float* values,
                           float factor, std::int64_t n, cudaStream_t stream);

// A vector that is read, and one that is written: room for both sizes together.
struct SparseInput {
  const std::uint32_t* indices;
  const float* values;
  std::int64_t size;
};
struct SparseOutput {
  std::uint32_t* indices;
  float* values;
  std::uint32_t* size;  // on the device
};

// sum <- a + b: the values of common indices are added, even to zero. `sum` overlaps neither.
// REQUIRES: a.size + b.size < 2^31; a workspace, aligned to 16 bytes, of that many bytes.
// Memory: reads both (and log2 of the other's indices for each), writes and reads both merged,
// writes the sum.
Expected<std::size_t> merge_workspace_bytes(std::int64_t a_size, std::int64_t b_size);
Expected<void> merge(const SparseOutput& sum, const SparseInput& a, const SparseInput& b,
                     void* workspace, cudaStream_t stream);

}  // namespace grapevine::cuda
