// CUDA graphs of LibTorch behind DeviceGraph.
#pragma once
#include <c10/cuda/CUDAStream.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "gpu/device.hpp"

namespace grapevine {

// Of the LibTorch of this build: one before 2.1 refuses calls of all threads of the process, such
// as allocations, while one captures. Empty: it can.
std::string why_no_cuda_graphs();

// The graphs of one runtime: they share a stream for captures and a memory pool. A capture waits
// until no other thread of the process captures or launches a graph, and delays these: all use
// LibTorch's default generator of the GPU, whether they draw or not, and a capture begins with a
// call that LibTorch's allocator refuses beside another capture. Thread rules: DeviceRuntime's.
class CudaGraphs {
 public:
  // LibTorch's MempoolId_t, which is in namespace c10::cuda or c10, by its version.
  using PoolId = std::pair<unsigned long long, unsigned long long>;

  explicit CudaGraphs(int gpu) : gpu_(gpu) {}

  // DeviceRuntime::capture(). `stream_of`: the runtime's streams, for replays; it outlives the
  // graph.
  std::unique_ptr<DeviceGraph> capture(
      const std::function<void()>& work,
      const std::function<c10::cuda::CUDAStream(Stream)>& stream_of);

 private:
  c10::cuda::CUDAStream capture_stream();

  const int gpu_;
  std::optional<c10::cuda::CUDAStream> stream_;
  std::optional<PoolId> pool_;
};

}  // namespace grapevine
