#include "algorithms/parts/gradient_tracker.hpp"

#include <ATen/ATen.h>

#include <utility>

namespace grapevine {

GradientTracker::GradientTracker(std::int64_t d, at::Device device, BufferPool& pool)
    : d_(d), pool_(pool) {
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
  at::Tensor both = pool_.take(mixed_.x);
  both.narrow(0, 0, d_).copy_(model.x.read());
  both.narrow(0, d_, d_).copy_(y_);
  pool_.give(std::move(mixed_.x));
  mixed_ = model;
  mixed_.x = FrozenTensor::freeze(std::move(both));
}

void GradientTracker::split(ModelState& model) {
  at::Tensor x = pool_.take(model.x);
  x.copy_(mixed_.x.read().narrow(0, 0, d_));
  pool_.give(std::exchange(model.x, FrozenTensor::freeze(std::move(x))));
  model.w = mixed_.w;
  y_.copy_(mixed_.x.read().narrow(0, d_, d_));
}

void GradientTracker::fields(Archive& a) {
  a.vector("y", y_, d_);
  a.vector("newest", newest_, d_);
  a.require(y_.defined() == newest_.defined(), "y", "has no gradient beside it");
}

}  // namespace grapevine
