#include "gpu/torch_cuda/cuda_runtime.hpp"

#include <ATen/ATen.h>
#include <ATen/cuda/PeerToPeerAccess.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <spdlog/spdlog.h>

#include <array>
#include <chrono>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "gpu/cuda/architectures.hpp"
#ifdef GRAPEVINE_NCCL
#include "gpu/cuda/nccl_communicator.hpp"
#endif
#include "gpu/device.hpp"
#include "gpu/replicas/launch_gate.hpp"
#include "gpu/torch_cuda/cuda_graph.hpp"
#include "gpu/torch_cuda/nccl_group.hpp"
#include "gpu/torch_error.hpp"
#include "messages/check.hpp"
#include "messages/text/lower_case.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

// A wait begins with looking often, as most end soon, and then leaves the core to others.
constexpr auto kLooking = std::chrono::microseconds(100);
constexpr auto kNap = std::chrono::microseconds(50);

// For a group that launches: it has its own, shorter limit.
constexpr Duration kGateTimeout = std::chrono::minutes(10);

Error cuda_error(const std::string& what, cudaError_t error) {
  return {Errc::failed, what + ": " + cudaGetErrorString(error)};
}

// The last handle may end on any thread: without the guard on one whose current device is another,
// on which the call would create a context. A deleter must not throw, and the guard may, after an
// error of the device.
void free_pinned(at::Device device, void* memory) noexcept {
  try {
    const LaunchGate::Pass pass(launch_gate(), kGateTimeout);
    const c10::cuda::CUDAGuard guard(device);
    C10_CUDA_CHECK_WARN(cudaFreeHost(memory));
  } catch (const std::exception& e) {
    spdlog::warn("{}: pinned memory was not freed: {}", device.str(), one_line(e));
  }
}

class CudaEvent final : public DeviceEvent {
 public:
  // `flags`: cudaEventDisableTiming, or cudaEventDefault for one with a time.
  CudaEvent(int gpu, cudaStream_t stream, unsigned flags) : gpu_(gpu) {
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu));
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event_, flags));
    C10_CUDA_CHECK(cudaEventRecord(event_, stream));
  }
  // Destroying an event that is not reached yet is allowed, and does not wait. Under a guard, as
  // the thread may not have used a device yet.
  ~CudaEvent() override {
    try {
      const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu_));
      C10_CUDA_CHECK_WARN(cudaEventDestroy(event_));
    } catch (const std::exception& e) {
      spdlog::warn("cuda:{}: an event was not destroyed: {}", gpu_, one_line(e));
    }
  }
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  // After an error of the device nothing is using the memory any more.
  bool reached() const override { return state() != cudaErrorNotReady; }
  cudaError_t state() const {
    try {
      const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu_));
      const cudaError_t error = cudaEventQuery(event_);
      if (error == cudaErrorNotReady) static_cast<void>(cudaGetLastError());  // it is no error
      return error;
    } catch (const std::exception&) {  // of the guard, after an error of the device
      const cudaError_t error = cudaPeekAtLastError();
      return error == cudaSuccess || error == cudaErrorNotReady ? cudaErrorUnknown : error;
    }
  }
  double seconds_since(const DeviceEvent& earlier) const override {
    float milliseconds = 0;
    try {
      const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu_));
      const cudaEvent_t from = static_cast<const CudaEvent&>(earlier).event();
      if (cudaEventElapsedTime(&milliseconds, from, event_) == cudaSuccess)
        return static_cast<double>(milliseconds) / 1000;
      static_cast<void>(cudaGetLastError());
    } catch (const std::exception&) {  // of the guard, after an error of the device
    }
    return std::numeric_limits<double>::quiet_NaN();
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

const CudaEvent& cuda_event(const DeviceEvent& event) {
  return static_cast<const CudaEvent&>(event);
}

// Streams of LibTorch's pool: none is the default stream, which would wait for all others. The pool
// deals its 32 streams of each GPU in turn. A worker takes three, with a group four, the evaluation
// three more, and each peer, servers included, whose model is on the GPU one, when they first use
// them. From ten workers on a GPU, or from eight with their peers, some share a stream, which costs
// overlap, not correctness: the GPUs of a group (gpu/replicas/gradient_group.hpp) have one worker.
class CudaRuntime final : public DeviceRuntime {
 public:
  explicit CudaRuntime(int gpu) : gpu_(gpu) {}

  at::Device device() const override { return {at::kCUDA, static_cast<at::DeviceIndex>(gpu_)}; }
  bool in_host_memory() const override { return false; }

  std::unique_ptr<StreamScope> enter(Stream stream) override {
    return std::make_unique<CudaScope>(cuda_stream(stream));
  }

  void copy(Stream stream, const at::Tensor& to, const at::Tensor& from) override {
    GRAPEVINE_CHECK(to.is_contiguous() && from.is_contiguous() &&
                        to.scalar_type() == from.scalar_type() && to.numel() == from.numel(),
                    "a copy between unlike tensors");
    if (from.nbytes() == 0) return;
    const c10::cuda::CUDAGuard guard(device());
    allow_access(to, from);
    C10_CUDA_CHECK(cudaMemcpyAsync(to.data_ptr(), from.data_ptr(), from.nbytes(), cudaMemcpyDefault,
                                   cuda_stream(stream).stream()));
  }

  EventHandle record(Stream stream) override {
    return std::make_shared<CudaEvent>(gpu_, cuda_stream(stream).stream(), cudaEventDisableTiming);
  }

  EventHandle record_timed(Stream stream) override {
    return std::make_shared<CudaEvent>(gpu_, cuda_stream(stream).stream(), cudaEventDefault);
  }

