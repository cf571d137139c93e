// Steps that the threads of a block take together. All threads of the block must come.
#pragma once
#include <cub/block/block_scan.cuh>

#include "gpu/cuda/selection.hpp"

namespace grapevine::cuda {

constexpr unsigned kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffU;

// The sum of the values of the threads before this one; `total` <- of all.
template <int kBlockThreads, class T>
__device__ T block_exclusive_sum(T value, T& total) {
  using Scan = cub::BlockScan<T, kBlockThreads>;
  __shared__ typename Scan::TempStorage storage;
  T before;
  Scan(storage).ExclusiveSum(value, before, total);
  __syncthreads();  // the storage is used again
  return before;
}

// descend() over all bins of a digit, each thread over its share of them. `counts` and `search` are
// shared by the block and complete.
template <int kBlockThreads>
__device__ void block_descend(Search& search, const std::uint32_t* counts, int digit) {
  const int each = digit_bins(digit) / kBlockThreads;
  const int first = static_cast<int>(threadIdx.x) * each;
  std::uint32_t own = 0, total = 0;
  for (int bin = first; bin < first + each; ++bin) own += counts[bin];
  const std::uint32_t before = block_exclusive_sum<kBlockThreads>(own, total);
  Search going = search;
  const bool here = descend(going, counts, first, first + each, total - before - own, digit);
  __syncthreads();  // all have read it
  if (here) search = going;
  __syncthreads();
}

// This thread's position in its warp, and a mask of the lanes before it.
__device__ inline unsigned lane_index() { return threadIdx.x % kWarp; }
__device__ inline unsigned lanes_before() { return (1U << lane_index()) - 1; }

}  // namespace grapevine::cuda
