// WatchedCompute: a Compute whose gradients are seen by the checks of a run.
#pragma once
#include <functional>
#include <memory>

#include "gpu/compute.hpp"

namespace grapevine {

// Computes as `inner` does and gives each gradient that is not an error to `seen`.
std::shared_ptr<Compute> watched_compute(
    std::shared_ptr<Compute> inner, std::function<void(Step, const FrozenTensor& gradient)> seen);

}  // namespace grapevine
