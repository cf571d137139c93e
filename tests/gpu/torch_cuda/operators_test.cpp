// Each operator's CUDA kernel against its implementation on the CPU, through LibTorch's dispatcher.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "algorithms/kernels/fused_kernels.hpp"
#include "algorithms/kernels/kernels.hpp"
#include "algorithms/parts/server_rules.hpp"
#include "tests/gpu/torch_cuda/gpu_here.hpp"

namespace grapevine {
namespace {

class Operators : public testing::TestWithParam<std::int64_t> {
 protected:
  void SetUp() override {
    if (const auto why = too_few_gpus(1); !why.empty()) GTEST_SKIP() << why;
    at::manual_seed(static_cast<std::uint64_t>(GetParam()));
  }
  static at::Tensor normal() { return at::randn({GetParam()}); }
};

at::Tensor up(const at::Tensor& t) { return t.to(at::Device(at::kCUDA, 0)); }

void expect_same_bits(const at::Tensor& found, const at::Tensor& expected) {
  ASSERT_TRUE(found.is_cuda());
  EXPECT_TRUE(found.cpu().equal(expected));
}

TEST_P(Operators, SgdStep) {
  for (const bool nesterov : {false, true})
    for (const double momentum : {0.0, 0.9}) {
      kernels::SgdStep step;
      step.lr = 0.1;
      step.momentum = momentum;
      step.weight_decay = 1e-3;
      step.nesterov = nesterov && momentum > 0;
      step.scale = 0.5;
      at::Tensor x = normal(), v = normal(), out = at::empty_like(x);
      const at::Tensor g = normal();
      at::Tensor cx = up(x), cv = up(v), cout = up(out);
      kernels::sgd_step_into(out, x, v, g, step);
      kernels::sgd_step_into(cout, cx, cv, up(g), step);
      expect_same_bits(cout, out);
      expect_same_bits(cv, v);
    }
}

TEST_P(Operators, PushSumStep) {
  kernels::SgdStep step;
  step.lr = 0.1;
  step.momentum = 0.9;
  step.weight_decay = 1e-3;
  step.scale = 0.5;
  at::Tensor out = at::empty({GetParam()}), z = at::empty({GetParam()}), v = normal();
  const at::Tensor x = normal(), share = normal(), g = normal();
  at::Tensor cout = up(out), cz = up(z), cv = up(v);
  kernels::push_sum_step_into(out, z, x, share, v, g, step, 0.7);
  kernels::push_sum_step_into(cout, cz, up(x), up(share), cv, up(g), step, 0.7);
  expect_same_bits(cout, out);
  expect_same_bits(cz, z);
  expect_same_bits(cv, v);
}

TEST_P(Operators, PushSumFold) {
  at::Tensor out = at::empty({GetParam()}), z = at::empty({GetParam()});
  const at::Tensor x = normal(), share = normal();
  at::Tensor cout = up(out), cz = up(z);
  kernels::push_sum_fold_into(out, z, x, share, 0.5, 0.7);
  kernels::push_sum_fold_into(cout, cz, up(x), up(share), 0.5, 0.7);
  expect_same_bits(cout, out);
  expect_same_bits(cz, z);
}

TEST_P(Operators, MeetAndDebias) {
  at::Tensor out = at::empty({GetParam()}), half = at::empty({GetParam()});
  const at::Tensor x = normal(), other = normal();
  at::Tensor cout = up(out), chalf = up(half);
  kernels::meet_into(out, half, x, other);
  kernels::meet_into(cout, chalf, up(x), up(other));
  expect_same_bits(cout, out);
  expect_same_bits(chalf, half);
  kernels::debias(out, x, 0.3);
  kernels::debias(cout, up(x), 0.3);
  expect_same_bits(cout, out);
}

TEST_P(Operators, Clip) {
  for (const double limit : {1e-3, 1e9}) {
    at::Tensor x = normal();
    at::Tensor cx = up(x);
    const double norm = kernels::clip(x, limit), found = kernels::clip(cx, limit);
    EXPECT_NEAR(found, norm, 1e-12 * norm);
    EXPECT_TRUE(at::allclose(cx.cpu(), x, 1e-6, 0));
  }
}

TEST_P(Operators, TopKAndWhatIsMadeOfIt) {
  const std::int64_t k = 1 + GetParam() / 50;
  at::Tensor x = normal();
  at::Tensor cx = up(x);
  const auto chosen = kernels::take_top_k(x, k, /*take=*/true);
  const auto found = kernels::take_top_k(cx, k, /*take=*/true);
  expect_same_bits(found.indices, chosen.indices);
  expect_same_bits(found.values, chosen.values);
  expect_same_bits(cx, x);
  kernels::scatter_add(x, chosen, -0.5);
  kernels::scatter_add(cx, found, -0.5);
  expect_same_bits(cx, x);
}

TEST_P(Operators, Quantised) {
  at::Tensor x = normal(), sum = normal();
  at::Tensor csum = up(sum);
  const auto levels = kernels::int8_pack(x, 11);
  const auto found = kernels::int8_pack(up(x), 11);
  expect_same_bits(found.values, levels.values);
  expect_same_bits(found.scales, levels.scales);
  kernels::int8_fold(sum, levels, 0.5);
  kernels::int8_fold(csum, found, 0.5);
  expect_same_bits(csum, sum);
  for (const at::ScalarType type : {at::kHalf, at::kBFloat16}) {
    const at::Tensor halves = kernels::half_pack(x, type),
                     cuda_halves = kernels::half_pack(up(x), type);
    expect_same_bits(cuda_halves, halves);
    kernels::half_fold(sum, halves, 0.25);
    kernels::half_fold(csum, cuda_halves, 0.25);
    expect_same_bits(csum, sum);
  }
}

TEST_P(Operators, ServerRules) {
  at::Tensor g = normal(), m = normal(), u = at::empty({GetParam()});
  const at::Tensor s = normal(), theta = normal();
  at::Tensor cg = up(g), cm = up(m), cu = up(u);
  kernels::advance_proxy(g, m, s, 0.1, 0.9, 1e-3);
  kernels::advance_proxy(cg, cm, up(s), 0.1, 0.9, 1e-3);
  expect_same_bits(cg, g);
  expect_same_bits(cm, m);
  kernels::match_energy_into(u, g, m, theta, s, 2);
  kernels::match_energy_into(cu, cg, cm, up(theta), up(s), 2);
  expect_same_bits(cu, u);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Operators, testing::Values(1, 1000, 65'537, 3'000'001));

}  // namespace
}  // namespace grapevine
