// How kernels are launched: grid-stride loops, 16 bytes at a time where all pointers are aligned.
#pragma once
#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "gpu/cuda/error.hpp"

namespace grapevine::cuda {

constexpr int kThreads = 256;
// Blocks for each streaming multiprocessor (SM): with kThreads, all threads that it can hold.
constexpr int kBlocksPerProcessor = 8;

// Streaming multiprocessors (SMs) of the current device; each device is queried once.
inline Expected<int> sm_count() {
  constexpr int kDevices = 64;
  static std::atomic<int> known[kDevices];
  int device = 0, count = 0;
  if (auto found = check(cudaGetDevice(&device), "the current device"); !found)
    return found.error();
  if (device < kDevices && (count = known[device].load(std::memory_order_relaxed)) > 0)
    return count;
  if (auto asked = check(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device),
                         "the number of streaming multiprocessors (SMs)");
      !asked)
    return asked.error();
  if (device < kDevices) known[device].store(count, std::memory_order_relaxed);
  return count;
}

// Blocks of kThreads for `work` threads' worth of iterations; at least 1.
inline Expected<int> blocks_for(std::int64_t work) {
  const auto processors = sm_count();
  if (!processors) return processors.error();
  const std::int64_t needed = (work + kThreads - 1) / kThreads;
  const std::int64_t most = std::int64_t{*processors} * kBlocksPerProcessor;
  return static_cast<int>(needed < 1 ? 1 : needed < most ? needed : most);
}

// Not <<<>>>: this gives the launch's own error, and is C++ for other compilers, too.
template <class... Parameters, class... Arguments>
Expected<void> launch(const char* name, void (*kernel)(Parameters...), int blocks, int threads,
                      cudaStream_t stream, Arguments&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(static_cast<unsigned>(threads));
  config.stream = stream;
  return check(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...), name);
}

// Launches one after the other, until one fails: its error stays.
class Chain {
 public:
  explicit Chain(const char* name, cudaStream_t stream) : name_(name), stream_(stream) {}

  template <class... Parameters, class... Arguments>
  Chain& then(void (*kernel)(Parameters...), int blocks, int threads, Arguments&&... arguments) {
    if (error_.message.empty())
      keep(launch(name_, kernel, blocks, threads, stream_, std::forward<Arguments>(arguments)...));
    return *this;
  }
  Chain& zero(void* memory, std::size_t bytes) {
    if (error_.message.empty()) keep(check(cudaMemsetAsync(memory, 0, bytes, stream_), name_));
    return *this;
  }
  Expected<void> result() const {
    if (error_.message.empty()) return {};
    return error_;
  }

 private:
  void keep(const Expected<void>& result) {
    if (!result) error_ = result.error();
  }

  const char* const name_;
  const cudaStream_t stream_;
  Error error_;
};

inline bool aligned(std::initializer_list<const void*> pointers) {
  for (const void* p : pointers)
    if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0) return false;
  return true;
}

__device__ inline std::int64_t thread_index() {
  return std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ inline std::int64_t thread_count() { return std::int64_t{gridDim.x} * blockDim.x; }

// Arrays of one length. An output may be an input: each thread reads all before it writes.
template <int kIn, int kOut>
struct Arrays {
  const float* in[kIn];
  float* out[kOut];
};

// out[.][i] <- rule(in[.][i]), a Rule being void(const float (&in)[kIn], float (&out)[kOut]) const.
template <int kIn, int kOut, class Rule>
__global__ void __launch_bounds__(kThreads)
    map_vectors(Arrays<kIn, kOut> arrays, std::int64_t n, Rule rule) {
  const std::int64_t vectors = n / 4;
  for (std::int64_t i = thread_index(); i < vectors; i += thread_count()) {
    float4 in[kIn], out[kOut];
#pragma unroll
    for (int a = 0; a < kIn; ++a) in[a] = reinterpret_cast<const float4*>(arrays.in[a])[i];
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      float from[kIn], to[kOut];
#pragma unroll
      for (int a = 0; a < kIn; ++a) from[a] = (&in[a].x)[lane];
      rule(from, to);
#pragma unroll
      for (int a = 0; a < kOut; ++a) (&out[a].x)[lane] = to[a];
    }
#pragma unroll
    for (int a = 0; a < kOut; ++a) reinterpret_cast<float4*>(arrays.out[a])[i] = out[a];
  }
  const std::int64_t rest = vectors * 4 + thread_index();
  if (rest < n) {
    float from[kIn], to[kOut];
#pragma unroll
    for (int a = 0; a < kIn; ++a) from[a] = arrays.in[a][rest];
    rule(from, to);
#pragma unroll
    for (int a = 0; a < kOut; ++a) arrays.out[a][rest] = to[a];
  }
}

template <int kIn, int kOut, class Rule>
__global__ void __launch_bounds__(kThreads)
    map_elements(Arrays<kIn, kOut> arrays, std::int64_t n, Rule rule) {
  for (std::int64_t i = thread_index(); i < n; i += thread_count()) {
    float from[kIn], to[kOut];
#pragma unroll
    for (int a = 0; a < kIn; ++a) from[a] = arrays.in[a][i];
    rule(from, to);
#pragma unroll
    for (int a = 0; a < kOut; ++a) arrays.out[a][i] = to[a];
  }
}

template <int kIn, int kOut, class Rule>
Expected<void> map(const char* name, const Arrays<kIn, kOut>& arrays, std::int64_t n,
                   const Rule& rule, cudaStream_t stream) {
  if (n < 0) return refused(name, "a negative length");
  if (n == 0) return {};
  bool vectors = true;
  for (const float* p : arrays.in) vectors = vectors && aligned({p});
  for (const float* p : arrays.out) vectors = vectors && aligned({p});
  const auto blocks = blocks_for(vectors ? n / 4 : n);
  if (!blocks) return blocks.error();
  const auto kernel = vectors ? map_vectors<kIn, kOut, Rule> : map_elements<kIn, kOut, Rule>;
  return launch(name, kernel, *blocks, kThreads, stream, arrays, n, rule);
}

}  // namespace grapevine::cuda
