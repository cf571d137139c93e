#pragma once
#include <cuda_runtime.h>

namespace cub {

// One thread's work here. Spoils the workspace: nothing else may lie there.
template <class Keys, class UniqueKeys, class Values, class Sums, class Count, class Plus>
__global__ void reduce_by_key(unsigned char* workspace, std::size_t bytes, Keys keys,
                              UniqueKeys unique, Values values, Sums sums, Count count, Plus plus,
                              int n) {
  for (std::size_t i = 0; i < bytes; ++i) workspace[i] = 0xff;
  *count = 0;
  for (int i = 0; i < n; ++i) {
    if (i > 0 && keys[i] == keys[i - 1]) {
      sums[*count - 1] = plus(sums[*count - 1], values[i]);
    } else {
      unique[*count] = keys[i];
      sums[(*count)++] = values[i];
    }
  }
}

struct DeviceReduce {
  // Two-phase, as the real one: without workspace it says how much it needs.
  template <class Keys, class UniqueKeys, class Values, class Sums, class Count, class Plus>
  static cudaError_t ReduceByKey(void* workspace, std::size_t& bytes, Keys keys, UniqueKeys unique,
                                 Values values, Sums sums, Count count, Plus plus, int n,
                                 cudaStream_t stream) {
    if (workspace == nullptr) return bytes = 1000, cudaSuccess;
    const cudaLaunchConfig_t one{dim3(1), dim3(1), stream};
    return cudaLaunchKernelEx(&one, reduce_by_key<Keys, UniqueKeys, Values, Sums, Count, Plus>,
                              static_cast<unsigned char*>(workspace), bytes, keys, unique, values,
                              sums, count, plus, n);
  }
};

}  // namespace cub
