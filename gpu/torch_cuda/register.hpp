// All that this build adds where LibTorch has CUDA.
#pragma once

namespace grapevine {

// The CUDA kernels of algorithms/kernels and the cards. At program start, before other threads.
void register_torch_cuda();

}  // namespace grapevine
