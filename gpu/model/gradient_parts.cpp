#include "gpu/model/gradient_parts.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "messages/check.hpp"

namespace grapevine {

GradientParts::GradientParts(Step step, PartBegins begins, std::int64_t d, const GivePart& give)
    : step_(step), give_(give) {
  GRAPEVINE_CHECK(begins && !begins->empty() && begins->front() == 0 && begins->back() < d,
                  "parts of another gradient than one of ", d);
  for (std::size_t i = 0; i < begins->size(); ++i) {
    const std::int64_t begin = (*begins)[i], end = i + 1 < begins->size() ? (*begins)[i + 1] : d;
    parts_.push_back({begin, end, end - begin, {}});
  }
}

void GradientParts::add(std::int64_t begin, const at::Tensor& values) {
  const at::NoGradGuard no_grad;
  const at::Tensor flat = values.reshape({-1});
  const std::int64_t end = begin + flat.numel();
  // The first part that ends behind `begin`.
  auto part = std::upper_bound(parts_.begin(), parts_.end(), begin,
                               [](std::int64_t at, const Part& each) { return at < each.end; });
  for (; part != parts_.end() && part->begin < end; ++part) {
    const std::int64_t from = std::max(begin, part->begin), to = std::min(end, part->end);
    if (!part->values.defined()) part->values = at::empty({part->end - part->begin}, at::kFloat);
    part->values.narrow(0, from - part->begin, to - from)
        .copy_(flat.narrow(0, from - begin, to - from));
    part->missing -= to - from;
    GRAPEVINE_CHECK(part->missing >= 0, "an element of a gradient was computed twice");
  }
  give_complete();
}

at::Tensor GradientParts::finish() {
  GRAPEVINE_CHECK(parts_.size() == 1 && parts_.front().missing == 0, "a part of the gradient is ",
                  "missing");
  return std::move(parts_.front().values);
}

void GradientParts::give_complete() {
  while (parts_.size() > 1 && parts_.back().missing == 0) give(parts_.back());
}

void GradientParts::give(Part& part) {
  GradientPart complete;
  complete.step = step_;
  complete.begin = part.begin;
  complete.value = FrozenTensor::freeze(std::move(part.values));
  parts_.pop_back();
  give_(std::move(complete));
}

namespace {

namespace autograd = torch::autograd;

// Runs where autograd has added up all that reaches a parameter.
class TakeGradient final : public autograd::FunctionPostHook {
 public:
  TakeGradient(at::Tensor parameter, std::int64_t begin, GradientParts& parts, bool& reached)
      : parameter_(std::move(parameter)), begin_(begin), parts_(parts), reached_(reached) {}

  autograd::variable_list operator()(const autograd::variable_list& outputs,
                                     const autograd::variable_list& /*inputs*/) override {
    const at::Tensor gradient = std::exchange(parameter_.mutable_grad(), at::Tensor());
    if (gradient.defined()) parts_.add(begin_, gradient);
    reached_ = gradient.defined();
    return outputs;
  }

 private:
  const at::Tensor parameter_;
  const std::int64_t begin_;
  GradientParts& parts_;
  bool& reached_;
};

// A parameter's place at the end of the graph, with the hook as long as this lives.
class HookedEnd {
 public:
  HookedEnd(const at::Tensor& parameter, std::int64_t begin, GradientParts& parts)
      : end_(autograd::impl::grad_accumulator(parameter)),
        hook_(end_->add_post_hook(
            std::make_unique<TakeGradient>(parameter, begin, parts, reached_))) {}
  ~HookedEnd() { end_->del_post_hook(hook_); }
  HookedEnd(const HookedEnd&) = delete;
  HookedEnd& operator=(const HookedEnd&) = delete;

  bool reached() const { return reached_; }

 private:
  bool reached_ = false;
  // Another kind of pointer since LibTorch 2.15.
  const decltype(autograd::impl::grad_accumulator(at::Tensor())) end_;
  const std::uintptr_t hook_;
};

}  // namespace

void backward_in_parts(const at::Tensor& loss, const FlatTensors& parameters,
                       GradientParts& parts) {
  std::deque<HookedEnd> ends;
  std::int64_t begin = 0;
  for (const at::Tensor& parameter : parameters.tensors()) {
    ends.emplace_back(parameter, begin, parts);
    begin += parameter.numel();
  }
  autograd::backward({loss}, {}, /*retain_graph=*/false, /*create_graph=*/false,
                     parameters.tensors());
  begin = 0;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const std::int64_t size = parameters.tensors()[i].numel();
    if (!ends[i].reached()) parts.add(begin, at::zeros({size}, at::kFloat));
    begin += size;
  }
}

}  // namespace grapevine
