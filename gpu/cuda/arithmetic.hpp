// The rules of single elements, as the CPU's loops in algorithms/ have them: each operation rounds
// to float32 on its own, in the order written. The kernels are compiled without contraction
// (-fmad=false), so that results are bit-identical to the CPU.
#pragma once
#include "gpu/cuda/portable.hpp"

namespace grapevine::cuda {

// One step of SGD, torch::optim::SGD's form (see algorithms/kernels/kernels.hpp, SgdStep).
struct StepFactors {
  float lr = 0;
  float momentum = 0;
  float weight_decay = 0;
  float scale = 1;
  bool nesterov = false;
};

// Returns (x - lr u) scale; v is the velocity, and not touched where there is no momentum.
template <bool kMomentum, bool kNesterov>
GRAPEVINE_HD inline float stepped(float x, float gradient, float& v, const StepFactors& f) {
  const float g = gradient + f.weight_decay * x;
  if constexpr (kMomentum) v = f.momentum * v + g;
  const float u = !kMomentum ? g : kNesterov ? g + f.momentum * v : v;
  return (x - f.lr * u) * f.scale;
}

// Half of the way from x to other (delta averaging).
GRAPEVINE_HD inline float halfway(float x, float other) { return (other - x) * 0.5F; }

// GEM, Hermans & Louppe 2018. delta <- -lr (gradient + weight_decay s).
GRAPEVINE_HD inline float proxy_delta(float gradient, float s, float lr, float weight_decay) {
  return -lr * (gradient + weight_decay * s);
}

// clamp((kappa |m| - |theta - s|) / (|delta| + 1e-12), 0, 5) delta. The comparisons are those of
// std::max and std::min, with which a NaN stays one.
GRAPEVINE_HD inline float matched(float delta, float m, float theta, float s, float kappa) {
  const float room = kappa * absolute(m) - absolute(theta - s);
  const float pi = room / (absolute(delta) + 1e-12F);
  const float at_least = pi < 0.0F ? 0.0F : pi;
  const float clamped = 5.0F < at_least ? 5.0F : at_least;
  return clamped * delta;
}

}  // namespace grapevine::cuda
