// ModuleModel: a torch::nn module as a Model.
#pragma once
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/model/model.hpp"

namespace grapevine {

// Sets the parameters of all layers from `seed` alone, to LibTorch's own defaults: weights and
// biases of linear and convolution layers uniform in ±1/sqrt(fan-in), of LSTM layers in
// ±1/sqrt(cells), embeddings standard normal, batch-norm and layer-norm scale 1 and shift 0.
// Throws on layers of other kinds that have parameters.
void initialise(torch::nn::Module& module, std::uint64_t seed);

class ModuleModel final : public Model {
 public:
  using Forward = std::function<at::Tensor(const at::Tensor&)>;

  ModuleModel(std::shared_ptr<torch::nn::Module> module, Forward forward);

  std::vector<NamedTensor> parameters() override;
  std::vector<NamedTensor> buffers() override;
  at::Tensor forward(const at::Tensor& input) override { return forward_(input); }
  void train(bool on) override { module_->train(on); }
  Expected<void> save(const std::string& path) override;

 private:
  std::shared_ptr<torch::nn::Module> module_;
  Forward forward_;
};

// A factory of modules that `make` builds. REQUIRES: the module has a method forward(Tensor).
template <class Make>
ModelFactory module_factory(Make make) {
  return [make](std::uint64_t seed) -> Expected<std::unique_ptr<Model>> {
    const auto module = make();
    initialise(*module, seed);
    return std::unique_ptr<Model>(std::make_unique<ModuleModel>(
        module, [module](const at::Tensor& input) { return module->forward(input); }));
  };
}

}  // namespace grapevine
