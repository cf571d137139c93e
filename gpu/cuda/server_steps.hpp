// Gradient energy matching (algorithms/parts/server_rules.hpp) on device memory; the contract of
// steps.hpp.
#pragma once
#include <cstddef>

#include "gpu/cuda/arithmetic.hpp"
#include "gpu/cuda/error.hpp"

namespace grapevine::cuda {

// delta <- -lr (gradient + weight_decay s), written over `gradient`; m <- momentum m + delta. The
// bit-identical to the CPU. Memory: 5 passes.
Expected<void> advance_proxy(float* gradient, float* m, const float* s, float lr, float momentum,
                             float weight_decay, std::int64_t n, cudaStream_t stream);

// u <- pi delta (matched() in arithmetic.hpp), bit-identical to the CPU. Memory: 5 passes. u
// overlaps nothing.
Expected<void> match_energy(float* u, const float* delta, const float* m, const float* theta,
                            const float* s, float kappa, std::int64_t n, cudaStream_t stream);

// The same, and in the same pass the energies that the rule weighs against each other:
//   energies[0] <- sum (theta + u - s)^2, how far the centre is from s after the commit
//   energies[1] <- sum (kappa m)^2, how far the rule lets it be
// doubles on the device; terms in float32, summed in double precision in an order that the length
// fixes. REQUIRES: the workspace is aligned to 8 bytes.
std::size_t match_energy_workspace_bytes(std::int64_t n);
Expected<void> match_energy_and_sum(float* u, const float* delta, const float* m,
                                    const float* theta, const float* s, float kappa,
                                    double* energies, void* workspace, std::int64_t n,
                                    cudaStream_t stream);

}  // namespace grapevine::cuda
