// A worker with replicas on the fake devices of the tests.
#pragma once
#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/replicas/replicated_compute.hpp"
#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/fake_device/fake_group.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {

constexpr Duration kReplicasTimeout = std::chrono::seconds(60);

// A replica on each of `devices`, the first one being the lead. `config`: of all, whose streams
// violations name after `name`. REQUIRES: different devices where `grouped`.
inline std::unique_ptr<Compute> replicas_on_devices(const std::vector<int>& devices, bool grouped,
                                                    const TorchComputeConfig& config,
                                                    const std::string& name) {
  const auto group = grouped ? fake::group_join()(devices, kReplicasTimeout).value() : nullptr;
  const auto mean = grouped ? std::make_shared<HostMean>() : nullptr;
  std::shared_ptr<DeviceRuntime> lead;
  std::vector<std::unique_ptr<Compute>> replicas;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    TorchComputeConfig own = config;
    own.name = name + ", replica " + std::to_string(i);
    own.replica = i;
    own.replicas = devices.size();
    own.group = group;
    own.host_mean = mean;
    own.bucket_bytes = 64;
    own.runtime = fake::open_device(devices[i], own.name);
    if (i == 0) lead = own.runtime;
    replicas.push_back(make_tiny(std::move(own)));
  }
  return std::make_unique<ReplicatedCompute>(std::move(replicas), group, kReplicasTimeout, mean,
                                             lead);
}

}  // namespace grapevine
