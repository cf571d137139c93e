// Sparse vectors on the device: u32 indices, strictly increasing, and a float32 for each; the terms
// of steps.hpp. What algorithms/kernels/sparse_vector.hpp's functions give, bit for bit.
#pragma once
#include <cstdint>

#include "gpu/cuda/error.hpp"

namespace grapevine::cuda {

// x += factor * entries. No atomics: no index comes twice. REQUIRES: all indices below x's size.
Expected<void> add_entries(float* x, const std::uint32_t* indices, const float* values,
                           float factor, std::int64_t n, cudaStream_t stream);

}  // namespace grapevine::cuda
