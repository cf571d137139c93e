// The convolution that residual networks are made of.
#pragma once
#include <torch/torch.h>

namespace grapevine {

// `kernel` × `kernel`, odd, padded so that stride 1 keeps the sides; no bias, as batch-norm
// follows.
inline torch::nn::Conv2d plain_convolution(std::int64_t in, std::int64_t out, std::int64_t kernel,
                                           std::int64_t stride) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

}  // namespace grapevine
