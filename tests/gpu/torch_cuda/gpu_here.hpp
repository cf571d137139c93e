// Whether there is a GPU to test, for a binary that has LibTorch with CUDA.
#pragma once
#include <string>

#include "gpu/device.hpp"
#include "gpu/torch_cuda/register.hpp"

namespace grapevine {

inline int gpus_here() {
  static const int count = [] {
    register_torch_cuda();
    return visible_gpus().visible;
  }();
  return count;
}

// Why a test that needs `count` GPUs is skipped; empty: it is not.
inline std::string too_few_gpus(int count) {
  if (gpus_here() >= count) return "";
  return "needs " + std::to_string(count) + " CUDA GPU(s), " + std::to_string(gpus_here()) +
         " are visible here";
}

}  // namespace grapevine
