// TinyModel: any torch::nn module as a Model, for tests.
#pragma once
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/model/model.hpp"
#include "gpu/model/step_generator.hpp"

namespace grapevine {

class TinyModel : public Model {
 public:
  explicit TinyModel(torch::nn::Sequential layers) : layers_(std::move(layers)) {}

  std::vector<NamedTensor> parameters() override {
    std::vector<NamedTensor> all;
    for (const auto& item : layers_->named_parameters()) all.push_back({item.key(), item.value()});
    return all;
  }
  std::vector<NamedTensor> buffers() override {
    std::vector<NamedTensor> all;
    for (const auto& item : layers_->named_buffers()) all.push_back({item.key(), item.value()});
    return all;
  }
  at::Tensor forward(const at::Tensor& input) override { return layers_->forward(input); }
  void train(bool on) override { layers_->train(on); }
  Expected<void> save(const std::string&) override { return {}; }

 private:
  torch::nn::Sequential layers_;
};

// Calls `watch` before each forward pass.
class WatchedModel final : public TinyModel {
 public:
  using Watch = std::function<void(Model&)>;
  WatchedModel(torch::nn::Sequential layers, Watch watch)
      : TinyModel(std::move(layers)), watch_(std::move(watch)) {}
  at::Tensor forward(const at::Tensor& input) override {
    watch_(*this);
    return TinyModel::forward(input);
  }

 private:
  Watch watch_;
};

// Doubles or drops each value by a draw from the thread's step generator.
class TinyDropout : public torch::nn::Module {
 public:
  at::Tensor forward(const at::Tensor& x) {
    if (!is_training()) return x;
    return x * at::empty_like(x).bernoulli_(0.5, step_generator(x.device())) * 2;
  }
};

// A factory of the layers that `make` builds, initialised from the seed.
inline ModelFactory tiny_factory(std::function<torch::nn::Sequential()> make) {
  return [make](std::uint64_t seed) -> Expected<std::unique_ptr<Model>> {
    torch::manual_seed(seed);
    return std::unique_ptr<Model>(std::make_unique<TinyModel>(make()));
  };
}

// The same, of models that are watched.
inline ModelFactory watched_factory(std::function<torch::nn::Sequential()> make,
                                    WatchedModel::Watch watch) {
  return [make, watch](std::uint64_t seed) -> Expected<std::unique_ptr<Model>> {
    torch::manual_seed(seed);
    return std::unique_ptr<Model>(std::make_unique<WatchedModel>(make(), watch));
  };
}

inline torch::nn::Sequential tiny_layers() {
  return torch::nn::Sequential(torch::nn::Linear(3, 8), torch::nn::BatchNorm1d(8),
                               torch::nn::Tanh(), torch::nn::Linear(8, 6));
}

inline torch::nn::Sequential plain_layers() {
  return torch::nn::Sequential(torch::nn::Linear(3, 8), torch::nn::Tanh(), torch::nn::Linear(8, 6));
}

inline torch::nn::Sequential tiny_layers_with_dropout() {
  return torch::nn::Sequential(torch::nn::Linear(3, 64), torch::nn::Tanh(),
                               std::make_shared<TinyDropout>(), torch::nn::Linear(64, 6));
}

}  // namespace grapevine
