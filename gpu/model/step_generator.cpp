#include "gpu/model/step_generator.hpp"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>

#include <cstddef>
#include <mutex>
#include <optional>

namespace grapevine {
namespace {

struct DeviceGenerator {
  at::Device device;
  at::Generator generator;
};

at::Generator make_generator(at::Device device) {
  // Devices other than GPUs have no generator of LibTorch's: the host's serves them.
  if (!device.is_cuda()) return at::detail::createCPUGenerator();
  // A clone of the default generator is how a device makes one without naming its back end here.
  at::Generator shared = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(shared.mutex());
  return shared.clone();
}

}  // namespace

at::Generator& step_generator(at::Device device) {
  thread_local std::optional<DeviceGenerator> own;
  if (!own || own->device != device) own = DeviceGenerator{device, make_generator(device)};
  return own->generator;
}

void seed_step_generator(at::Device device, std::uint64_t seed) {
  at::Generator& generator = step_generator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

namespace {

at::Tensor state_of(at::Generator generator) {
  const std::lock_guard<std::mutex> lock(generator.mutex());
  return generator.get_state();
}

}  // namespace

DrawWatch::DrawWatch(at::Device device)
    : generators_{step_generator(device), at::globalContext().defaultGenerator(at::kCPU)} {
  if (device.is_cuda()) generators_.push_back(at::globalContext().defaultGenerator(device));
  for (const at::Generator& each : generators_) states_.push_back(state_of(each));
}

bool DrawWatch::drew() const {
  for (std::size_t i = 0; i < generators_.size(); ++i)
    if (!state_of(generators_[i]).equal(states_[i])) return true;
  return false;
}

}  // namespace grapevine
