#include "gpu/torch_cuda/cuda_runtime.hpp"

#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "gpu/device.hpp"
#include "gpu/torch_cuda/nccl_group.hpp"
#include "gpu/torch_error.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

// A wait begins with looking often, as most end soon, and then leaves the core to others.
constexpr auto kLooking = std::chrono::microseconds(100);
constexpr auto kNap = std::chrono::microseconds(50);

Error cuda_error(const std::string& what, cudaError_t error) {
  return {Errc::failed, what + ": " + cudaGetErrorString(error)};
}

class CudaEvent final : public DeviceEvent {
 public:
  CudaEvent(int gpu, cudaStream_t stream) : gpu_(gpu) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu));
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    C10_CUDA_CHECK(cudaEventRecord(event_, stream));
  }
  // Destroying an event that is not reached yet is allowed, and does not wait.
  ~CudaEvent() override { C10_CUDA_CHECK_WARN(cudaEventDestroy(event_)); }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  // After an error of the device nothing is using the memory any more.
  bool reached() const override { return state() != cudaErrorNotReady; }
  cudaError_t state() const {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu_));
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) static_cast<void>(cudaGetLastError());  // it is no error
    return error;
  }
  cudaEvent_t event() const { return event_; }

 private:
  const int gpu_;
  cudaEvent_t event_ = nullptr;
};

class CudaScope final : public StreamScope {
 public:
  explicit CudaScope(c10::cuda::CUDAStream stream) : guard_(stream) {}

 private:
  c10::cuda::CUDAStreamGuard guard_;
};

const CudaEvent& cuda(const DeviceEvent& event) { return static_cast<const CudaEvent&>(event); }

// One stream for each stream, from LibTorch's pool: none is the default stream, which would wait for
// all others. The pool has 32 for each GPU; beyond ten workers on a GPU some share one, which
// costs overlap, not correctness: the GPUs of a group (gpu/gradient_group.hpp) have one worker.
class CudaRuntime final : public DeviceRuntime {
 public:
  explicit CudaRuntime(int gpu)
      : gpu_(gpu), streams_{new_stream(gpu), new_stream(gpu), new_stream(gpu)} {}

  at::Device device() const override { return {at::kCUDA, static_cast<at::DeviceIndex>(gpu_)}; }
  bool in_host_memory() const override { return false; }

  std::unique_ptr<StreamScope> enter(Stream stream) override {
    return std::make_unique<CudaScope>(stream(stream));
  }

  void copy(Stream stream, const at::Tensor& to, const at::Tensor& from) override {
    GRAPEVINE_CHECK(to.is_contiguous() && from.is_contiguous() &&
                        to.scalar_type() == from.scalar_type() && to.numel() == from.numel(),
                    "a copy between unlike tensors");
    if (from.nbytes() == 0) return;
    const c10::cuda::CUDAGuard guard(device());
    C10_CUDA_CHECK(cudaMemcpyAsync(to.data_ptr(), from.data_ptr(), from.nbytes(), cudaMemcpyDefault,
                                   stream(stream).stream()));
  }

  EventHandle record(Stream stream) override {
    return std::make_shared<CudaEvent>(gpu_, stream(stream).stream());
  }

  void wait(Stream stream, const EventHandle& event) override {
    if (!event) return;
    const c10::cuda::CUDAGuard guard(device());
    C10_CUDA_CHECK(cudaStreamWaitEvent(stream(stream).stream(), cuda(*event).event(), 0));
  }

  // By looking: CUDA's own wait has no limit.
  Expected<void> host_wait(const EventHandle& event, Duration patience) override {
    if (!event) return {};
    const auto start = Clock::now();
    for (;;) {
      const cudaError_t state = cuda(*event).state();
      if (state == cudaSuccess) return {};
      if (state != cudaErrorNotReady) return cuda_error(device().str(), state);
      const auto waited = Clock::now() - start;
      if (waited > patience)
        return Error{Errc::timeout, device().str() + " has not answered for " +
                                        std::to_string(static_cast<int>(to_seconds(patience))) +
                                        " s: see nvidia-smi and the kernel's log"};
      if (waited < kLooking)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(kNap);
    }
  }

  void record_stream(const at::Tensor& t, Stream stream) override {
    if (t.is_cuda())
      c10::cuda::CUDACachingAllocator::recordStream(t.storage().data_ptr(), stream(stream));
  }

  std::shared_ptr<void> pinned_memory(std::size_t bytes) override {
    const c10::cuda::CUDAGuard guard(device());
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // the pool goes on with ordinary memory
      return nullptr;
    }
    return {memory, [](void* p) { C10_CUDA_CHECK_WARN(cudaFreeHost(p)); }};
  }

 private:
  static c10::cuda::CUDAStream new_stream(int gpu) {
    return c10::cuda::getStreamFromPool(/*isHighPriority=*/false,
                                        static_cast<c10::DeviceIndex>(gpu));
  }
  c10::cuda::CUDAStream stream(Stream stream) const {
    return streams_[static_cast<std::size_t>(stream)];
  }

  const int gpu_;
  const std::array<c10::cuda::CUDAStream, kStreams> streams_;
};

Expected<std::shared_ptr<DeviceRuntime>> open_gpu(int gpu) {
  try {
    return std::shared_ptr<DeviceRuntime>(std::make_shared<CudaRuntime>(gpu));
  } catch (const std::exception& e) {
    return Error{Errc::failed, "cuda:" + std::to_string(gpu) + ": " + one_line(e)};
  }
}

}  // namespace

void register_cuda_devices() {
  GroupJoin join;
#ifdef GRAPEVINE_NCCL
  join = join_nccl_group;
#endif
  register_cuda_driver(
      {[] { return static_cast<int>(c10::cuda::device_count()); }, open_gpu, std::move(join)});
}

}  // namespace grapevine
