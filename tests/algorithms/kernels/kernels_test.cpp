#include "algorithms/kernels/kernels.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "messages/check.hpp"

namespace grapevine {
namespace kernels_test {

using kernels::SgdStep;

constexpr std::int64_t kSizes[] = {0, 1, 7, 8, 9, 1000003};
constexpr double kTolerance = 1e-6;  // a few roundings of float32

at::Tensor random(std::int64_t n, std::uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn({n}, generator, at::kFloat);
}

std::vector<double> doubles(const at::Tensor& t) {
  const float* p = t.data_ptr<float>();
  return {p, p + t.numel()};
}

void expect_near(const at::Tensor& actual, const std::vector<double>& expected) {
  ASSERT_EQ(actual.numel(), static_cast<std::int64_t>(expected.size()));
  const float* p = actual.data_ptr<float>();
  for (std::size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(p[i], expected[i], kTolerance * (1 + std::abs(expected[i]))) << "element " << i;
}

TEST(Kernels, CopyWritesTheSameBitsIntoTheSameMemory) {
  for (std::int64_t n : kSizes) {
    SCOPED_TRACE(n);
    at::Tensor all = random(n + 2, 1);
    const at::Tensor before = all.clone(), from = random(n, 2);
    at::Tensor x = all.narrow(0, 1, n);
    kernels::copy(x, from);
    EXPECT_TRUE(all.narrow(0, 1, n).equal(from));
    EXPECT_TRUE(all.narrow(0, 0, 1).equal(before.narrow(0, 0, 1)));
    EXPECT_TRUE(all.narrow(0, n + 1, 1).equal(before.narrow(0, n + 1, 1)));
  }
}

TEST(Kernels, ScaleMatchesTheOracle) {
  for (std::int64_t n : kSizes) {
    SCOPED_TRACE(n);
    at::Tensor x = random(n, 1);
    std::vector<double> expected = doubles(x);
    for (double& e : expected) e *= -0.3;
    const void* memory = x.data_ptr();
    kernels::scale(x, -0.3);
    expect_near(x, expected);
    EXPECT_EQ(x.data_ptr(), memory);
  }
}

TEST(Kernels, ScaleIntoMatchesScaleAlsoInPlace) {
  for (std::int64_t n : kSizes) {
    SCOPED_TRACE(n);
    at::Tensor x = random(n, 1), out = random(n, 2), expected = x.clone();
    const at::Tensor before = x.clone();
    kernels::scale(expected, 1.0 / 3);
    kernels::scale_into(out, x, 1.0 / 3);
    EXPECT_TRUE(out.equal(expected));
    EXPECT_TRUE(x.equal(before)) << "the input was written";
    kernels::scale_into(x, x, 1.0 / 3);
    EXPECT_TRUE(x.equal(expected));
  }
}

TEST(Kernels, FoldMatchesTheOracle) {
  for (std::int64_t n : kSizes) {
    SCOPED_TRACE(n);
    at::Tensor x = random(n, 1);
    const at::Tensor share = random(n, 2);
    std::vector<double> expected = doubles(x);
    const std::vector<double> shares = doubles(share);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += shares[i];
    kernels::fold(x, share);
    expect_near(x, expected);
  }
}

TEST(Kernels, FoldIntoMatchesFoldAlsoWhereItsOutputIsAnInput) {
  for (std::int64_t n : kSizes) {
    SCOPED_TRACE(n);
    const at::Tensor a = random(n, 1), b = random(n, 2);
    at::Tensor expected = a.clone();
    kernels::fold(expected, b);
    at::Tensor out = random(n, 3), into_a = a.clone(), into_b = b.clone();
    kernels::fold_into(out, a, b);
    kernels::fold_into(into_a, into_a, b);
    kernels::fold_into(into_b, a, into_b);
    EXPECT_TRUE(out.equal(expected));
    EXPECT_TRUE(into_a.equal(expected));
    EXPECT_TRUE(into_b.equal(expected));
  }
}

TEST(Kernels, DebiasMatchesTheOracle) {
  for (std::int64_t n : kSizes) {
    for (double w : {1.0, 0.3, 1e-6, 17.0}) {
      SCOPED_TRACE(testing::Message() << n << " elements, w = " << w);
      at::Tensor x = random(n, 1);
      std::vector<double> expected = doubles(x);
      for (double& e : expected) e /= w;
      at::Tensor z = random(n, 2);
      kernels::debias(z, x, w);
      expect_near(z, expected);
      kernels::debias(x, x, w);
      EXPECT_TRUE(x.equal(z));
    }
  }
}

TEST(Kernels, DebiasByOneIsExact) {
  const at::Tensor x = random(1001, 1);
  at::Tensor z = at::empty_like(x);
  kernels::debias(z, x, 1);
  EXPECT_TRUE(z.equal(x));
}

std::vector<SgdStep> sgd_rules() {
  return {{0.1},
          {0.1, 0, 0.01},
          {0.1, 0.9},
          {0.1, 0.9, 0.01},
          {0.1, 0.9, 0.01, true},
          {0.1, 0, 0.01, false, 0.5},
          {0.1, 0.9, 0.01, false, 1.0 / 3},
          {0.1, 0.9, 0.01, true, 0.5}};
}

struct Oracle {
  std::vector<double> x, v;
};

Oracle naive_sgd(const at::Tensor& x, const at::Tensor& v, const at::Tensor& gradient,
                 const SgdStep& step) {
  Oracle o{doubles(x), doubles(v)};
  const std::vector<double> gradients = doubles(gradient);
  for (std::size_t i = 0; i < o.x.size(); ++i) {
    const double g = gradients[i] + step.weight_decay * o.x[i];
    o.v[i] = step.momentum * o.v[i] + g;
    const double u = step.nesterov ? g + step.momentum * o.v[i] : o.v[i];
    o.x[i] = (o.x[i] - step.lr * (step.momentum == 0 ? g : u)) * step.scale;
  }
  return o;
}

using Stepper = std::function<at::Tensor(const at::Tensor& x, at::Tensor& velocity,
                                         const at::Tensor& gradient, const SgdStep& step)>;

void expect_sgd(const Stepper& stepper) {
  for (std::int64_t n : kSizes) {
    for (const SgdStep& step : sgd_rules()) {
      SCOPED_TRACE(testing::Message() << n << " elements, momentum " << step.momentum << ", decay "
                                      << step.weight_decay << ", nesterov " << step.nesterov
                                      << ", scale " << step.scale);
      const at::Tensor x = random(n, 1), v = random(n, 2), gradient = random(n, 3);
      const Oracle oracle = naive_sgd(x, v, gradient, step);
      at::Tensor velocity = step.momentum == 0 ? at::Tensor() : v.clone();
      const at::Tensor before = gradient.clone();
      expect_near(stepper(x.clone(), velocity, gradient, step), oracle.x);
      if (step.momentum != 0) expect_near(velocity, oracle.v);
      EXPECT_TRUE(gradient.equal(before)) << "the gradient was written";
    }
  }
}

TEST(Kernels, SgdStepMatchesTheOracle) {
  expect_sgd(
      [](at::Tensor x, at::Tensor& velocity, const at::Tensor& gradient, const SgdStep& step) {
        kernels::sgd_step(x, velocity, gradient, step);
        return x;
      });
}

TEST(Kernels, SgdStepIntoMatchesTheOracleAndLeavesItsInput) {
  expect_sgd([](const at::Tensor& x, at::Tensor& velocity, const at::Tensor& gradient,
                const SgdStep& step) {
    at::Tensor out = random(x.numel(), 9);
    const at::Tensor before = x.clone();
    kernels::sgd_step_into(out, x, velocity, gradient, step);
    EXPECT_TRUE(x.equal(before)) << "the input was written";
    return out;
  });
}

// What a device without a kernel of its own runs, here on host memory.
TEST(Kernels, SgdStepComposedOfAtenCallsMatchesTheOracle) {
  using Signature = void(at::Tensor&, const at::Tensor&, at::Tensor&, const at::Tensor&, double,
                         double, double, bool, double);
  const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("grapevine::sgd_step", "").typed<Signature>();
  const c10::DispatchKeySet other_device(c10::DispatchKey::CUDA);
  expect_sgd([&](const at::Tensor& x, at::Tensor& velocity, const at::Tensor& gradient,
                 const SgdStep& step) {
    at::Tensor out = random(x.numel(), 9);
    op.redispatch(other_device, out, x, velocity, gradient, step.lr, step.momentum,
                  step.weight_decay, step.nesterov, step.scale);
    return out;
  });
}

// Vector lanes and the tail of a loop must round alike: results may not depend on alignment.
TEST(Kernels, SgdStepIsBitwiseTheSameAtEveryOffset) {
  const SgdStep step{0.1, 0.9, 0.01, true, 0.5};
  const at::Tensor x = random(67, 1), v = random(67, 2), gradient = random(67, 3);
  at::Tensor whole = at::empty_like(x), velocity = v.clone();
  kernels::sgd_step_into(whole, x, velocity, gradient, step);
  for (std::int64_t begin = 0; begin < 9; ++begin) {
    at::Tensor part = x.clone().narrow(0, begin, 67 - begin);
    at::Tensor part_velocity = v.clone().narrow(0, begin, 67 - begin);
    kernels::sgd_step(part, part_velocity, gradient.narrow(0, begin, 67 - begin), step);
    EXPECT_TRUE(part.equal(whole.narrow(0, begin, 67 - begin))) << begin;
    EXPECT_TRUE(part_velocity.equal(velocity.narrow(0, begin, 67 - begin))) << begin;
  }
}

TEST(Kernels, RefuseTensorsOfAnotherSizeTypeOrLayout) {
  at::Tensor x = at::zeros({4}), undefined;
  at::Tensor transposed = at::zeros({8}).as_strided({4}, {2});
  EXPECT_THROW(kernels::fold(x, at::zeros({5})), InvariantBroken);
  EXPECT_THROW(kernels::fold(x, at::zeros({1})), InvariantBroken) << "no broadcasting";
  EXPECT_THROW(kernels::fold(x, at::zeros({4}, at::kDouble)), InvariantBroken);
  EXPECT_THROW(kernels::fold(x, undefined), InvariantBroken);
  EXPECT_THROW(kernels::scale(transposed, 2), InvariantBroken);
  EXPECT_THROW(kernels::copy(x, at::zeros({5})), InvariantBroken);
  EXPECT_THROW(kernels::scale_into(x, at::zeros({5}), 2), InvariantBroken);
  EXPECT_THROW(kernels::fold_into(x, at::zeros({4}), at::zeros({5})), InvariantBroken);
  EXPECT_THROW(kernels::debias(x, at::zeros({5}), 1), InvariantBroken);
  EXPECT_THROW(kernels::debias(x, at::zeros({4}), 0), InvariantBroken);
  EXPECT_THROW(kernels::sgd_step(x, undefined, at::zeros({4}), {0.1, 0.9}), InvariantBroken);
  EXPECT_THROW(kernels::sgd_step(x, undefined, at::zeros({3}), {0.1}), InvariantBroken);
}

// The norm in double precision; x as it was where it is not longer than c.
TEST(Kernels, ClipIsItsDefinition) {
  for (const std::int64_t n : kSizes) {
    const at::Tensor x = random(n, 8) * 3;
    double sum = 0;
    for (const double value : doubles(x)) sum += value * value;
    const double norm = std::sqrt(sum);
    for (const double share : {0.01, 0.5, 0.999, 1.001, 10.0}) {
      const double c = std::max(share * norm, 1e-3);
      SCOPED_TRACE(testing::Message() << "n " << n << ", c " << c << " of " << norm);
      at::Tensor clipped = x.clone();
      EXPECT_NEAR(kernels::clip(clipped, c), norm, 1e-6 * norm);
      if (norm <= c) {
        EXPECT_TRUE(at::equal(clipped, x));
      } else {
        EXPECT_TRUE(at::allclose(clipped, x * (c / norm), 1e-5, 0));
        EXPECT_NEAR(clipped.to(at::kDouble).norm().item<double>(), c, 1e-5 * c);
      }
    }
  }
}

TEST(Kernels, ClipDoesNotDependOnThreads) {
  const int before = at::get_num_threads();
  for (const std::int64_t n : {32'768, 32'769, 1'000'003}) {
    at::Tensor first;
    double first_norm = 0;
    for (const int threads : {1, 2, 3, 8}) {
      at::set_num_threads(threads);
      at::Tensor x = random(n, 9);
      const double norm = kernels::clip(x, 1);
      if (!first.defined()) {
        first = x;
        first_norm = norm;
      }
      EXPECT_EQ(norm, first_norm) << n << " elements, " << threads << " threads";
      EXPECT_TRUE(at::equal(x, first)) << n << " elements, " << threads << " threads";
    }
  }
  at::set_num_threads(before);
}

}  // namespace kernels_test
}  // namespace grapevine