  void wait(Stream stream, const EventHandle& event) override {
    if (!event) return;
    const c10::cuda::CUDAGuard guard(device());
    C10_CUDA_CHECK(
        cudaStreamWaitEvent(cuda_stream(stream).stream(), cuda_event(*event).event(), 0));
  }

  // By looking: CUDA's own wait has no limit.
  Expected<void> host_wait(const EventHandle& event, Duration timeout) override {
    if (!event) return {};
    const auto start = Clock::now();
    for (;;) {
      const cudaError_t state = cuda_event(*event).state();
      if (state == cudaSuccess) return {};
      if (state != cudaErrorNotReady) return cuda_error(device().str(), state);
      const auto waited = Clock::now() - start;
      if (waited > timeout)
        return Error{Errc::timeout, device().str() + " has not answered for " +
                                        std::to_string(static_cast<int>(to_seconds(timeout))) +
                                        " s: see nvidia-smi and the kernel's log"};
      if (waited < kLooking)
        std::this_thread::yield();
      else
        std::this_thread::sleep_for(kNap);
    }
  }

  void record_stream(const at::Tensor& t, Stream stream) override {
    if (t.is_cuda())
      c10::cuda::CUDACachingAllocator::recordStream(t.storage().data_ptr(), cuda_stream(stream));
  }

  // Not while a group launches: locking and unlocking pages may wait for busy GPUs.
  std::shared_ptr<void> pinned_memory(std::size_t bytes) override {
    const LaunchGate::Pass pass(launch_gate(), kGateTimeout);
    if (!pass.granted()) return nullptr;
    const c10::cuda::CUDAGuard guard(device());
    void* memory = nullptr;
    if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable) != cudaSuccess) {
      static_cast<void>(cudaGetLastError());  // the pool continues with ordinary memory
      return nullptr;
    }
    return {memory, [device = device()](void* p) { free_pinned(device, p); }};
  }

  std::string why_no_graphs() const override { return why_no_cuda_graphs(); }

  std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work) override {
    return graphs_.capture(work, [this](Stream stream) { return cuda_stream(stream); });
  }

 private:
  // Without access of the reading GPU CUDA copies between GPUs through the host's memory. LibTorch
  // enables access once for each pair; where a pair has none, that copy is correct and slower.
  static void allow_access(const at::Tensor& to, const at::Tensor& from) {
    if (to.is_cuda() && from.is_cuda() && to.device() != from.device())
      static_cast<void>(at::cuda::get_p2p_access(to.device().index(), from.device().index()));
  }
  static c10::cuda::CUDAStream new_stream(int gpu) {
    return c10::cuda::getStreamFromPool(/*isHighPriority=*/false,
                                        static_cast<c10::DeviceIndex>(gpu));
  }
  c10::cuda::CUDAStream cuda_stream(Stream stream) {
    auto& taken = streams_[static_cast<std::size_t>(stream)];
    if (!taken) taken = new_stream(gpu_);
    return *taken;
  }

  const int gpu_;
  std::array<std::optional<c10::cuda::CUDAStream>, kStreams> streams_;
  CudaGraphs graphs_{gpu_};
};

Expected<cudaDeviceProp> properties_of(int gpu) {
  cudaDeviceProp properties{};
  if (const auto error = cudaGetDeviceProperties(&properties, gpu); error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return cuda_error("cuda:" + std::to_string(gpu), error);
  }
  return properties;
}

Expected<std::shared_ptr<DeviceRuntime>> open_gpu(int gpu) {
  try {
    const auto properties = properties_of(gpu);
    if (!properties) return properties.error();
    const auto fits = cuda::check_kernels(
        GRAPEVINE_CUDA_ARCHITECTURES, "cuda:" + std::to_string(gpu) + " (" + properties->name + ")",
        properties->major, properties->minor);
    if (!fits) spdlog::warn("{}", fits.error().message);  // LibTorch has kernels of its own
    return std::shared_ptr<DeviceRuntime>(std::make_shared<CudaRuntime>(gpu));
  } catch (const std::exception& e) {
    return Error{Errc::failed, "cuda:" + std::to_string(gpu) + ": " + one_line(e)};
  }
}

// The same in all processes, independent of CUDA_VISIBLE_DEVICES and control groups.
Expected<std::string> id_of(int gpu) {
  const auto properties = properties_of(gpu);
  if (!properties) return properties.error();
  std::string id = "GPU-";
  for (const char byte : properties->uuid.bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    const auto value = static_cast<unsigned char>(byte);
    id += kDigits[value / 16];
    id += kDigits[value % 16];
  }
  return id;
}

// CUDA writes hexadecimal digits in upper case, the system in lower case.
Expected<std::string> pci_address_of(int gpu) {
  std::array<char, 32> text{};
  const auto error = cudaDeviceGetPCIBusId(text.data(), static_cast<int>(text.size()), gpu);
  if (error != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return cuda_error("the PCI address of cuda:" + std::to_string(gpu), error);
  }
  return lower_case(text.data());
}

}  // namespace

void register_cuda_devices() {
  GpuDriver driver;
  driver.visible = [] { return static_cast<int>(c10::cuda::device_count()); };
  driver.open = open_gpu;
  driver.id = id_of;
  driver.pci_address = pci_address_of;
#ifdef GRAPEVINE_NCCL
  driver.join_group = join_nccl_group;
  driver.process_groups = {cuda::NcclCommunicator::make_id, join_nccl_group_of_processes};
  driver.threads_left_behind = cuda::NcclCommunicator::threads_left_behind;
#endif
  register_cuda_driver(std::move(driver));
}

}  // namespace grapevine
