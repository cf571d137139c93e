// The de-biased model of a rank.
#pragma once
#include "algorithms/role.hpp"

namespace grapevine {

// z = x / w, [d]. Shares memory with x where w == 1.
FrozenTensor debiased_model(const ModelState& model);

}  // namespace grapevine
