// TorchCompute: gradients of a LibTorch or TorchScript model on one device.
#pragma once
#include <c10/core/Device.h>

#include <cstdint>
#include <memory>
#include <string>

#include "gpu/batch_loader.hpp"
#include "gpu/compute.hpp"
#include "gpu/data_set.hpp"
#include "gpu/flat_params.hpp"
#include "gpu/model.hpp"
#include "gpu/objective.hpp"
#include "messages/expected.hpp"
#include "messages/ids.hpp"

namespace grapevine {

struct TorchComputeConfig {
  ModelFactory model;
  std::string model_name;  // for errors
  std::shared_ptr<const DataSet> data;
  Rank rank = 0;
  std::int64_t ranks = 1;
  std::int64_t batch_size = 32;  // of this rank
  std::int64_t eval_batch_size = 256;
  std::uint64_t seed =
      0;  // of the initial parameters, the order of samples, masks; same on all ranks
  at::Device device = at::kCPU;
  LoaderOptions loader;
};

// Parameters are bound to the request's z without a copy where z is on the device, and staged there
// otherwise; results are on z's device. Loss: gpu/objective.hpp. Parameters that the loss does not
// reach have gradient zero. Between calls the model holds no handle on any z.
//
// Layers of the zoo draw from gpu/step_generator.hpp, so that equal requests give equal bits
// whatever other threads do. TorchScript's own dropout does not: it draws from LibTorch's global
// generator.
//
// Not thread-safe; any number of instances may compute at once on threads of their own.
class TorchCompute final : public Compute {
 public:
  // Makes the model and checks it against the data with a forward pass of two samples. Errors:
  // the factory's, the sampler's, the data set's; bad_input where the model throws or its output is
  // not output_shape(info, 2), naming model, data and both shapes.
  static Expected<std::unique_ptr<Compute>> make(TorchComputeConfig config);

  std::int64_t dimension() const override { return parameters_.numel(); }
  FrozenTensor initial_parameters() const override { return initial_parameters_; }
  FrozenTensor initial_buffers() const override { return initial_buffers_; }

  // request.buffers may be undefined: the initial ones are used. request.recycled is used where it
  // is the only handle on [d] float32 on z's device. Errors are one line that names the rank.
  Gradient gradient(GradientRequest request) override;

  // Evaluation mode, in batches of eval_batch_size. Errors: a data set without test samples, and
  // those of model and data. A loss that is not finite is returned as it is.
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override;

 private:
  TorchCompute(TorchComputeConfig config, std::unique_ptr<Model> model, FlatTensors parameters,
               Sampler sampler);

  Expected<void> check_fit();
  Expected<void> check_request(const FrozenTensor& z, const FrozenTensor& buffers) const;
  Expected<Gradient> try_gradient(GradientRequest& request);
  Expected<void> forward_backward(const FrozenTensor& z, const Batch& batch, at::Tensor& flat,
                                  Gradient& result);
  Expected<Evaluation> try_evaluate(const FrozenTensor& z, const FrozenTensor& buffers);
  FrozenTensor on_device(const FrozenTensor& z) const;
  void load_buffers(const FrozenTensor& buffers);
  void synchronize() const;

  TorchComputeConfig config_;
  std::unique_ptr<Model> model_;
  FlatTensors parameters_;
  FlatTensors buffers_;
  FrozenTensor initial_parameters_;
  FrozenTensor initial_buffers_;
  BatchLoader loader_;
};

}  // namespace grapevine
