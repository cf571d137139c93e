#pragma once
#include <cuda_runtime.h>

namespace cub {

enum BlockReduceAlgorithm { BLOCK_REDUCE_WARP_REDUCTIONS };

// The sum is thread 0's alone, as the real one's; others get a value that nobody should use.
template <class T, int kThreads, BlockReduceAlgorithm>
class BlockReduce {
 public:
  struct TempStorage {
    T values[kThreads];
  };
  explicit BlockReduce(TempStorage& storage) : storage_(storage) {}

  T Sum(T value) {
    storage_.values[threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.x != 0) return T(-1e30);
    T sum = 0;
    for (const T& part : storage_.values) sum += part;
    return sum;
  }

 private:
  TempStorage& storage_;
};

}  // namespace cub
