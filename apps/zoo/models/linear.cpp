// Linear (softmax) regression.
#include "apps/zoo/models/builtin.hpp"
#include "apps/zoo/models/module_model.hpp"
#include "apps/zoo/models/shapes.hpp"

namespace grapevine {
namespace {

class Linear : public torch::nn::Module {
 public:
  Linear(std::int64_t inputs, std::int64_t outputs)
      : fc_(register_module("fc", torch::nn::Linear(inputs, outputs))) {}

  at::Tensor forward(const at::Tensor& input) { return fc_(input.flatten(1)); }

 private:
  torch::nn::Linear fc_;
};

}  // namespace

Expected<ModelFactory> make_linear(const DataInfo& info) {
  const Expected<std::int64_t> inputs = sample_size("linear", info);
  if (!inputs) return inputs.error();
  return module_factory([inputs = *inputs, outputs = info.classes] {
    return std::make_shared<Linear>(inputs, outputs);
  });
}

}  // namespace grapevine
