// A backward pass whose gradients are handed over one by one, while it runs.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>

#include "gpu/model/flat_params.hpp"

namespace grapevine {

// Takes the gradient of a parameter, by its number in FlatTensors::tensors().
using TakeGradient = std::function<void(std::size_t parameter, const at::Tensor& gradient)>;

// Computes the gradients of `loss` and gives each to `take` as soon as it is complete, where
// autograd::grad() returns all at its end. None stays in a parameter. Parameters that the loss does
// not reach are not given. `take` is called once at a time and has returned when this returns: on
// this thread where all is in the host's memory, else on LibTorch's thread for the backward passes
// of the device, in the stream that computed the gradient. What it throws, this throws. REQUIRES:
// no parameter has a gradient.
void backward_by_parameter(const at::Tensor& loss, const FlatTensors& parameters,
                           const TakeGradient& take);

}  // namespace grapevine
