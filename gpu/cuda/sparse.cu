#include "gpu/cuda/sparse.hpp"

#include <cub/device/device_reduce.cuh>

#include "gpu/cuda/launch.cuh"

namespace grapevine::cuda {
namespace {

constexpr std::int64_t kMostEntries = 0x7fffffff;

__global__ void __launch_bounds__(kThreads)
    scatter_add(float* x, const std::uint32_t* indices, const float* values, float factor,
                std::int64_t n) {
  for (std::int64_t i = thread_index(); i < n; i += thread_count())
    x[indices[i]] += factor * values[i];
}

// How many of the sorted list are below `index`, or not above it.
__device__ std::int64_t rank_in(const SparseInput& list, std::uint32_t index, bool not_above) {
  std::int64_t low = 0, high = list.size;
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    const std::uint32_t there = list.indices[middle];
    if (there < index || (not_above && there == index))
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Both lists in one, sorted; of a common index, a's entry first.
__global__ void __launch_bounds__(kThreads)
    interleave(SparseInput a, SparseInput b, std::uint32_t* indices, float* values) {
  for (std::int64_t i = thread_index(); i < a.size + b.size; i += thread_count()) {
    const bool from_a = i < a.size;
    const SparseInput& own = from_a ? a : b;
    const std::int64_t at = from_a ? i : i - a.size;
    const std::uint32_t index = own.indices[at];
    const std::int64_t to = at + rank_in(from_a ? b : a, index, !from_a);
    indices[to] = index;
    values[to] = own.values[at];
  }
}

struct Plus {
  __host__ __device__ float operator()(float a, float b) const { return a + b; }
};

std::size_t padded(std::size_t bytes) { return (bytes + 15) / 16 * 16; }

// cub's two-phase call: with no workspace it says how much it needs.
cudaError_t add_common(void* workspace, std::size_t& bytes, const std::uint32_t* indices,
                       const float* values, const SparseOutput& sum, std::int64_t n,
                       cudaStream_t stream) {
  return cub::DeviceReduce::ReduceByKey(workspace, bytes, indices, sum.indices, values, sum.values,
                                        sum.size, Plus{}, static_cast<int>(n), stream);
}

Expected<void> check_sizes(std::int64_t a, std::int64_t b) {
  if (a >= 0 && b >= 0 && a <= kMostEntries && b <= kMostEntries - a) return {};
  return refused("merge", "lists of " + std::to_string(a) + " and " + std::to_string(b) +
                              " entries: together they must be fewer than 2^31");
}

}  // namespace

Expected<void> add_entries(float* x, const std::uint32_t* indices, const float* values,
                           float factor, std::int64_t n, cudaStream_t stream) {
  if (n <= 0) return {};
  const auto blocks = blocks_for(n);
  if (!blocks) return blocks.error();
  return launch("add_entries", scatter_add, *blocks, kThreads, stream, x, indices, values, factor,
                n);
}

Expected<std::size_t> merge_workspace_bytes(std::int64_t a_size, std::int64_t b_size) {
  if (auto sizes = check_sizes(a_size, b_size); !sizes) return sizes.error();
  const std::int64_t n = a_size + b_size;
  std::size_t bytes = 0;
  if (auto asked = check(add_common(nullptr, bytes, nullptr, nullptr, {}, n, nullptr), "merge");
      !asked)
    return asked.error();
  const std::size_t list = padded(static_cast<std::size_t>(n) * sizeof(float));
  return 2 * list + padded(bytes);
}

Expected<void> merge(const SparseOutput& sum, const SparseInput& a, const SparseInput& b,
                     void* workspace, cudaStream_t stream) {
  const auto all_bytes = merge_workspace_bytes(a.size, b.size);
  if (!all_bytes) return all_bytes.error();
  const std::int64_t n = a.size + b.size;
  if (n == 0) return check(cudaMemsetAsync(sum.size, 0, sizeof *sum.size, stream), "merge");
  const auto blocks = blocks_for(n);
  if (!blocks) return blocks.error();

  const std::size_t list = padded(static_cast<std::size_t>(n) * sizeof(float));
  auto* const memory = static_cast<unsigned char*>(workspace);
  auto* const indices = reinterpret_cast<std::uint32_t*>(memory);
  auto* const values = reinterpret_cast<float*>(memory + list);
  if (auto merged = launch("merge", interleave, *blocks, kThreads, stream, a, b, indices, values);
      !merged)
    return merged;
  std::size_t bytes = *all_bytes - 2 * list;
  return check(add_common(memory + 2 * list, bytes, indices, values, sum, n, stream), "merge");
}

}  // namespace grapevine::cuda
