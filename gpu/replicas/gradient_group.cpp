#include "gpu/replicas/gradient_group.hpp"

#include <spdlog/spdlog.h>

#include "gpu/device.hpp"

namespace grapevine {
namespace {

// The reason not to use NCCL; empty: none.
std::string obstacle(const std::vector<at::Device>& devices, const std::string& shared,
                     bool built_in) {
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (!devices[i].is_cuda()) return "replica " + std::to_string(i) + " computes on the CPU";
    for (std::size_t j = 0; j < i; ++j)
      if (devices[i] == devices[j])
        return "replicas " + std::to_string(j) + " and " + std::to_string(i) + " share " +
               devices[i].str();
  }
  if (!shared.empty()) return shared;
  return built_in ? "" : "this build has no NCCL";
}

}  // namespace

GroupChoice choose_group(const std::vector<at::Device>& devices, const std::string& shared,
                         bool built_in) {
  const std::string replicas = std::to_string(devices.size()) + " replicas: ";
  const std::string against = obstacle(devices, shared, built_in);
  if (!against.empty())
    return {false, replicas + "gradients are summed on the host, as " + against};
  return {true, replicas + "gradients are summed by NCCL, on a GPU each"};
}

Expected<std::shared_ptr<GradientGroup>> open_group(const std::string& worker,
                                                    const std::vector<at::Device>& devices,
                                                    const std::string& shared, Duration timeout) {
  const GroupJoin join = cuda_group_join();
  const GroupChoice choice = choose_group(devices, shared, join != nullptr);
  const bool as_wished = choice.nccl || !devices.front().is_cuda();
  spdlog::log(as_wished ? spdlog::level::info : spdlog::level::warn, "{}: {}", worker, choice.why);
  if (!choice.nccl) return std::shared_ptr<GradientGroup>();
  std::vector<int> gpus;
  for (const at::Device device : devices) gpus.push_back(device.index());
  return join(gpus, timeout);
}

}  // namespace grapevine
