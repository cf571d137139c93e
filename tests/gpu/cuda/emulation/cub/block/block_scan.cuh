#pragma once
#include <cuda_runtime.h>

namespace cub {

// Without a barrier at the end, as the real one: who uses the storage again must wait first.
template <class T, int kThreads>
class BlockScan {
 public:
  struct TempStorage {
    T values[kThreads];
  };
  explicit BlockScan(TempStorage& storage) : storage_(storage) {}

  void ExclusiveSum(T value, T& before, T& total) {
    storage_.values[threadIdx.x] = value;
    __syncthreads();
    before = total = 0;
    for (unsigned i = 0; i < kThreads; ++i) {
      if (i == threadIdx.x) before = total;
      total += storage_.values[i];
    }
  }

 private:
  TempStorage& storage_;
};

}  // namespace cub
