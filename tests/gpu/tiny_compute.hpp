// A TorchCompute over TinyData and TinyModel, for tests.
#pragma once
#include <memory>
#include <utility>

#include "gpu/torch_compute.hpp"
#include "tests/gpu/tiny_data.hpp"
#include "tests/gpu/tiny_model.hpp"

namespace grapevine {

inline TorchComputeConfig tiny_config(std::function<torch::nn::Sequential()> layers, Rank rank = 0,
                                      std::int64_t ranks = 2, std::int64_t batch_size = 5) {
  TorchComputeConfig config;
  config.model = tiny_factory(std::move(layers));
  config.model_name = "net";
  config.data = std::make_shared<const TinyData>(tiny_info());
  config.rank = rank;
  config.ranks = ranks;
  config.batch_size = batch_size;
  config.seed = 21;
  return config;
}

inline std::unique_ptr<Compute> make_tiny(TorchComputeConfig config) {
  return TorchCompute::make(std::move(config)).value();
}

inline GradientRequest tiny_request(const FrozenTensor& z, Step step = 0) {
  GradientRequest request;
  request.step = step;
  request.z = z;
  return request;
}

// Images of 3 x 8 x 8 for the layers below.
inline std::shared_ptr<const DataSet> tiny_images() {
  DataInfo info = tiny_info();
  info.sample_shape = {3, 8, 8};
  return std::make_shared<const TinyData>(info);
}

inline torch::nn::Sequential tiny_conv_layers() {
  return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)),
                               torch::nn::BatchNorm2d(8), torch::nn::Tanh(),
                               torch::nn::AdaptiveAvgPool2d(2), torch::nn::Flatten(),
                               torch::nn::Linear(32, 6));
}

}  // namespace grapevine
