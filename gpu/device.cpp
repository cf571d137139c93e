#include "gpu/device.hpp"

#include <ATen/ATen.h>

#include <limits>
#include <stdexcept>
#include <utility>

#include "messages/check.hpp"
#include "messages/text/names.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

class HostRuntime final : public DeviceRuntime {
 public:
  at::Device device() const override { return at::kCPU; }
  bool in_host_memory() const override { return true; }
  std::unique_ptr<StreamScope> enter(Stream) override { return nullptr; }
  void copy(Stream, const at::Tensor& to, const at::Tensor& from) override { to.copy_(from); }
  EventHandle record(Stream) override { return nullptr; }
  void wait(Stream, const EventHandle&) override {}
  Expected<void> host_wait(const EventHandle&, Duration) override { return {}; }
  void record_stream(const at::Tensor&, Stream) override {}
  std::shared_ptr<void> pinned_memory(std::size_t) override { return nullptr; }
};

GpuDriver& cuda_driver() {
  static GpuDriver driver;
  return driver;
}

Error no_cuda(const std::string& typed) {
  return bad_input("--device " + typed +
                   ": CUDA is not in this build: use cpu or auto, or build with a LibTorch that "
                   "has CUDA");
}

// The number in "cuda:3"; -1 for anything else.
int gpu_in(const std::string& typed) {
  const std::string prefix = "cuda:";
  if (typed.rfind(prefix, 0) != 0) return -1;
  const auto gpu = number_in<int>(std::string_view(typed).substr(prefix.size()));
  return gpu && *gpu >= 0 ? *gpu : -1;
}

Error no_device(const std::string& typed) {
  if (typed.rfind("cuda", 0) == 0)
    return bad_input("--device " + typed + ": expected cpu, cuda, cuda:INDEX or auto");
  return unknown_name("--device", typed, {"cpu", "cuda", "cuda:INDEX", "auto"});
}

}  // namespace

std::unique_ptr<DeviceGraph> DeviceRuntime::capture(const std::function<void()>&) {
  throw std::logic_error(device().str() + ": " + why_no_graphs());
}

std::shared_ptr<DeviceRuntime> host_runtime() { return std::make_shared<HostRuntime>(); }

void register_cuda_driver(GpuDriver driver) { cuda_driver() = std::move(driver); }

Gpus visible_gpus() {
  const GpuDriver& driver = cuda_driver();
  if (!driver.open) return {};
  return {true, driver.visible()};
}

GroupJoin cuda_group_join() { return cuda_driver().join_group; }

ProcessGroups cuda_process_groups() { return cuda_driver().process_groups; }

Expected<std::vector<std::string>> device_ids(const std::vector<at::Device>& devices) {
  std::vector<std::string> ids;
  for (const at::Device device : devices) {
    if (device.is_cpu()) {
      ids.emplace_back();
      continue;
    }
    if (!cuda_driver().id)
      return Error{Errc::unavailable, "device " + device.str() + " has no id in this build"};
    auto id = cuda_driver().id(device.index());
    if (!id) return id.error();
    ids.push_back(*std::move(id));
  }
  return ids;
}

Expected<std::string> pci_address(at::Device gpu) {
  if (!gpu.is_cpu() && cuda_driver().pci_address) return cuda_driver().pci_address(gpu.index());
  return Error{Errc::unavailable, "the PCI address of " + gpu.str() + " is not known"};
}

bool device_threads_left_behind() {
  const auto& left_behind = cuda_driver().threads_left_behind;
  return left_behind && left_behind() > 0;
}

Expected<std::shared_ptr<DeviceRuntime>> open_device(at::Device device) {
  if (device.is_cpu()) return host_runtime();
  if (!device.is_cuda() || !cuda_driver().open)
    return Error{Errc::unavailable, "device " + device.str() + " is not in this build: use cpu"};
  return cuda_driver().open(device.has_index() ? device.index() : 0);
}

Expected<at::Device> choose_device(const std::string& typed, const Gpus& gpus,
                                   std::int64_t local_rank) {
  GRAPEVINE_CHECK(local_rank >= 0, local_rank);
  if (typed == "cpu" || (typed == "auto" && gpus.visible < 1)) return at::Device(at::kCPU);
  const bool any = typed == "cuda" || typed == "auto";
  const int gpu = gpu_in(typed);
  if (!any && gpu < 0) return no_device(typed);
  if (!gpus.built_in) return no_cuda(typed);
  if (gpus.visible < 1)
    return bad_input("--device " + typed + ": no CUDA GPU is visible here: use cpu or auto");
  if (gpu >= gpus.visible)
    return bad_input("--device " + typed + ": the visible GPUs are cuda:0..cuda:" +
                     std::to_string(gpus.visible - 1) + ": give one of them");
  const auto chosen = any ? static_cast<int>(local_rank % gpus.visible) : gpu;
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(chosen));
}

Expected<void> check_device_name(const std::string& typed) {
  if (typed == "cpu" || typed == "cuda" || typed == "auto") return {};
  const int gpu = gpu_in(typed);
  if (gpu < 0) return no_device(typed);
  if (gpu < std::numeric_limits<at::DeviceIndex>::max()) return {};
  return bad_input(
      "--device " + typed +
      ": no machine has so many GPUs: give the number that the GPU has on its machine, "
      "from 0, or cuda");
}

Expected<std::vector<at::Device>> choose_devices(const std::string& typed, const Gpus& gpus,
                                                 std::int64_t local_worker, std::int64_t each) {
  std::vector<at::Device> devices;
  for (std::int64_t i = 0; i < each; ++i) {
    const auto device = choose_device(typed, gpus, local_worker * each + i);
    if (!device) return device.error();
    devices.push_back(*device);
  }
  return devices;
}

}  // namespace grapevine
