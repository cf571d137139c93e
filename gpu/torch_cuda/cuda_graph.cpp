#include "gpu/torch_cuda/cuda_graph.hpp"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>
#include <spdlog/spdlog.h>
#include <torch/version.h>

#include <exception>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <utility>

#include "gpu/replicas/launch_gate.hpp"
#include "gpu/torch_error.hpp"

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 1)
#define GRAPEVINE_CUDA_GRAPHS
#endif

namespace grapevine {

#ifdef GRAPEVINE_CUDA_GRAPHS
namespace {

constexpr Duration kGateTimeout = std::chrono::minutes(10);  // for a group that launches

// Shared by replays, exclusive for captures.
std::shared_mutex& graphs_mutex() {
  static std::shared_mutex mutex;
  return mutex;
}

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(std::function<c10::cuda::CUDAStream(Stream)> stream_of)
      : stream_of_(std::move(stream_of)) {}

  // In the present stream. REQUIRES: not the default stream.
  void capture(CudaGraphs::PoolId pool, const std::function<void()>& work) {
    // Thread-local: calls of other threads, such as allocations, are allowed, and not captured.
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      end_after_error();
      throw;
    }
    graph_.capture_end();
  }

  void replay(Stream stream) override {
    const c10::cuda::CUDAStreamGuard guard(stream_of_(stream));
    const std::shared_lock<std::shared_mutex> lock(graphs_mutex());
    graph_.replay();
  }

 private:
  // The thread would capture on. The capture is invalid by then in most cases, so that its end is
  // an error of its own.
  void end_after_error() {
    try {
      graph_.capture_end();
    } catch (const std::exception& e) {
      spdlog::debug("the end of a failed capture: {}", one_line(e));
    }
  }

  const std::function<c10::cuda::CUDAStream(Stream)> stream_of_;
  at::cuda::CUDAGraph graph_;
};

// A graph's pool cannot use what the allocator keeps for other work: without this the memory of a
// pass would be taken twice. Freeing device memory may wait for busy GPUs, so not while a group
// launches. REQUIRES: no capture in the process, on any GPU: the allocator fails then.
void free_cached_memory() {
  const LaunchGate::Pass pass(launch_gate(), kGateTimeout);
  if (pass.granted()) c10::cuda::CUDACachingAllocator::emptyCache();
}

}  // namespace

std::string why_no_cuda_graphs() { return ""; }

// One that no other work shares, as those of LibTorch's pool may: their work would be captured. It
// lasts as long as the process, since the allocator's blocks and cuBLAS' workspaces name it.
c10::cuda::CUDAStream CudaGraphs::capture_stream() {
  if (!stream_) {
    cudaStream_t stream = nullptr;
    C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    stream_ = c10::cuda::getStreamFromExternal(stream, static_cast<c10::DeviceIndex>(gpu_));
  }
  return *stream_;
}

std::unique_ptr<DeviceGraph> CudaGraphs::capture(
    const std::function<void()>& work,
    const std::function<c10::cuda::CUDAStream(Stream)>& stream_of) {
  const c10::cuda::CUDAGuard device(static_cast<c10::DeviceIndex>(gpu_));
  if (!pool_) pool_ = at::cuda::graph_pool_handle();
  const std::unique_lock<std::shared_mutex> lock(graphs_mutex());
  free_cached_memory();
  const c10::cuda::CUDAStreamGuard stream(capture_stream());
  auto graph = std::make_unique<CudaGraph>(stream_of);
  graph->capture(*pool_, work);
  return graph;
}

#else  // GRAPEVINE_CUDA_GRAPHS

std::string why_no_cuda_graphs() {
  return "captures beside other threads need LibTorch 2.1 or newer";
}

std::unique_ptr<DeviceGraph> CudaGraphs::capture(
    const std::function<void()>&, const std::function<c10::cuda::CUDAStream(Stream)>&) {
  throw std::logic_error(why_no_cuda_graphs());
}

#endif  // GRAPEVINE_CUDA_GRAPHS

}  // namespace grapevine
