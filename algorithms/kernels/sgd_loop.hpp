// SgdLoop: the step of kernels.hpp over a range of elements in the host's memory.
#pragma once
#include <cstdint>

#include "algorithms/kernels/kernels.hpp"

namespace grapevine::kernels {

class SgdLoop {
 public:
  explicit SgdLoop(const SgdStep& step)
      : factors_{static_cast<float>(step.lr), static_cast<float>(step.momentum),
                 static_cast<float>(step.weight_decay), static_cast<float>(step.scale)},
        momentum_(step.momentum != 0),
        nesterov_(step.nesterov) {}

  // out[i] <- the stepped x[i], for n elements. `out` may be x, nothing else overlaps. `v`: null
  // without momentum.
  void run(float* out, const float* x, float* v, const float* gradient, std::int64_t n) const {
    if (!momentum_) return run_as<false, false>(out, x, v, gradient, n);
    nesterov_ ? run_as<true, true>(out, x, v, gradient, n)
              : run_as<true, false>(out, x, v, gradient, n);
  }

 private:
  struct Factors {
    float lr, momentum, weight_decay, scale;
  };

  template <bool kMomentum, bool kNesterov>
  void run_as(float* out, const float* x, float* v, const float* gradient, std::int64_t n) const {
    if (out == x)
      in_place<kMomentum, kNesterov>(out, v, gradient, n, factors_);
    else
      out_of_place<kMomentum, kNesterov>(out, x, v, gradient, n, factors_);
  }

  // One element of one step; v is not read back where there is no momentum.
  template <bool kMomentum, bool kNesterov>
  static float stepped(float x, float gradient, float& v, const Factors& f) {
    const float g = gradient + f.weight_decay * x;
    if constexpr (kMomentum) v = f.momentum * v + g;
    const float u = !kMomentum ? g : kNesterov ? g + f.momentum * v : v;
    return (x - f.lr * u) * f.scale;
  }

  // In place and out of place are loops of their own: each states exactly which pointers do not
  // alias, so that the compiler vectorises it without a check at run time.
  template <bool kMomentum, bool kNesterov>
  static void in_place(float* __restrict x, float* __restrict v, const float* __restrict gradient,
                       std::int64_t n, Factors f) {
    for (std::int64_t i = 0; i < n; ++i) {
      float velocity = kMomentum ? v[i] : 0;
      x[i] = stepped<kMomentum, kNesterov>(x[i], gradient[i], velocity, f);
      if constexpr (kMomentum) v[i] = velocity;
    }
  }

  template <bool kMomentum, bool kNesterov>
  static void out_of_place(float* __restrict out, const float* __restrict x, float* __restrict v,
                           const float* __restrict gradient, std::int64_t n, Factors f) {
    for (std::int64_t i = 0; i < n; ++i) {
      float velocity = kMomentum ? v[i] : 0;
      out[i] = stepped<kMomentum, kNesterov>(x[i], gradient[i], velocity, f);
      if constexpr (kMomentum) v[i] = velocity;
    }
  }

  const Factors factors_;
  const bool momentum_;
  const bool nesterov_;
};

}  // namespace grapevine::kernels
