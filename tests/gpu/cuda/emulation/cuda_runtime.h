// CUDA on the CPU, for tests: as much of the runtime as gpu/cuda uses, so that the same kernels and
// the same tests run where there is no card. The threads of a block are fibers; blocks run one
// after another; streams do their work at once. What it shows: indices, tails, tiles, barriers that
// not all threads reach, and (with a sanitizer) accesses outside. What it cannot show: speed, races
// between blocks, memory ordering.
// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's
#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __shared__ static  // blocks run one after another
#define __launch_bounds__(...)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  explicit dim3(unsigned n) : x(n) {}
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(4) char4 {
  signed char x, y, z, w;
};
inline char4 make_char4(signed char x, signed char y, signed char z, signed char w) {
  return {x, y, z, w};
}
using std::max;
using std::min;

inline dim3 threadIdx, blockIdx, blockDim, gridDim;  // of the fiber that runs

namespace emulation {

// Runs `thread` once for each thread of each block.
void run(unsigned blocks, unsigned threads, const std::function<void()>& thread);
// Waits for all threads of the block, or of the warp. Throws where some have ended or wait
// elsewhere.
void block_barrier();
void warp_barrier();
// A word for each lane of the warp.
std::uint32_t* lanes();

}  // namespace emulation

inline void __syncthreads() { emulation::block_barrier(); }
inline void __threadfence() {}
inline int __popc(unsigned mask) { return __builtin_popcount(mask); }

template <class T>
T atomicAdd(T* to, T value) {
  return std::exchange(*to, *to + value);
}
template <class T>
T atomicMax(T* to, T value) {
  return std::exchange(*to, std::max(*to, value));
}

inline std::uint32_t __shfl_xor_sync(unsigned, std::uint32_t value, unsigned apart) {
  emulation::lanes()[threadIdx.x % 32] = value;
  emulation::warp_barrier();
  const std::uint32_t other = emulation::lanes()[(threadIdx.x % 32) ^ apart];
  emulation::warp_barrier();
  return other;
}
inline unsigned __ballot_sync(unsigned, bool vote) {
  emulation::lanes()[threadIdx.x % 32] = vote;
  emulation::warp_barrier();
  unsigned mask = 0;
  for (unsigned lane = 0; lane < 32; ++lane) mask |= emulation::lanes()[lane] << lane;
  emulation::warp_barrier();
  return mask;
}

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  cudaStream_t stream = nullptr;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  emulation::run(config->gridDim.x, config->blockDim.x,
                 [&] { kernel(static_cast<Parameters>(arguments)...); });
  return cudaSuccess;
}
// NOLINTEND(readability-identifier-naming)
