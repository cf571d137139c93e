// Sums in double precision whose order is a function of the length alone: a partial sum for each
// segment of kSegment elements by one block, then the partial sums by one block.
#pragma once
#include <cub/block/block_reduce.cuh>

#include "gpu/cuda/launch.cuh"

namespace grapevine::cuda {

constexpr std::int64_t kSegment = std::int64_t{1} << 14;

__host__ __device__ inline std::int64_t segments_of(std::int64_t n) {
  return (n + kSegment - 1) / kSegment;
}

using BlockSum = cub::BlockReduce<double, kThreads, cub::BLOCK_REDUCE_WARP_REDUCTIONS>;

// Blocks for one per segment, at most as many as are resident.
inline Expected<int> segment_blocks(std::int64_t n) {
  return blocks_for(segments_of(n) * kThreads);
}

// The sum of partials[0, count), in thread 0 of the block.
__device__ inline double sum_of_partials(const double* partials, std::int64_t count,
                                         BlockSum::TempStorage& storage) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) sum += partials[i];
  return BlockSum(storage).Sum(sum);
}

}  // namespace grapevine::cuda
