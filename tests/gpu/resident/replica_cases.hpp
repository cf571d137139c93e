// Workers with replicas whose model is on the first device: the cases that all kinds of them have,
// and the peer beside them.
#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/narrow_layers.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {

struct ReplicaCase {
  const char* name;
  torch::nn::Sequential (*layers)();
  bool scale_loss = false;
  std::int64_t passes = 1;

  TorchComputeConfig config() const {
    constexpr std::int64_t kBatch = 12;
    TorchComputeConfig config = tiny_config(layers, 1, 2, kBatch);
    config.scale_loss = scale_loss;
    config.passes = passes;
    return config;
  }
};

inline torch::nn::Sequential layers_with_dropout() { return tiny_layers_with_dropout(); }
inline torch::nn::Sequential overflowing_layers() { return narrow_layers<100>(); }

inline const std::vector<ReplicaCase> kReplicaCases = {
    {"batch norm", &tiny_layers},
    {"no buffers", &plain_layers},
    {"dropout", &layers_with_dropout},
    {"several passes", &plain_layers, false, 3},
    {"gradients that overflow", &overflowing_layers, true}};

class ReplicasTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::reset();
    at::set_num_threads(1);
  }
  void TearDown() override { fake::reset(); }

  // As the peer of a worker on `device` has it: written by its exchange stream.
  FrozenTensor resident(const at::Tensor& values, int device) {
    const auto scope = peer(device)->enter(Stream::exchange);
    at::Tensor here =
        at::empty(values.sizes(), at::TensorOptions(at::kFloat).device(fake::device(device)));
    here.copy_(values);
    here.mul_(1);
    return FrozenTensor::freeze(std::move(here));
  }
  const std::shared_ptr<DeviceRuntime>& peer(int device) const {
    return device == 0 ? peer_0_ : peer_1_;
  }
  static FrozenTensor point(const Compute& compute, Step step) {
    at::manual_seed(static_cast<std::uint64_t>(step) + 3);
    return FrozenTensor::freeze(at::randn({compute.dimension()}));
  }

 private:
  const std::shared_ptr<DeviceRuntime> peer_0_ = fake::open_device(0, "peer");
  const std::shared_ptr<DeviceRuntime> peer_1_ = fake::open_device(1, "peer");
};

}  // namespace grapevine
