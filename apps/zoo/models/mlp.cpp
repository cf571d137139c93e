// Multi-layer perceptron: two hidden layers of 128 rectified units.
#include "apps/zoo/models/builtin.hpp"
#include "apps/zoo/models/module_model.hpp"
#include "apps/zoo/models/shapes.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kMlpHidden = 128;

class Mlp : public torch::nn::Module {
 public:
  Mlp(std::int64_t inputs, std::int64_t outputs)
      : fc1_(register_module("fc1", torch::nn::Linear(inputs, kMlpHidden))),
        fc2_(register_module("fc2", torch::nn::Linear(kMlpHidden, kMlpHidden))),
        fc3_(register_module("fc3", torch::nn::Linear(kMlpHidden, outputs))) {}

  at::Tensor forward(const at::Tensor& input) {
    return fc3_(torch::relu(fc2_(torch::relu(fc1_(input.flatten(1))))));
  }

 private:
  torch::nn::Linear fc1_, fc2_, fc3_;
};

}  // namespace

Expected<ModelFactory> make_mlp(const DataInfo& info) {
  const Expected<std::int64_t> inputs = sample_size("mlp", info);
  if (!inputs) return inputs.error();
  return module_factory([inputs = *inputs, outputs = info.classes] {
    return std::make_shared<Mlp>(inputs, outputs);
  });
}

}  // namespace grapevine
