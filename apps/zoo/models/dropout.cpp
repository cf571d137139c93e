#include "apps/zoo/models/dropout.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "gpu/model/step_generator.hpp"

namespace grapevine {

at::Tensor seeded_dropout(const at::Tensor& input, double probability, bool training) {
  if (!training || probability == 0) return input;
  const double keep = 1 - probability;
  at::Tensor mask;
  {
    const at::NoGradGuard no_grad;
    mask = at::empty_like(input).bernoulli_(keep, step_generator(input.device())).div_(keep);
  }
  return input * mask;
}

}  // namespace grapevine
