#include "gpu/model/gradient_hooks.hpp"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

namespace grapevine {
namespace {

namespace autograd = torch::autograd;

// Runs where autograd has added up all that reaches a parameter.
class GradientHook final : public autograd::FunctionPostHook {
 public:
  GradientHook(at::Tensor parameter, std::size_t number, const TakeGradient& take)
      : parameter_(std::move(parameter)), number_(number), take_(take) {}

  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list& /*inputs*/) override {
    const at::Tensor gradient = std::exchange(parameter_.mutable_grad(), at::Tensor());
    if (gradient.defined()) take_(number_, gradient);
    return outputs;
  }

 private:
  const at::Tensor parameter_;
  const std::size_t number_;
  const TakeGradient& take_;
};

// A parameter's place at the end of the graph, with the hook as long as this lives.
class HookedEnd {
 public:
  HookedEnd(const at::Tensor& parameter, std::size_t number, const TakeGradient& take)
      : end_(autograd::impl::grad_accumulator(parameter)),
        hook_(end_->add_post_hook(std::make_unique<GradientHook>(parameter, number, take))) {}
  ~HookedEnd() { end_->del_post_hook(hook_); }
  HookedEnd(const HookedEnd&) = delete;
  HookedEnd& operator=(const HookedEnd&) = delete;

 private:
  // Another kind of pointer since LibTorch 2.15.
  const decltype(autograd::impl::grad_accumulator(at::Tensor())) end_;
  const std::uintptr_t hook_;
};

}  // namespace

void backward_by_parameter(const at::Tensor& loss, const FlatTensors& parameters,
                           const TakeGradient& take) {
  std::deque<HookedEnd> ends;
  for (const at::Tensor& parameter : parameters.tensors())
    ends.emplace_back(parameter, ends.size(), take);
  autograd::backward({loss}, {}, /*retain_graph=*/false, /*create_graph=*/false,
                     parameters.tensors());
}

}  // namespace grapevine
