// CUDA on the CPU, for tests: as much of the runtime as gpu/cuda uses, so that the same kernels and
// the same tests run where there is no GPU. The threads of a block are fibers; blocks run one
// after another, in random order; streams do their work at once. What it shows: indices, tails,
// tiles, barriers that not all threads reach, launches beyond a device's limits, pointers that are
// not the device's, and (with a sanitizer) accesses outside. With the checker of ../race also
// races, missing fences and shared memory that nobody wrote. What it cannot show: speed, the order
// of streams.

// NOLINTBEGIN(readability-identifier-naming): the names are CUDA's
#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "tests/gpu/cuda/emulation/emulation.hpp"

#define __global__
#define __device__
#define __host__
#ifdef GRAPEVINE_RACE_CHECK
#define __shared__ static thread_local  // the checker finds them among the thread's variables
#else
#define __shared__ static  // blocks run one after another
#endif
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

inline void __syncthreads() { emulation::block_barrier(); }
inline void __syncwarp() { emulation::warp_barrier(); }
inline void __threadfence() { emulation::fence(); }
inline int __popc(unsigned mask) { return __builtin_popcount(mask); }

template <class T>
EMULATION_UNCHECKED __attribute__((noinline)) T atomicAdd(T* to, T value) {
  emulation::note_atomic(to, sizeof(T), __builtin_return_address(0));
  const T before = *to;
  *to = before + value;
  return before;
}
template <class T>
EMULATION_UNCHECKED __attribute__((noinline)) T atomicMax(T* to, T value) {
  emulation::note_atomic(to, sizeof(T), __builtin_return_address(0));
  const T before = *to;
  *to = before < value ? value : before;
  return before;
}

EMULATION_UNCHECKED inline std::uint32_t __shfl_xor_sync(unsigned, std::uint32_t value,
                                                         unsigned apart) {
  emulation::lanes()[threadIdx.x % 32] = value;
  emulation::exchange_barrier();
  const std::uint32_t other = emulation::lanes()[(threadIdx.x % 32) ^ apart];
  emulation::exchange_barrier();
  return other;
}
EMULATION_UNCHECKED inline unsigned __ballot_sync(unsigned, bool vote) {
  emulation::lanes()[threadIdx.x % 32] = vote;
  emulation::exchange_barrier();
  unsigned mask = 0;
  for (unsigned lane = 0; lane < 32; ++lane) mask |= emulation::lanes()[lane] << lane;
  emulation::exchange_barrier();
  return mask;
}

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  cudaStream_t stream = nullptr;
};

namespace emulation {

// Pointers are checked at the launch; those inside of structures only where each access is.
template <class T>
const void* pointer_in(const T& argument) {
  if constexpr (std::is_pointer_v<T>)
    return argument;
  else
    return nullptr;
}

}  // namespace emulation

template <class... Parameters, class... Arguments>
EMULATION_UNCHECKED cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                                                   void (*kernel)(Parameters...),
                                                   Arguments&&... arguments) {
  const emulation::Launch launch{reinterpret_cast<const void*>(kernel), config->gridDim.x,
                                 config->blockDim.x};
  const cudaError_t refused = emulation::check_launch(
      launch, {emulation::pointer_in<Parameters>(static_cast<Parameters>(arguments))...});
  if (refused != cudaSuccess) return refused;
  const auto body = [&]() EMULATION_UNCHECKED { kernel(static_cast<Parameters>(arguments)...); };
  return emulation::run(
      launch,
      [](const void* context) EMULATION_UNCHECKED { (*static_cast<decltype(body)*>(context))(); },
      &body);
}
// NOLINTEND(readability-identifier-naming)
