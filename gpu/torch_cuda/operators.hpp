// The kernels of gpu/cuda as CUDA implementations of the torch operators "grapevine".
#pragma once

namespace grapevine {

// From this call on, the functions of algorithms/kernels/kernels.hpp, fused_kernels.hpp and
// server_rules.hpp run those kernels where their tensors are on a GPU, on torch's current stream
// of it. To be called before any of them is. Idempotent; thread-safe.
void register_cuda_operators();

}  // namespace grapevine
