// StagedCompute: a Compute of the host as one whose models and gradients are on a device.
#pragma once
#include <memory>
#include <utility>

#include "gpu/compute.hpp"
#include "gpu/device.hpp"

namespace grapevine::fake {

class StagedCompute final : public Compute {
 public:
  StagedCompute(std::shared_ptr<Compute> inner, std::shared_ptr<DeviceRuntime> runtime)
      : inner_(std::move(inner)), runtime_(std::move(runtime)) {}

  std::int64_t dimension() const override { return inner_->dimension(); }
  FrozenTensor initial_parameters() const override { return inner_->initial_parameters(); }
  FrozenTensor initial_buffers() const override { return inner_->initial_buffers(); }

  Gradient gradient(GradientRequest request) override {
    const auto scope = runtime_->enter(Stream::compute);
    request.z = request.z.on_host();
    request.buffers = request.buffers.on_host();
    request.recycled = {};
    Gradient result = inner_->gradient(std::move(request));
    result.value = result.value.on(runtime_->device());
    result.buffers = result.buffers.on(runtime_->device());
    return result;
  }
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override {
    return inner_->evaluate(z, buffers);
  }

 private:
  const std::shared_ptr<Compute> inner_;
  const std::shared_ptr<DeviceRuntime> runtime_;
};

}  // namespace grapevine::fake
