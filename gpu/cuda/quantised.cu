#include "gpu/cuda/quantised.hpp"

#include <cuda_fp16.h>

#include "gpu/cuda/block.cuh"
#include "gpu/cuda/launch.cuh"

namespace grapevine::cuda {
namespace {

static_assert(kInt8Block == 4 * kThreads, "a block of threads takes a block of numbers");

// ---- int8 ----

// Largest of a block of threads, in all of them.
__device__ std::uint32_t block_max(std::uint32_t value) {
  __shared__ std::uint32_t most;
  __syncthreads();  // all have read the last one
  if (threadIdx.x == 0) most = 0;
  for (unsigned apart = kWarp / 2; apart > 0; apart /= 2)
    value = max(value, __shfl_xor_sync(kAllLanes, value, apart));
  __syncthreads();
  if (lane_index() == 0) atomicMax(&most, value);
  __syncthreads();
  return most;
}

__global__ void __launch_bounds__(kThreads)
    pack_blocks(std::int8_t* values, float* scales, const float* x, std::uint64_t seed,
                std::int64_t n, bool vectors) {
  for (std::int64_t block = blockIdx.x; block < int8_blocks(n); block += gridDim.x) {
    const std::int64_t i = block * kInt8Block + 4 * threadIdx.x;
    const bool whole = vectors && i + 4 <= n;
    float in[4] = {0, 0, 0, 0};
    if (whole) {
      const float4 v = *reinterpret_cast<const float4*>(x + i);
      in[0] = v.x, in[1] = v.y, in[2] = v.z, in[3] = v.w;
    } else {
      for (int lane = 0; lane < 4; ++lane)
        if (i + lane < n) in[lane] = x[i + lane];
    }
    std::uint32_t most = 0;
    for (const float value : in) most = max(most, magnitude(value));
    const float scale = int8_scale(block_max(most));
    std::int8_t out[4];
#pragma unroll
    for (int lane = 0; lane < 4; ++lane)
      out[lane] = int8_level(in[lane], scale, uniform(seed, i + lane));
    if (whole) {
      *reinterpret_cast<char4*>(values + i) = make_char4(out[0], out[1], out[2], out[3]);
    } else {
      for (int lane = 0; lane < 4; ++lane)
        if (i + lane < n) values[i + lane] = out[lane];
    }
    if (threadIdx.x == 0) scales[block] = scale;
  }
}

__device__ float unpacked(std::int8_t level, float scale, float factor) {
  return factor * (static_cast<float>(level) * scale);
}

__global__ void __launch_bounds__(kThreads)
    fold_levels(float* x, const std::int8_t* values, const float* scales, float factor,
                std::int64_t n, bool vectors) {
  const std::int64_t whole = vectors ? n / 4 : 0;
  for (std::int64_t i = thread_index(); i < whole; i += thread_count()) {
    float4 to = reinterpret_cast<float4*>(x)[i];
    const char4 level = reinterpret_cast<const char4*>(values)[i];
    const float scale = scales[i / (kInt8Block / 4)];
    to.x += unpacked(level.x, scale, factor);
    to.y += unpacked(level.y, scale, factor);
    to.z += unpacked(level.z, scale, factor);
    to.w += unpacked(level.w, scale, factor);
    reinterpret_cast<float4*>(x)[i] = to;
  }
  for (std::int64_t i = whole * 4 + thread_index(); i < n; i += thread_count())
    x[i] += unpacked(values[i], scales[i / kInt8Block], factor);
}

// ---- 16 bits: eight at a time, 16 bytes of them ----

// The GPU's instructions round as quantise.hpp does.
template <Half kType>
__device__ std::uint16_t packed(float value) {
  if constexpr (kType == Half::bf16) return to_bf16(value);
  const float most = 65504.0F;
  const bool beyond = absolute(value) > most && magnitude(value) < kInfinity;
  return __half_as_ushort(__float2half_rn(beyond ? copysignf(most, value) : value));
}

template <Half kType>
__device__ float unpacked(std::uint16_t bits) {
  if constexpr (kType == Half::bf16) return from_bf16(bits);
  return __half2float(__ushort_as_half(bits));
}

struct alignas(16) Eight {
  std::uint16_t values[8];
};

template <Half kType>
__global__ void __launch_bounds__(kThreads)
    pack_halves(std::uint16_t* values, const float* x, std::int64_t n, bool vectors) {
  const std::int64_t whole = vectors ? n / 8 : 0;
  for (std::int64_t i = thread_index(); i < whole; i += thread_count()) {
    const float4 low = reinterpret_cast<const float4*>(x)[2 * i];
    const float4 high = reinterpret_cast<const float4*>(x)[2 * i + 1];
    reinterpret_cast<Eight*>(values)[i] =
        Eight{{packed<kType>(low.x), packed<kType>(low.y), packed<kType>(low.z),
               packed<kType>(low.w), packed<kType>(high.x), packed<kType>(high.y),
               packed<kType>(high.z), packed<kType>(high.w)}};
  }
  for (std::int64_t i = whole * 8 + thread_index(); i < n; i += thread_count())
    values[i] = packed<kType>(x[i]);
}

template <Half kType>
__global__ void __launch_bounds__(kThreads)
    fold_halves(float* x, const std::uint16_t* values, float factor, std::int64_t n, bool vectors) {
  const std::int64_t whole = vectors ? n / 8 : 0;
  for (std::int64_t i = thread_index(); i < whole; i += thread_count()) {
    float4 to[2] = {reinterpret_cast<float4*>(x)[2 * i], reinterpret_cast<float4*>(x)[2 * i + 1]};
    const Eight from = reinterpret_cast<const Eight*>(values)[i];
#pragma unroll
    for (int lane = 0; lane < 8; ++lane)
      (&to[lane / 4].x)[lane % 4] += factor * unpacked<kType>(from.values[lane]);
    reinterpret_cast<float4*>(x)[2 * i] = to[0];
    reinterpret_cast<float4*>(x)[2 * i + 1] = to[1];
  }
  for (std::int64_t i = whole * 8 + thread_index(); i < n; i += thread_count())
    x[i] += factor * unpacked<kType>(values[i]);
}

}  // namespace

Expected<void> int8_pack(std::int8_t* values, float* scales, const float* x, std::uint64_t seed,
                         std::int64_t n, cudaStream_t stream) {
  if (n <= 0) return {};
  const auto blocks = blocks_for(int8_blocks(n) * kThreads);
  if (!blocks) return blocks.error();
  return launch("int8_pack", pack_blocks, *blocks, kThreads, stream, values, scales, x, seed, n,
                aligned({values, x}));
}

Expected<void> int8_fold(float* x, const std::int8_t* values, const float* scales, float factor,
                         std::int64_t n, cudaStream_t stream) {
  if (n <= 0) return {};
  const auto blocks = blocks_for(n / 4);
  if (!blocks) return blocks.error();
  return launch("int8_fold", fold_levels, *blocks, kThreads, stream, x, values, scales, factor, n,
                aligned({values, x}));
}

Expected<void> half_pack(Half type, std::uint16_t* values, const float* x, std::int64_t n,
                         cudaStream_t stream) {
  if (n <= 0) return {};
  const auto blocks = blocks_for(n / 8);
  if (!blocks) return blocks.error();
  const auto kernel = type == Half::fp16 ? pack_halves<Half::fp16> : pack_halves<Half::bf16>;
  return launch("half_pack", kernel, *blocks, kThreads, stream, values, x, n, aligned({values, x}));
}

Expected<void> half_fold(Half type, float* x, const std::uint16_t* values, float factor,
                         std::int64_t n, cudaStream_t stream) {
  if (n <= 0) return {};
  const auto blocks = blocks_for(n / 8);
  if (!blocks) return blocks.error();
  const auto kernel = type == Half::fp16 ? fold_halves<Half::fp16> : fold_halves<Half::bf16>;
  return launch("half_fold", kernel, *blocks, kThreads, stream, x, values, factor, n,
                aligned({values, x}));
}

}  // namespace grapevine::cuda
