#include "actors/run/peer/device_receives.hpp"

#include <ATen/ops/empty.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <utility>

#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace {

// LibTorch's stream is idle; longer waits delay all links of the process.
constexpr std::chrono::milliseconds kLongestWait{1};

}  // namespace

DeviceReceives::DeviceReceives(std::shared_ptr<DeviceRuntime> device, Kind kind,
                               std::vector<bool> on_device)
    : device_(std::move(device)), kind_(kind), on_device_(std::move(on_device)) {}

at::Tensor DeviceReceives::allocate(Rank to, at::IntArrayRef sizes, at::ScalarType dtype) {
  if (!on_device_[static_cast<std::size_t>(to)]) return {};
  if (left_ > 0) {
    --left_;
    return {};
  }
  std::string why;
  at::Tensor memory = try_allocate(sizes, dtype, why);
  if (memory.defined())
    pause_ = 0;
  else
    pause(to, why);
  return memory;
}

at::Tensor DeviceReceives::try_allocate(at::IntArrayRef sizes, at::ScalarType dtype,
                                        std::string& why) {
  try {
    at::Tensor memory = at::empty(sizes, at::TensorOptions(dtype).device(device_->device()));
    const Expected<void> unused = device_->host_wait(device_->record(Stream::upload), kLongestWait);
    if (unused) return memory;
    why = unused.error().message;
  } catch (const std::exception&) {
    why = exception_line(std::current_exception());
  }
  return {};
}

void DeviceReceives::pause(Rank to, const std::string& why) {
  pause_ = left_ = pause_ == 0 ? kFirstPause : std::min(2 * pause_, kLongestPause);
  spdlog::log(std::exchange(reported_, true) ? spdlog::level::debug : spdlog::level::info,
              "rank {}: a message, and the next {}, are received in the host's memory instead of "
              "the GPU's: {}",
              to, pause_, why);
}

Expected<std::shared_ptr<DeviceMemory>> memory_for_receives(
    const std::vector<std::shared_ptr<DeviceRuntime>>& devices) {
  std::optional<at::Device> one;
  std::vector<bool> on_device;
  for (const auto& device : devices) {
    on_device.push_back(device != nullptr);
    if (device == nullptr) continue;
    if (one && *one != device->device()) {
      spdlog::info(
          "ucx: this process has models on several GPUs: their messages to other processes are "
          "sent from pinned host memory");
      return std::shared_ptr<DeviceMemory>();
    }
    one = device->device();
  }
  if (!one || !one->is_cuda()) return std::shared_ptr<DeviceMemory>();
  auto opened = open_device(*one);
  if (!opened) return opened.error();
  return std::shared_ptr<DeviceMemory>(std::make_shared<DeviceReceives>(
      *std::move(opened), DeviceMemory::Kind::cuda, std::move(on_device)));
}

}  // namespace grapevine
