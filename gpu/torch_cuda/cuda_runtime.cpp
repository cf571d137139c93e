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

class CudaMark final : public Mark {
 public:
  CudaMark(int card, cudaStream_t stream) : card_(card) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(card));
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    C10_CUDA_CHECK(cudaEventRecord(event_, stream));
  }
  // Destroying an event that is not reached yet is allowed, and does not wait.
  ~CudaMark() override { C10_CUDA_CHECK_WARN(cudaEventDestroy(event_)); }
  CudaMark(const CudaMark&) = delete;
  CudaMark& operator=(const CudaMark&) = delete;

  // After an error of the device nothing is using the memory any more.
  bool reached() const override { return state() != cudaErrorNotReady; }
  cudaError_t state() const {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(card_));
    const cudaError_t error = cudaEventQuery(event_);
    if (error == cudaErrorNotReady) static_cast<void>(cudaGetLastError());  // it is no error
    return error;
  }
  cudaEvent_t event() const { return event_; }

 private:
  const int card_;
  cudaEvent_t event_ = nullptr;
};

class CudaScope final : public QueueScope {
 public:
  explicit CudaScope(c10::cuda::CUDAStream stream) : guard_(stream) {}

 private:
  c10::cuda::CUDAStreamGuard guard_;
};

const CudaMark& cuda(const Mark& mark) { return static_cast<const CudaMark&>(mark); }

// One stream for each queue, from LibTorch's pool: none is the default stream, which would wait for
// all others. The pool has 32 for each card; beyond ten workers on a card some share one, which
// costs overlap, not correctness: the cards of a group (gpu/gradient_group.hpp) have one worker.
class CudaRuntime final : public DeviceRuntime {
 public:
  explicit CudaRuntime(int card)
      : card_(card), streams_{new_stream(card), new_stream(card), new_stream(card)} {}

  at::Device device() const override { return {at::kCUDA, static_cast<at::DeviceIndex>(card_)}; }
  bool in_host_memory() const override { return false; }

  std::unique_ptr<QueueScope> enter(Queue queue) override {
    return std::make_unique<CudaScope>(stream(queue));
  }

  void copy(Queue queue, const at::Tensor& to, const at::Tensor& from) override {
    GRAPEVINE_CHECK(to.is_contiguous() && from.is_contiguous() &&
                        to.scalar_type() == from.scalar_type() && to.numel() == from.numel(),
                    "a copy between unlike tensors");
    if (from.nbytes() == 0) return;
    const c10::cuda::CUDAGuard guard(device());
    C10_CUDA_CHECK(cudaMemcpyAsync(to.data_ptr(), from.data_ptr(), from.nbytes(), cudaMemcpyDefault,
                                   stream(queue).stream()));
  }

  MarkHandle mark(Queue queue) override {
    return std::make_shared<CudaMark>(card_, stream(queue).stream());
  }

  void wait(Queue queue, const MarkHandle& mark) override {
    if (!mark) return;
    const c10::cuda::CUDAGuard guard(device());
    C10_CUDA_CHECK(cudaStreamWaitEvent(stream(queue).stream(), cuda(*mark).event(), 0));
  }

  // By looking: CUDA's own wait has no limit.
  Expected<void> host_wait(const MarkHandle& mark, Duration patience) override {
    if (!mark) return {};
    const auto start = Clock::now();
    for (;;) {
      const cudaError_t state = cuda(*mark).state();
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

  void share(const at::Tensor& t, Queue queue) override {
    if (t.is_cuda())
      c10::cuda::CUDACachingAllocator::recordStream(t.storage().data_ptr(), stream(queue));
  }

  std::shared_ptr<void> host_memory(std::size_t bytes) override {
    const c10::cuda::CUDAGuard guard(device());
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // the pool goes on with ordinary memory
      return nullptr;
    }
    return {memory, [](void* p) { C10_CUDA_CHECK_WARN(cudaFreeHost(p)); }};
  }

 private:
  static c10::cuda::CUDAStream new_stream(int card) {
    return c10::cuda::getStreamFromPool(/*isHighPriority=*/false,
                                        static_cast<c10::DeviceIndex>(card));
  }
  c10::cuda::CUDAStream stream(Queue queue) const {
    return streams_[static_cast<std::size_t>(queue)];
  }

  const int card_;
  const std::array<c10::cuda::CUDAStream, kQueues> streams_;
};

Expected<std::shared_ptr<DeviceRuntime>> open_card(int card) {
  try {
    return std::shared_ptr<DeviceRuntime>(std::make_shared<CudaRuntime>(card));
  } catch (const std::exception& e) {
    return Error{Errc::failed, "cuda:" + std::to_string(card) + ": " + one_line(e)};
  }
}

}  // namespace

void register_cuda_devices() {
  GroupJoin join;
#ifdef GRAPEVINE_NCCL
  join = join_nccl_group;
#endif
  register_cuda_driver(
      {[] { return static_cast<int>(c10::cuda::device_count()); }, open_card, std::move(join)});
}

}  // namespace grapevine
