#include "algorithms/parts/debiased_model.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "algorithms/kernels/kernels.hpp"

namespace grapevine {

FrozenTensor debiased_model(const ModelState& model) {
  if (model.w == 1.0) return model.x;
  at::Tensor z = at::empty_like(model.x.read());
  kernels::debias(z, model.x.read(), model.w);
  return FrozenTensor::freeze(std::move(z));
}

}  // namespace grapevine
