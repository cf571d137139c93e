// Server rules against naive double-precision oracles, and the invariants of gradient energy
// matching (Hermans & Louppe 2018).
#include "algorithms/parts/server_rules.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "messages/check.hpp"
#include "messages/random.hpp"

namespace grapevine {
namespace server_rules_test {

constexpr std::int64_t kSize = 257;

// Values of very different sizes, zeros among them.
at::Tensor random_values(Rng& rng, double zeros = 0.1) {
  at::Tensor t = at::empty({kSize});
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<double> uniform;
  for (std::int64_t i = 0; i < kSize; ++i) {
    const auto size = static_cast<float>(std::pow(10.0, -6 * uniform(rng)));
    t.data_ptr<float>()[i] = uniform(rng) < zeros ? 0 : normal(rng) * size;
  }
  return t;
}

struct Proxy {
  at::Tensor gradient, m, s, theta;
  explicit Proxy(Rng& rng)
      : gradient(random_values(rng)),
        m(random_values(rng)),
        s(random_values(rng)),
        theta(s + random_values(rng, 0.5)) {}
};

double at(const at::Tensor& t, std::int64_t i) { return t.data_ptr<float>()[i]; }

double pi_of(double delta, double m, double gap, double kappa) {
  const double pi = (kappa * std::abs(m) - std::abs(gap)) / (std::abs(delta) + 1e-12);
  return std::min(std::max(pi, 0.0), 5.0);
}

at::Tensor matched(const Proxy& p, double kappa) {
  at::Tensor u = at::empty_like(p.m);
  kernels::match_energy_into(u, p.gradient, p.m, p.theta, p.s, kappa);
  return u;
}

TEST(ServerRules, SlicesAreDisjointAndCoverEverything) {
  for (const std::int64_t d : {0, 1, 7, 100})
    for (const std::int32_t servers : {1, 2, 3, 8, 12}) {
      std::int64_t next = 0;
      for (std::int32_t i = 0; i < servers; ++i) {
        const Slice slice = slice_of(d, servers, i);
        EXPECT_EQ(slice.begin, next) << d << " in " << servers;
        EXPECT_LE(slice.size - slice_of(d, servers, servers - 1).size, 1);
        EXPECT_GE(slice.size, 0);
        next += slice.size;
      }
      EXPECT_EQ(next, d);
    }
}

TEST(ServerRules, TheProxyIsMomentumSgd) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Rng rng(seed);
    const Proxy before(rng);
    Proxy p = before;
    p.gradient = before.gradient.clone();
    p.m = before.m.clone();
    kernels::advance_proxy(p.gradient, p.m, p.s, 0.05, 0.9, 0.01);
    for (std::int64_t i = 0; i < kSize; ++i) {
      const double delta = -0.05 * (at(before.gradient, i) + 0.01 * at(before.s, i));
      const double parts =
          0.05 * (std::abs(at(before.gradient, i)) + 0.01 * std::abs(at(before.s, i)));
      EXPECT_NEAR(at(p.gradient, i), delta, 1e-6 * parts + 1e-12) << i;
      const double m = 0.9 * at(before.m, i) + delta;
      EXPECT_NEAR(at(p.m, i), m, 1e-6 * (std::abs(at(before.m, i)) + parts) + 1e-12);
    }
  }
}

TEST(ServerRules, RescalesAsTheOracle) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    for (const double kappa : {0.0, 0.5, 1.0, 4.0}) {
      SCOPED_TRACE("seed=" + std::to_string(seed) + ", kappa=" + std::to_string(kappa));
      Rng rng(seed);
      const Proxy p(rng);
      const at::Tensor u = matched(p, kappa);
      for (std::int64_t i = 0; i < kSize; ++i) {
        const double gap = static_cast<double>(at(p.theta, i)) - at(p.s, i);
        const double delta = at(p.gradient, i);
        const double expected = pi_of(delta, at(p.m, i), gap, kappa) * delta;
        // What is subtracted may cancel: an error of one bit of the larger stays.
        const double scale = kappa * std::abs(at(p.m, i)) + std::abs(gap) + std::abs(at(p.s, i));
        EXPECT_NEAR(at(u, i), expected, 1e-6 * scale + 1e-9 * std::abs(delta) + 1e-14) << i;
      }
    }
}

