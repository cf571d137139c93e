// Gradient energy matching (algorithms/parts/server_rules.hpp) on device memory; the contract of
// steps.hpp.
#pragma once
#include <cstdint>

#include "gpu/cuda/arithmetic.hpp"
#include "gpu/cuda/error.hpp"

namespace grapevine::cuda {

// delta <- -lr (gradient + weight_decay s), written over `gradient`; m <- momentum m + delta.
// Bit-identical to the CPU. Memory: 5 passes.
Expected<void> advance_proxy(float* gradient, float* m, const float* s, float lr, float momentum,
                             float weight_decay, std::int64_t n, cudaStream_t stream);

// u <- pi delta (matched() in arithmetic.hpp), bit-identical to the CPU. Memory: 5 passes. u
// overlaps nothing.
Expected<void> match_energy(float* u, const float* delta, const float* m, const float* theta,
                            const float* s, float kappa, std::int64_t n, cudaStream_t stream);

}  // namespace grapevine::cuda
