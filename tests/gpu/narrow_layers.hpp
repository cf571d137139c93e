// Layers whose gradients overflow at a chosen size, for tests of loss scaling.
#pragma once
#include <torch/torch.h>

#include <limits>
#include <memory>

#include "tests/gpu/tiny_model.hpp"

namespace grapevine {

// As if gradients went through fp16: those beyond its range become infinite.
class Overflow : public torch::autograd::Function<Overflow> {
 public:
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            double largest) {
    context->saved_data["largest"] = largest;
    return x * 1;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const at::Tensor& g = gradients[0];
    const double largest = context->saved_data["largest"].toDouble();
    const double infinity = std::numeric_limits<double>::infinity();
    return {g.masked_fill(g.abs() > largest, infinity), at::Tensor()};
  }
};

template <int kLargest>
class Narrow : public torch::nn::Module {
 public:
  at::Tensor forward(const at::Tensor& x) { return Overflow::apply(x, double{kLargest}); }
};

template <int kLargest>
torch::nn::Sequential narrow_layers() {
  return torch::nn::Sequential(torch::nn::Linear(3, 16), torch::nn::BatchNorm1d(16),
                               std::make_shared<TinyDropout>(), torch::nn::Linear(16, 6),
                               std::make_shared<Narrow<kLargest>>());
}

}  // namespace grapevine
