#include "gpu/cuda/sparse.hpp"

#include "gpu/cuda/launch.cuh"

namespace grapevine::cuda {
namespace {

__global__ void __launch_bounds__(kThreads)
    scatter_add(float* x, const std::uint32_t* indices, const float* values, float factor,
                std::int64_t n) {
  for (std::int64_t i = thread_index(); i < n; i += thread_count())
    x[indices[i]] += factor * values[i];
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

}  // namespace grapevine::cuda
