#include "actors/model_average.hpp"

#include <ATen/ATen.h>

#include "messages/check.hpp"

namespace grapevine {
namespace {

void accumulate(at::Tensor& sum, const FrozenTensor& value) {
  if (!value.defined()) return;
  if (sum.defined())
    sum.add_(value.read());
  else
    sum = value.read().to(at::kDouble);
}

FrozenTensor mean(const at::Tensor& sum, std::int32_t count) {
  if (!sum.defined()) return {};
  return FrozenTensor::freeze((sum / static_cast<double>(count)).to(at::kFloat));
}

}  // namespace

void ModelAverage::add(const FrozenTensor& z, const FrozenTensor& buffers) {
  accumulate(z_sum_, z);
  accumulate(buffers_sum_, buffers);
  ++count_;
}

FrozenTensor ModelAverage::z() const {
  GRAPEVINE_CHECK(count_ > 0, "average of no models");
  return mean(z_sum_, count_);
}

FrozenTensor ModelAverage::buffers() const {
  GRAPEVINE_CHECK(count_ > 0, "average of no models");
  return mean(buffers_sum_, count_);
}

double relative_distance(const FrozenTensor& a, const FrozenTensor& b) {
  const double difference = (a.read().to(at::kDouble) - b.read()).norm().item<double>();
  const double scale = b.read().to(at::kDouble).norm().item<double>();
  if (difference == 0) return 0;
  return difference / scale;
}

}  // namespace grapevine
