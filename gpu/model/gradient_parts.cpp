#include "gpu/model/gradient_parts.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "gpu/model/gradient_hooks.hpp"
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

void backward_in_parts(const at::Tensor& loss, const FlatTensors& parameters,
                       GradientParts& parts) {
  std::vector<bool> reached(parameters.tensors().size(), false);
  backward_by_parameter(loss, parameters, [&](std::size_t i, const at::Tensor& gradient) {
    parts.add(parameters.begin_of(i), gradient);
    reached[i] = true;
  });
  for (std::size_t i = 0; i < reached.size(); ++i)
    if (!reached[i])
      parts.add(parameters.begin_of(i),
                at::zeros({parameters.tensors()[i].numel()}, at::TensorOptions(at::kFloat)));
}

}  // namespace grapevine
