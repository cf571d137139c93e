#include "algorithms/parts/gradient_tracker.hpp"

#include <ATen/ATen.h>

#include <utility>

namespace grapevine {

const at::Tensor& GradientTracker::add(at::Tensor gradient) {
  if (!y_.defined())
    y_ = gradient.clone();
  else
    y_.add_(gradient).sub_(newest_);
  newest_ = std::move(gradient);
  return y_;
}

void GradientTracker::fields(Archive& a, std::int64_t d) {
  a.vector("y", y_, d);
  a.vector("newest", newest_, d);
  a.require(y_.defined() == newest_.defined(), "y", "has no gradient beside it");
}

}  // namespace grapevine