// Invariant 1: the commit leaves the central variable within reach of the proxy, or where it was.
TEST(ServerRules, TheCentralVariableStaysWithinReach) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed)
    for (const double kappa : {0.5, 1.0, 3.0}) {
      SCOPED_TRACE("seed=" + std::to_string(seed) + ", kappa=" + std::to_string(kappa));
      Rng rng(seed);
      const Proxy p(rng);
      const at::Tensor u = matched(p, kappa);
      for (std::int64_t i = 0; i < kSize; ++i) {
        const double gap = static_cast<double>(at(p.theta, i)) - at(p.s, i);
        const double moved = std::abs(gap + at(u, i));
        const double reach = std::max(kappa * std::abs(at(p.m, i)), std::abs(gap));
        EXPECT_LE(moved, reach * (1 + 1e-5) + 1e-6 * std::abs(at(p.s, i)) + 1e-14) << i;
        // Energies are comparable only where the proxy had room.
        if (at(u, i) != 0) {
          const double limit = kappa * std::abs(at(p.m, i));
          EXPECT_LE(moved * moved, limit * limit * (1 + 1e-4) + 1e-12) << i;
        }
      }
    }
}

// Invariant 4.
TEST(ServerRules, CommitsAlongDeltaAndGrowsWithKappa) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Rng rng(seed);
    const Proxy p(rng);
    at::Tensor last = at::zeros({kSize});
    for (const double kappa : {0.0, 0.25, 1.0, 2.0, 8.0, 1e6}) {
      const at::Tensor u = matched(p, kappa);
      ASSERT_FALSE(u.isnan().any().item<bool>());
      for (std::int64_t i = 0; i < kSize; ++i) {
        const double delta = at(p.gradient, i);
        EXPECT_GE(at(u, i) * delta, 0) << i;
        if (delta == 0) {
          EXPECT_EQ(at(u, i), 0) << i;
        }
        EXPECT_LE(std::abs(at(u, i)), 5 * std::abs(delta) * (1 + 1e-6)) << i;
        EXPECT_GE(std::abs(at(u, i)), std::abs(at(last, i))) << i;
      }
      last = u;
    }
  }
}

// Nothing moves, nothing breaks.
TEST(ServerRules, ZeroGradientsGiveZeroCommits) {
  Rng rng(1);
  Proxy p(rng);
  p.gradient = at::zeros({kSize});
  EXPECT_TRUE(at::equal(matched(p, 1), at::zeros({kSize})));
  p.m = at::zeros({kSize});
  p.theta = p.s;
  EXPECT_TRUE(at::equal(matched(p, 1), at::zeros({kSize})));
}

TEST(ServerRules, CommitsAndElasticDifferences) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Rng rng(seed);
    const at::Tensor theta = random_values(rng), x = random_values(rng);
    at::Tensor out = at::empty_like(theta), e = at::empty_like(theta);
    kernels::commit_into(out, theta, x, 0.25);
    kernels::elastic_into(e, x, theta, 0.3);
    for (std::int64_t i = 0; i < kSize; ++i) {
      const double scale = std::abs(at(theta, i)) + std::abs(at(x, i));
      EXPECT_NEAR(at(out, i), at(theta, i) + 0.25 * at(x, i), 1e-6 * scale);
      EXPECT_NEAR(at(e, i), 0.3 * (at(x, i) - at(theta, i)), 1e-6 * scale);
    }
    at::Tensor in_place = theta.clone();
    kernels::commit_into(in_place, in_place, x, 0.25);
    EXPECT_TRUE(at::equal(in_place, out));
  }
}

TEST(ServerRules, RefusesTensorsThatDoNotFit) {
  at::Tensor a = at::zeros({4}), b = at::zeros({5}), c = at::zeros({4}, at::kDouble);
  EXPECT_THROW(kernels::commit_into(a, a, b, 1), InvariantBroken);
  EXPECT_THROW(kernels::elastic_into(a, c, a, 1), InvariantBroken);
  EXPECT_THROW(kernels::advance_proxy(a, b, a, 1, 0, 0), InvariantBroken);
}

}  // namespace server_rules_test
}  // namespace grapevine
