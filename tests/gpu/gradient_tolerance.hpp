// How far a gradient that another device computed may be from the CPU's, calibrated by the model.
#pragma once
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <cstdint>
#include <sstream>
#include <string>
#include <utility>

#include "gpu/model/precision.hpp"
#include "messages/frozen_tensor.hpp"

namespace grapevine {

// Half of |a - b|^2 / |b|^2: 1 - cosine where the norms are equal, more where they are not.
inline double distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return ((x - y).square().sum() / y.square().sum()).item<double>() / 2;
}

// By how much a value moves, relative to it, where it is rounded to `precision`. fp32: by several
// roundings, as GPUs sum in another order and compute convolutions by Winograd's algorithm.
inline double rounding_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return 0x1p-20;
    case Precision::tf32:
    case Precision::fp16:
      return 0x1p-11;
    case Precision::bf16:
      break;
  }
  return 0x1p-8;
}

// `z` with a normal error of that relative size in each value.
inline FrozenTensor moved(const FrozenTensor& z, double rounding, std::uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const at::Tensor error = at::randn({z.numel()}, generator, at::TensorOptions(at::kDouble));
  const at::Tensor x = z.read().to(at::kDouble);
  return FrozenTensor::freeze((x * (1 + rounding * error)).to(at::kFloat));
}

// Layers that do not amplify rounding also compute sums of many products: their distance exceeds
// that of moved parameters, which is tiny there.
inline double always_allowed(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return 1e-6;
    case Precision::tf32:
    case Precision::fp16:
      return 1e-3;
    case Precision::bf16:
      break;
  }
  return 2e-2;
}

// Why `found` cannot be the gradient `expected`, computed in `precision`; empty: it can. Models
// differ by orders of magnitude in how they amplify rounding: batch normalisation over eight values
// makes the gradients of deep networks chaotic. So `of_moved`, the CPU's gradient at
// moved(z, rounding_of(precision)), is the measure. Where that is at a distance of more than
// kChaotic, a gradient says nothing, and only the loss can be compared.
inline std::string why_unlike(const at::Tensor& found, const at::Tensor& expected,
                              const at::Tensor& of_moved, Precision precision) {
  constexpr double kChaotic = 0.1, kTimes = 4;
  const double measure = distance(of_moved, expected);
  if (measure > kChaotic) return "";
  const double allowed = kTimes * measure + always_allowed(precision);
  const double is = distance(found, expected);
  if (is <= allowed) return "";  // not so where it is NaN
  std::ostringstream why;
  why << "its distance is " << is << ", where " << allowed << " is allowed: that of moved "
      << "parameters is " << measure;
  return why.str();
}

}  // namespace grapevine
