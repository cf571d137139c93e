#pragma once
#include <cuda_runtime.h>

namespace cub {

// One thread's work here. Spoils the workspace: nothing else may lie there.
template <class In, class Flags, class Out, class Count>
__global__ void select_flagged(unsigned char* workspace, std::size_t bytes, In in, Flags flags,
                               Out out, Count count, std::int64_t n) {
  for (std::size_t i = 0; i < bytes; ++i) workspace[i] = 0xff;
  std::int64_t selected = 0;
  for (std::int64_t i = 0; i < n; ++i)
    if (flags[i]) out[selected++] = in[i];
  *count = static_cast<std::uint32_t>(selected);
}

struct DeviceSelect {
  // Two-phase, as the real one: without workspace it says how much it needs.
  template <class In, class Flags, class Out, class Count>
  static cudaError_t Flagged(void* workspace, std::size_t& bytes, In in, Flags flags, Out out,
                             Count count, std::int64_t n, cudaStream_t stream) {
    if (workspace == nullptr) return bytes = 1000, cudaSuccess;
    const cudaLaunchConfig_t one{dim3(1), dim3(1), stream};
    return cudaLaunchKernelEx(&one, select_flagged<In, Flags, Out, Count>,
                              static_cast<unsigned char*>(workspace), bytes, in, flags, out, count,
                              n);
  }
};

}  // namespace cub
