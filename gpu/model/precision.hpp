// Mixed precision: forward passes in 16 bits, parameters, sums and gradients in 32.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <string>

#include "messages/expected.hpp"

namespace grapevine {

enum class Precision { fp32, tf32, bf16, fp16 };

// "fp32" | "tf32" | "bf16" | "fp16"; what `device` can do of them. Errors (bad_input): another
// name; tf32 on the CPU, which has none; fp16 there, as LibTorch's kernels for it are incomplete.
Expected<Precision> parse_precision(const std::string& typed, at::Device device);

// How cuBLAS and cuDNN work from here on, in all threads of the process: products of float32
// matrices and convolutions in TF32 (a mantissa of 10 bits) for Precision::tf32, with all 23 bits
// for others, independent of LibTorch's default; `benchmark`: cuDNN times its algorithms for each
// new shape and takes the fastest, so that equal runs need not be bit-identical. Before training
// begins.
void set_math_mode(Precision precision, bool benchmark);

// While it lives, LibTorch's autocast chooses for each operation of this thread whether it runs in
// 16 bits (products, convolutions) or in 32 (batch-norm's statistics, soft-max, losses). Nothing
// for fp32 and tf32. The cast copies of the parameters are not kept between operations: they would
// outlive the binding of the parameters to z, in a cache that all threads share.
class AutocastScope {
 public:
  AutocastScope(Precision precision, at::DeviceType device);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  const bool on_;
  const at::DeviceType device_;
  bool was_on_ = false;
  bool kept_copies_ = false;
  at::ScalarType old_type_ = at::kFloat;
};

// The factor of the loss under which small gradients survive in fp16 (Micikevicius et al., "Mixed
// precision training", section 3.2), chosen by trial: halved where a gradient overflows, doubled
// after kCleanSteps steps without that. Powers of two, so that dividing by it again is exact.
//
// A gradient that overflows is computed again with the smaller factor, from the same parameters,
// batch and masks; the step is not skipped. So every request has a gradient, and no contribution is
// lost or turned into zeros.
class LossScale {
 public:
  static constexpr double kFirst = 65536;
  static constexpr double kLargest = 16777216;
  static constexpr int kCleanSteps = 2000;

  double factor() const { return factor_; }

  // The gradient under factor() was finite.
  void succeeded();

  // It was not. False: the factor is 1 already, the gradient itself does not fit.
  bool lower();

 private:
  double factor_ = kFirst;
  int clean_steps_ = 0;
};

}  // namespace grapevine
