#include "algorithms/kernels/kernels.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>

#include "algorithms/kernels/find_operator.hpp"
#include "algorithms/kernels/sgd_loop.hpp"
#include "messages/check.hpp"

namespace grapevine::kernels {
namespace {

// Elements of one task where several threads share a loop: enough to repay waking a thread.
constexpr std::int64_t kGrain = 1 << 16;
// Below the size from which ATen splits a sum among threads: the norm does not depend on them.
constexpr std::int64_t kClipStretch = 1 << 14;

// Up to so many elements the dispatch of an ATen call takes longer than the loop.
constexpr std::int64_t kFewElements = 1024;

// `others` have the size of `t`.
template <class... Tensors>
bool is_short(const at::Tensor& t, const Tensors&... others) {
  return t.numel() <= kFewElements && t.is_cpu() && (others.is_cpu() && ...);
}

// out <- f(a, b) element by element, where is_short(); out may be a or b.
template <class F>
void each(at::Tensor& out, const at::Tensor& a, const at::Tensor& b, F f) {
  float* const to = out.data_ptr<float>();
  const float* const x = a.data_ptr<float>();
  const float* const y = b.data_ptr<float>();
  for (std::int64_t i = 0; i < out.numel(); ++i) to[i] = f(x[i], y[i]);
}

void check_flat(const at::Tensor& t, const char* name) {
  GRAPEVINE_CHECK(t.defined() && t.dim() == 1 && t.scalar_type() == at::kFloat && t.is_contiguous(),
                  name, " must be a flat contiguous float32 tensor");
}

void check_pair(const at::Tensor& a, const char* a_name, const at::Tensor& b, const char* b_name) {
  check_flat(a, a_name);
  check_flat(b, b_name);
  GRAPEVINE_CHECK(a.numel() == b.numel(), a_name, " has ", a.numel(), " elements, ", b_name, " ",
                  b.numel());
}

void sgd_step_cpu(at::Tensor& out, const at::Tensor& x, at::Tensor& velocity,
                  const at::Tensor& gradient, double lr, double momentum, double weight_decay,
                  bool nesterov, double scale) {
  const SgdLoop loop({lr, momentum, weight_decay, nesterov, scale});
  float* const to = out.data_ptr<float>();
  const float* const from = x.data_ptr<float>();
  float* const v = momentum != 0 ? velocity.data_ptr<float>() : nullptr;
  const float* const g = gradient.data_ptr<float>();
  at::parallel_for(0, out.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    loop.run(to + begin, from + begin, v == nullptr ? v : v + begin, g + begin, end - begin);
  });
}

void sgd_step_aten(at::Tensor& out, const at::Tensor& x, at::Tensor& velocity,
                   const at::Tensor& gradient, double lr, double momentum, double weight_decay,
                   bool nesterov, double scale) {
  const at::Tensor g = weight_decay != 0 ? gradient.add(x, weight_decay) : gradient;
  at::Tensor u = g;
  if (momentum != 0) {
    velocity.mul_(momentum).add_(g);
    u = nesterov ? g.add(velocity, momentum) : velocity;
  }
  at::add_out(out, x, u, -lr);
  if (scale != 1) out.mul_(scale);
}

void meet_cpu(at::Tensor& out, at::Tensor& half, const at::Tensor& x, const at::Tensor& other) {
  float* const to = out.data_ptr<float>();
  float* const moved = half.data_ptr<float>();
  const float* const from = x.data_ptr<float>();
  const float* const towards = other.data_ptr<float>();
  at::parallel_for(0, x.numel(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const float h = (towards[i] - from[i]) * 0.5F;
      moved[i] = h;
      to[i] = from[i] + h;
    }
  });
}

void meet_aten(at::Tensor& out, at::Tensor& half, const at::Tensor& x, const at::Tensor& other) {
  at::sub_out(half, other, x);
  half.mul_(0.5);
  at::add_out(out, x, half);
}

void debias_aten(at::Tensor& z, const at::Tensor& x, double w) {
  at::div_out(z, x, at::scalar_tensor(w, at::kDouble));
}

double clip_aten(at::Tensor& x, double c) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < x.numel(); begin += kClipStretch) {
    const at::Tensor part = x.narrow(0, begin, std::min(kClipStretch, x.numel() - begin));
    const double norm =
        at::linalg_vector_norm(part, 2, c10::nullopt, false, at::kDouble).item<double>();
    sum += norm * norm;
  }
  const double norm = std::sqrt(sum);
  if (norm > c) x.mul_(c / norm);
  return norm;
}

}  // namespace

