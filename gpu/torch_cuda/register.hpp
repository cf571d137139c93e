// All that a build with a CUDA LibTorch adds, behind one call: a static initialiser in a static
// library is one that a linker may leave out.
#pragma once

namespace grapevine {

// The GPUs (cuda_runtime.hpp), and the kernels of gpu/cuda as operators for tensors on them
// (operators.hpp). At program start, before other threads. Idempotent.
void register_torch_cuda();

}  // namespace grapevine
