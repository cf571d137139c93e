#include "gpu/cuda/quantised.hpp"

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

}  // namespace grapevine::cuda
