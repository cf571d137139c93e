// Dropout whose masks are reproducible.
#pragma once
#include <ATen/core/Tensor.h>

namespace grapevine {

// Zeroes each value with `probability` and scales the others by 1 / (1 − probability), while
// `training`; else the input itself (Srivastava et al. 2014). Draws from the thread's step
// generator (gpu/model/step_generator.hpp). REQUIRES: 0 <= probability < 1.
at::Tensor seeded_dropout(const at::Tensor& input, double probability, bool training);

}  // namespace grapevine
