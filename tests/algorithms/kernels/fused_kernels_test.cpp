// The functions of fused_kernels.hpp on the CPU, against the single ones and against double
// precision.
#include "algorithms/kernels/fused_kernels.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "algorithms/kernels/sparse_vector.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace fused_kernels_test {

at::Tensor normal(std::int64_t n, std::uint64_t seed) {
  return at::randn({n}, at::make_generator<at::CPUGeneratorImpl>(seed), at::kFloat);
}

TEST(FusedKernels, APushSumRoundIsFoldStepAndDebias) {
  const kernels::SgdStep step{0.1, 0.9, 1e-3, true, 0.25};
  for (const bool in_place : {false, true}) {
    const at::Tensor x = normal(10007, 1), share = normal(10007, 2), g = normal(10007, 3);
    const at::Tensor v = normal(10007, 4);
    at::Tensor velocity = v.clone(), out = in_place ? x.clone() : at::empty_like(x),
               z = at::empty_like(x);
    kernels::push_sum_step_into(out, z, in_place ? out : x, share, velocity, g, step, 0.7);
    const at::Tensor from = x.to(at::kDouble) + share.to(at::kDouble);
    const at::Tensor gradient = g.to(at::kDouble) + 1e-3 * from;
    const at::Tensor moved = 0.9 * v.to(at::kDouble) + gradient;
    const at::Tensor expected = (from - 0.1 * (gradient + 0.9 * moved)) * 0.25;
    EXPECT_TRUE(out.to(at::kDouble).allclose(expected, 1e-5, 1e-6));
    EXPECT_TRUE(velocity.to(at::kDouble).allclose(moved, 1e-5, 1e-6));
    EXPECT_TRUE(z.to(at::kDouble).allclose(expected / 0.7, 1e-5, 1e-6));
  }
}

// Sizes around the pieces that a loop takes from the cache, and several tasks of threads.
TEST(FusedKernels, APushSumRoundHasTheBitsOfItsParts) {
  for (const std::int64_t n : {0, 1, 2047, 2048, 2049, 200003})
    for (int variant = 0; variant < 24; ++variant) {
      const bool folds = variant % 2, debiases = variant / 2 % 2, in_place = variant / 4 % 2;
      const int rule = variant / 8;  // plain, momentum, Nesterov
      SCOPED_TRACE(testing::Message() << n << " elements, variant " << variant);
      const kernels::SgdStep step{0.1, rule > 0 ? 0.9 : 0, 1e-3, rule == 2, 1.0 / 3};
      const at::Tensor x = normal(n, 1), g = normal(n, 2), v = normal(n, 3);
      const at::Tensor share = folds ? normal(n, 4) : at::Tensor();
      at::Tensor folded = x.clone(), stepped = at::empty_like(x), debiased = at::empty_like(x);
      at::Tensor expected_v = v.clone(), velocity = v.clone();
      if (folds) kernels::fold_into(folded, x, share);
      kernels::sgd_step_into(stepped, folded, expected_v, g, step);
      kernels::debias(debiased, stepped, 0.61);

      at::Tensor out = in_place ? x.clone() : at::empty_like(x);
      at::Tensor z = debiases ? at::empty_like(x) : at::Tensor();
      kernels::push_sum_step_into(out, z, in_place ? out : x, share, velocity, g, step, 0.61);
      EXPECT_TRUE(out.equal(stepped));
      EXPECT_TRUE(velocity.equal(expected_v));
      if (debiases) {
        EXPECT_TRUE(z.equal(debiased));
      }
    }
}

TEST(FusedKernels, ARoundWithoutAStepHasTheBitsOfItsParts) {
  for (const std::int64_t n : {0, 1, 2048, 2049, 200003})
    for (int variant = 0; variant < 8; ++variant) {
      const bool debiases = variant % 2, in_place = variant / 2 % 2;
      const double scale = variant < 4 ? 1 : 1.0 / 3;
      SCOPED_TRACE(testing::Message() << n << " elements, variant " << variant);
      const at::Tensor x = normal(n, 1), share = normal(n, 2);
      at::Tensor folded = at::empty_like(x), debiased = at::empty_like(x);
      kernels::fold_into(folded, x, share);
      kernels::scale(folded, scale);
      kernels::debias(debiased, folded, 0.61);

      at::Tensor out = in_place ? x.clone() : at::empty_like(x);
      at::Tensor z = debiases ? at::empty_like(x) : at::Tensor();
      kernels::push_sum_fold_into(out, z, in_place ? out : x, share, scale, 0.61);
      EXPECT_TRUE(out.equal(folded));
      if (debiases) {
        EXPECT_TRUE(z.equal(debiased));
      }
    }
}

TEST(FusedKernels, ARoundWithoutShareAndWithoutZIsTheStep) {
  const kernels::SgdStep step{0.1, 0, 0, false, 1};
  const at::Tensor x = normal(1000, 1), g = normal(1000, 2);
  at::Tensor out = at::empty_like(x), expected = at::empty_like(x), none;
  kernels::push_sum_step_into(out, none, x, none, none, g, step, 1);
  kernels::sgd_step_into(expected, x, none, g, step);
  EXPECT_TRUE(out.equal(expected));
  EXPECT_THROW(kernels::push_sum_step_into(out, none, x, none, none, g, step, 0), InvariantBroken);
}

TEST(FusedKernels, WhatTopKTakesAndWhatItLeavesIsX) {
  const at::Tensor x = normal(100003, 1);
  at::Tensor left = x.clone();
  const kernels::Entries taken = kernels::take_top_k(left, 100, true);
  ASSERT_EQ(taken.indices.numel(), 100);
  EXPECT_LE(left.abs().max().item<float>(), taken.values.abs().min().item<float>());
  EXPECT_EQ(left.count_nonzero().item<std::int64_t>(),
            x.count_nonzero().item<std::int64_t>() - 100);
  kernels::scatter_add(left, taken, 1);
  EXPECT_TRUE(left.equal(x));
  at::Tensor same = x.clone();
  EXPECT_TRUE(kernels::take_top_k(same, 100, false).indices.equal(taken.indices));
  EXPECT_TRUE(same.equal(x));
  EXPECT_EQ(kernels::take_top_k(same, 0, true).values.numel(), 0);
}

TEST(FusedKernels, QuantisedNumbersAreWithinAStep) {
  const at::Tensor x = normal(5000, 1);
  const kernels::Levels levels = kernels::int8_pack(x, 3);
  at::Tensor back = at::zeros({5000});
  kernels::int8_fold(back, levels, 1);
  const float step = levels.scales.max().item<float>();
  EXPECT_LE((back - x).abs().max().item<float>(), step * 1.0001F);
  EXPECT_FALSE(kernels::int8_pack(x, 4).values.equal(levels.values)) << "the seed has no effect";

  at::Tensor large = x.clone();
  large[0] = 1e9F;
  at::Tensor halves = at::zeros({5000});
  kernels::half_fold(halves, kernels::half_pack(large, at::kHalf), 1);
  EXPECT_EQ(halves[0].item<float>(), 65504);
  EXPECT_TRUE(halves.slice(0, 1).allclose(x.slice(0, 1), 1e-3, 1e-6));
  EXPECT_THROW(kernels::half_pack(x, at::kDouble), InvariantBroken);
}

}  // namespace fused_kernels_test
}  // namespace grapevine
