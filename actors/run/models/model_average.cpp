#include "actors/run/models/model_average.hpp"

#include <ATen/ops/cat.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>

#include "messages/check.hpp"

namespace grapevine {
namespace {

void accumulate(at::Tensor& sum, const FrozenTensor& value) {
  if (!value.defined()) return;
  if (sum.defined())
    sum.add_(value.on_host().read());
  else
    sum = value.on_host().read().to(at::kDouble);
}

// Straight into single precision: models are large, and temporaries of them count.
FrozenTensor mean(const at::Tensor& sum, std::int32_t count) {
  if (!sum.defined()) return {};
  at::Tensor result = at::empty(sum.sizes(), at::kFloat);
  at::div_out(result, sum, at::scalar_tensor(static_cast<double>(count), at::kDouble));
  return FrozenTensor::freeze(std::move(result));
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

void mean_into(float* out, const std::vector<const float*>& models, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    double sum = 0;
    for (const float* model : models) sum += model[i];
    out[i] = static_cast<float>(sum / static_cast<double>(models.size()));
  }
}

FrozenTensor mean_of(const std::vector<FrozenTensor>& models) {
  GRAPEVINE_CHECK(!models.empty(), "average of no models");
  if (!models.front().defined()) return {};
  at::Tensor result = at::empty(models.front().sizes(), at::kFloat);
  std::vector<FrozenTensor> here;
  std::vector<const float*> in;
  for (const FrozenTensor& model : models) {
    GRAPEVINE_CHECK(model.numel() == result.numel(), "models of different sizes");
    here.push_back(model.on_host());
    in.push_back(here.back().data<float>());
  }
  mean_into(result.data_ptr<float>(), in, result.numel());
  return FrozenTensor::freeze(std::move(result));
}

FrozenTensor concatenate(const std::vector<FrozenTensor>& parts) {
  GRAPEVINE_CHECK(!parts.empty(), "a model of no parts");
  if (parts.size() == 1) return parts.front().on_host();
  std::vector<at::Tensor> tensors;
  for (const FrozenTensor& part : parts) tensors.push_back(part.on_host().read());
  return FrozenTensor::freeze(at::cat(tensors));
}

}  // namespace grapevine