void copy(at::Tensor& x, const at::Tensor& from) {
  check_pair(x, "x", from, "from");
  if (is_short(x, from)) return each(x, from, from, [](float v, float) { return v; });
  x.copy_(from);
}

void scale(at::Tensor& x, double a) {
  check_flat(x, "x");
  if (is_short(x))
    return each(x, x, x, [f = static_cast<float>(a)](float v, float) { return v * f; });
  x.mul_(a);
}

void scale_into(at::Tensor& out, const at::Tensor& x, double a) {
  check_pair(out, "out", x, "x");
  if (is_short(out, x))
    return each(out, x, x, [f = static_cast<float>(a)](float v, float) { return v * f; });
  at::mul_out(out, x, at::scalar_tensor(a, at::kDouble));
}

void fold(at::Tensor& x, const at::Tensor& share) {
  check_pair(x, "x", share, "share");
  if (is_short(x, share)) return each(x, x, share, [](float v, float s) { return v + s; });
  x.add_(share);
}

void fold_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  check_pair(out, "out", a, "a");
  check_pair(out, "out", b, "b");
  if (is_short(out, a, b)) return each(out, a, b, [](float v, float s) { return v + s; });
  at::add_out(out, a, b);
}

void subtract_into(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  check_pair(out, "out", a, "a");
  check_pair(out, "out", b, "b");
  if (is_short(out, a, b)) return each(out, a, b, [](float v, float s) { return v - s; });
  at::sub_out(out, a, b);
}

void meet_into(at::Tensor& out, at::Tensor& half, const at::Tensor& x, const at::Tensor& other) {
  check_pair(out, "out", x, "x");
  check_pair(x, "x", other, "other");
  check_pair(x, "x", half, "half");
  static const auto op = find_operator("grapevine::meet", meet_cpu);
  op.call(out, half, x, other);
}

void debias(at::Tensor& z, const at::Tensor& x, double w) {
  check_pair(z, "z", x, "x");
  GRAPEVINE_CHECK(w > 0, "push-sum weight is ", w);
  static const auto op = find_operator("grapevine::debias", debias_aten);
  op.call(z, x, w);
}

void sgd_step_into(at::Tensor& out, const at::Tensor& x, at::Tensor& velocity,
                   const at::Tensor& gradient, const SgdStep& step) {
  check_pair(out, "out", x, "x");
  check_pair(x, "x", gradient, "gradient");
  if (step.momentum != 0) check_pair(x, "x", velocity, "velocity");
  static const auto op = find_operator("grapevine::sgd_step", sgd_step_cpu);
  op.call(out, x, velocity, gradient, step.lr, step.momentum, step.weight_decay, step.nesterov,
          step.scale);
}

void sgd_step(at::Tensor& x, at::Tensor& velocity, const at::Tensor& gradient,
              const SgdStep& step) {
  sgd_step_into(x, x, velocity, gradient, step);
}

double clip(at::Tensor& x, double c) {
  check_flat(x, "x");
  GRAPEVINE_CHECK(c > 0, "clip to a norm of ", c);
  static const auto op = find_operator("grapevine::clip", clip_aten);
  return op.call(x, c);
}

TORCH_LIBRARY(grapevine, library) {
  library.def(
      "sgd_step(Tensor(a!) out, Tensor x, Tensor(b!) velocity, Tensor gradient, float lr, "
      "float momentum, float weight_decay, bool nesterov, float scale) -> ()");
  library.def("meet(Tensor(a!) out, Tensor(b!) half, Tensor x, Tensor other) -> ()");
  library.def("debias(Tensor(a!) z, Tensor x, float w) -> ()");
  library.def("clip(Tensor(a!) x, float c) -> float");
}

TORCH_LIBRARY_IMPL(grapevine, CPU, library) {
  library.impl("sgd_step", sgd_step_cpu);
  library.impl("meet", meet_cpu);
}

TORCH_LIBRARY_IMPL(grapevine, CompositeExplicitAutograd, library) {
  library.impl("sgd_step", sgd_step_aten);
  library.impl("meet", meet_aten);
  library.impl("debias", debias_aten);
  library.impl("clip", clip_aten);
}

}  // namespace grapevine::kernels
