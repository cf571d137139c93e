#include "algorithms/parts/server_rules.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "messages/check.hpp"
#include "messages/tensor_memory.hpp"

namespace grapevine {

Slice slice_of(std::int64_t dimension, std::int32_t servers, std::int32_t index) {
  const std::int64_t least = dimension / servers, longer = dimension % servers;
  return {index * least + std::min<std::int64_t>(index, longer), least + (index < longer ? 1 : 0)};
}

FrozenTensor part_of(const FrozenTensor& vector, const Slice& slice) {
  if (slice.size == vector.numel()) return vector;
  at::Tensor part = empty_to_send({slice.size}, vector.dtype(), vector.device());
  part.copy_(vector.read().narrow(0, slice.begin, slice.size));
  return FrozenTensor::freeze(std::move(part));
}

FrozenTensor among_zeros(const FrozenTensor& part, const Slice& slice, std::int64_t dimension) {
  if (slice.size == dimension) return part;
  at::Tensor whole = at::zeros({dimension}, part.read().options());
  whole.narrow(0, slice.begin, slice.size).copy_(part.read());
  return FrozenTensor::freeze(std::move(whole));
}

namespace kernels {
namespace {

constexpr std::int64_t kRuleGrain = 1 << 16;
constexpr float kEpsilon = 1e-12F;
constexpr float kLargestPi = 5;

void check_equal(std::initializer_list<const at::Tensor*> tensors) {
  for (const at::Tensor* t : tensors)
    GRAPEVINE_CHECK(t->defined() && t->dim() == 1 && t->scalar_type() == at::kFloat &&
                        t->is_contiguous() && t->numel() == (*tensors.begin())->numel(),
                    "server rules take flat contiguous float32 tensors of one size");
}

void proxy_loop(float* __restrict delta, float* __restrict m, const float* __restrict s,
                std::int64_t n, float lr, float momentum, float weight_decay) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float d = -lr * (delta[i] + weight_decay * s[i]);
    m[i] = momentum * m[i] + d;
    delta[i] = d;
  }
}

void gem_proxy_cpu(at::Tensor& gradient, at::Tensor& m, const at::Tensor& s, double lr,
                   double momentum, double weight_decay) {
  at::parallel_for(0, m.numel(), kRuleGrain, [&](std::int64_t begin, std::int64_t end) {
    proxy_loop(gradient.data_ptr<float>() + begin, m.data_ptr<float>() + begin,
               s.data_ptr<float>() + begin, end - begin, static_cast<float>(lr),
               static_cast<float>(momentum), static_cast<float>(weight_decay));
  });
}

void gem_proxy_aten(at::Tensor& gradient, at::Tensor& m, const at::Tensor& s, double lr,
                    double momentum, double weight_decay) {
  gradient.add_(s, weight_decay).mul_(-lr);
  m.mul_(momentum).add_(gradient);
}

void rescale_loop(float* __restrict u, const float* __restrict delta, const float* __restrict m,
                  const float* __restrict theta, const float* __restrict s, std::int64_t n,
                  float kappa) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float bound = kappa * std::abs(m[i]) - std::abs(theta[i] - s[i]);
    const float pi = bound / (std::abs(delta[i]) + kEpsilon);
    u[i] = std::min(std::max(pi, 0.0F), kLargestPi) * delta[i];
  }
}

void gem_rescale_cpu(at::Tensor& u, const at::Tensor& delta, const at::Tensor& m,
                     const at::Tensor& theta, const at::Tensor& s, double kappa) {
  at::parallel_for(0, u.numel(), kRuleGrain, [&](std::int64_t begin, std::int64_t end) {
    rescale_loop(u.data_ptr<float>() + begin, delta.data_ptr<float>() + begin,
                 m.data_ptr<float>() + begin, theta.data_ptr<float>() + begin,
                 s.data_ptr<float>() + begin, end - begin, static_cast<float>(kappa));
  });
}

void gem_rescale_aten(at::Tensor& u, const at::Tensor& delta, const at::Tensor& m,
                      const at::Tensor& theta, const at::Tensor& s, double kappa) {
  at::sub_out(u, theta, s);
  u.abs_().neg_().add_(m.abs(), kappa).div_(delta.abs().add_(kEpsilon));
  u.clamp_(0, kLargestPi).mul_(delta);
}

}  // namespace

void advance_proxy(at::Tensor& gradient, at::Tensor& m, const at::Tensor& s, double lr,
                   double momentum, double weight_decay) {
  check_equal({&gradient, &m, &s});
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("grapevine::gem_proxy", "")
                             .typed<decltype(gem_proxy_cpu)>();
  op.call(gradient, m, s, lr, momentum, weight_decay);
}

void match_energy_into(at::Tensor& u, const at::Tensor& delta, const at::Tensor& m,
                       const at::Tensor& theta, const at::Tensor& s, double kappa) {
  check_equal({&u, &delta, &m, &theta, &s});
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("grapevine::gem_rescale", "")
                             .typed<decltype(gem_rescale_cpu)>();
  op.call(u, delta, m, theta, s, kappa);
}

void commit_into(at::Tensor& out, const at::Tensor& theta, const at::Tensor& update, double a) {
  check_equal({&out, &theta, &update});
  at::add_out(out, theta, update, a);
}

void elastic_into(at::Tensor& e, const at::Tensor& x, const at::Tensor& centre, double alpha) {
  check_equal({&e, &x, &centre});
  at::sub_out(e, x, centre);
  e.mul_(alpha);
}

TORCH_LIBRARY_FRAGMENT(grapevine, library) {
  library.def(
      "gem_proxy(Tensor(a!) gradient, Tensor(b!) m, Tensor s, float lr, float momentum, "
      "float weight_decay) -> ()");
  library.def(
      "gem_rescale(Tensor(a!) u, Tensor delta, Tensor m, Tensor theta, Tensor s, float kappa) -> "
      "()");
}

TORCH_LIBRARY_IMPL(grapevine, CPU, library) {
  library.impl("gem_proxy", gem_proxy_cpu);
  library.impl("gem_rescale", gem_rescale_cpu);
}

TORCH_LIBRARY_IMPL(grapevine, CompositeExplicitAutograd, library) {
  library.impl("gem_proxy", gem_proxy_aten);
  library.impl("gem_rescale", gem_rescale_aten);
}

}  // namespace kernels
}  // namespace grapevine
