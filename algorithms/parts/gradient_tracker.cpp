#include "algorithms/parts/gradient_tracker.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "messages/tensor_memory.hpp"

namespace grapevine {

GradientTracker::GradientTracker(std::int64_t d, at::Device device) : d_(d) {
  mixed_.x = FrozenTensor::freeze(at::zeros({2 * d}, at::TensorOptions(at::kFloat).device(device)));
}

void GradientTracker::add(at::Tensor gradient) {
  if (!y_.defined())
    y_ = gradient.clone();
  else
    y_.add_(gradient).sub_(newest_);
  newest_ = std::move(gradient);
}

void GradientTracker::begin_at_zero() {
  if (y_.defined()) return;
  const auto options = at::TensorOptions(at::kFloat).device(mixed_.x.device());
  y_ = at::zeros({d_}, options);
  newest_ = at::zeros({d_}, options);
}

void GradientTracker::join(const ModelState& model) {
  begin_at_zero();
  mixed_ = model;
  mixed_.x = FrozenTensor::freeze(at::cat({model.x.read(), y_}));
}

void GradientTracker::split(ModelState& model) {
  at::Tensor x = empty_successor(model.x, {d_});
  x.copy_(mixed_.x.read().narrow(0, 0, d_));
  model.x = FrozenTensor::freeze(std::move(x));
  model.w = mixed_.w;
  y_ = mixed_.x.read().narrow(0, d_, d_).clone();
}

void GradientTracker::fields(Archive& a) {
  a.vector("y", y_, d_);
  a.vector("newest", newest_, d_);
  a.require(y_.defined() == newest_.defined(), "y", "has no gradient beside it");
}

}  // namespace grapevine
