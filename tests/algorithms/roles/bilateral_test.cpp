// The invariants of bilateral averaging (Lian et al. 2018), with exchanges in flight.
#include <gtest/gtest.h>

#include <limits>

#include "algorithms/wiring/make_parts.hpp"
#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace bilateral_test {

using sim::distance;
using sim::pull;
using sim::RoleWorld;
using sim::scatter;
using sim::WorldConfig;

Plan make_plan(const std::string& topology, const std::string& peers = "1") {
  return sim::plan_of({{"exchange", "bilateral"}, {"topology", topology}, {"peers", peers}});
}

struct Case {
  std::string topology;
  std::int32_t ranks;
  std::string peers = "1";
};
std::vector<Case> all_cases() {
  std::vector<Case> cases = {{"bipartite-exponential", 6, "2"},
                             {"bipartite-linear", 8, "0:1,1:3"},
                             {"hypercube", 8},
                             {"ring", 4}};
  for (const std::int32_t n : {1, 2, 3, 4, 6, 7, 8, 16, 32})
    cases.push_back({"bipartite-exponential", n});
  for (const std::int32_t n : {1, 2, 3, 5, 7, 8}) cases.push_back({"grid2d", n});
  for (const std::int32_t n : {3, 5, 7}) cases.push_back({"star", n});
  return cases;
}

WorldConfig make_config(const Case& c, std::uint64_t seed) {
  WorldConfig config;
  config.plan = make_plan(c.topology, c.peers);
  config.ranks = c.ranks;
  config.seed = seed;
  config.horizon.steps = 24;
  config.horizon.steps_per_epoch = 6;
  config.dimension = 5;
  return config;
}

std::string describe(const Case& c, std::uint64_t seed) {
  return c.topology + ", n=" + std::to_string(c.ranks) + ", p=" + c.peers +
         ", seed=" + std::to_string(seed);
}

at::Tensor nothing(Rank, Step, const at::Tensor& z) { return at::zeros_like(z); }

std::int64_t gradients_of(const RoleWorld& world, Rank rank) { return world.model(rank).step; }

// No gradient is lost between asking and answering, whoever is slow: the sum of all models, less
// what answers on their way carry, changes by gradients alone.
TEST(Bilateral, LosesNoGradientAndNoMass) {
  for (const Case& c : all_cases())
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE(describe(c, seed));
      WorldConfig config = make_config(c, seed);
      config.lr = 0.125;
      config.slowness[static_cast<Rank>(seed) % c.ranks] = 0.95;
      RoleWorld world(config, pull);
      scatter(world, c.ranks, config.dimension);
      const at::Tensor x0 = world.total_x();
      world.start();
      world.run([&] {
        const at::Tensor pulled =
            world.gradients().defined() ? world.gradients() * config.lr : at::zeros_like(x0);
        ASSERT_LT(distance(world.total_x() + pulled, x0), 1e-3 * c.ranks);
      });
      for (Rank r = 0; r < c.ranks; ++r) EXPECT_TRUE(world.finished(r)) << "rank " << r;
    }
}

// Whole numbers, few enough halvings: not a bit may be lost.
TEST(Bilateral, ConservesWholeNumbersExactly) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(describe(c, 3));
    WorldConfig config = make_config(c, 3);
    config.horizon.steps = 3;
    RoleWorld world(config, nothing);
    for (Rank r = 0; r < c.ranks; ++r) world.set_x(r, at::full({5}, 7.0 * r));
    const at::Tensor x0 = world.total_x();
    world.start();
    if (c.ranks > 8) continue;  // 24 bits do not hold that many averages of one rank
    world.run([&] { ASSERT_TRUE(at::equal(world.total_x(), x0)); });
  }
}

// Without gradients the spread never grows, and the ranks agree on the mean. A pair moves at the
// moment of the answer: what is on its way counts as there.
TEST(Bilateral, AgreesOnTheMeanAndNeverSpreads) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(describe(c, 5));
    WorldConfig config = make_config(c, 5);
    config.horizon.steps = 400;
    RoleWorld world(config, nothing);
    scatter(world, c.ranks, config.dimension);
    const at::Tensor mean = world.total_x() / c.ranks;
    const auto spread = [&] {
      double widest = 0;
      for (Rank r = 0; r < c.ranks; ++r)
        widest = std::max(widest, distance(world.answered_z(r), mean));
      return widest;
    };
    double last = spread();
    world.start();
    world.run([&] {
      const double now = spread();
      ASSERT_LE(now, last + 1e-4);
      last = now;
    });
    // A path or star agrees more slowly than the 400 steps of 8 ranks last.
    EXPECT_LT(last, c.topology == "grid2d" || c.ranks > 16 ? 1.0 : 0.05);
  }
}

TEST(Bilateral, EqualRanksStayEqual) {
  WorldConfig config = make_config({"bipartite-exponential", 8}, 2);
  RoleWorld world(config, nothing);
  for (Rank r = 0; r < 8; ++r) world.set_x(r, at::full({5}, 0.3));
  world.start();
  world.run();
  for (Rank r = 0; r < 8; ++r) EXPECT_TRUE(at::equal(world.z(r), at::full({5}, 0.3)));
}

// The end is that of all gradients together: fast ranks take over what a slow one leaves, and
// nobody goes far beyond.
TEST(Bilateral, TheClockIsTheNumberOfAllGradients) {
  for (const std::int32_t n : {1, 2, 4, 8, 16})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE("n=" + std::to_string(n) + ", seed=" + std::to_string(seed));
      WorldConfig config = make_config({"bipartite-exponential", n}, seed);
      config.horizon.steps = 50;
      config.lr = 0.01;
      if (n > 1) config.slowness[0] = 0.99;
      RoleWorld world(config, pull);
      world.start();
      world.run();
      std::int64_t total = 0;
      for (Rank r = 0; r < n; ++r) total += gradients_of(world, r);
      EXPECT_GE(total, 50 * n);
      EXPECT_LE(total, 50 * n + 20 * n);
      if (n > 2) {
        EXPECT_LT(gradients_of(world, 0), 50);
      }
      if (n == 1) {
        EXPECT_EQ(total, 50);
      }
      for (Rank r = 0; r < n; ++r) EXPECT_NEAR(world.model(r).epoch, 50.0 / 6, 2.0);
    }
}

// One rank alone is plain SGD.
TEST(Bilateral, OneRankIsSgd) {
  WorldConfig config = make_config({"bipartite-exponential", 1}, 1);
  config.lr = 0.1;
  RoleWorld world(config, [](Rank, Step, const at::Tensor& z) { return z - 2.0; });
  world.start();
  world.run();
  const double expected = 2.0 * (1 - std::pow(0.9, 24));
  EXPECT_LT(distance(world.z(0), at::full({5}, expected)), 1e-5);
}

TEST(Bilateral, GoesOnWithoutADeadPartner) {
  for (const std::int32_t n : {2, 4, 8})
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE("n=" + std::to_string(n) + ", seed=" + std::to_string(seed));
      WorldConfig config = make_config({"bipartite-exponential", n}, seed);
      config.lr = 0.05;
      RoleWorld world(config, pull);
      world.start();
      const auto when = static_cast<std::int64_t>(5 + world.rng()() % 60);
      world.run_until(when);
      const Rank dead = static_cast<Rank>(world.rng()() % static_cast<std::uint64_t>(n));
      world.kill(dead);
      world.run();
      for (Rank r = 0; r < n; ++r) EXPECT_TRUE(r == dead || world.finished(r)) << "rank " << r;
    }
}

// Save and load at any moment, with exchanges in flight: nothing is lost, and nothing said twice.
TEST(Bilateral, SaveAndLoadConserveEverything) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    WorldConfig config = make_config({"bipartite-exponential", 6}, seed);
    config.lr = 0.1;
    config.optimizer.momentum = 0.9;
    RoleWorld world(config, pull);
    scatter(world, 6, config.dimension);
    world.start();
    const auto when = static_cast<std::int64_t>(1 + world.rng()() % 200);
    world.run_until(when);
    const at::Tensor before = world.total_x();
    std::vector<Step> steps;
    for (Rank r = 0; r < 6; ++r) steps.push_back(world.model(r).step);
    world.save_and_load();
    EXPECT_TRUE(at::equal(world.total_x(), before));
    for (Rank r = 0; r < 6; ++r) EXPECT_EQ(world.model(r).step, steps[static_cast<std::size_t>(r)]);
    world.run();
    for (Rank r = 0; r < 6; ++r) EXPECT_TRUE(world.finished(r)) << "rank " << r;
  }
}

// Counts from the wire are those that a saved state may hold: one that is off would end training
// everywhere.
TEST(Bilateral, CountsThatCannotBeEndTheRun) {
  const std::vector<at::Tensor> counts = {
      at::tensor({0, -1, 0, 0}, at::kLong),
      at::full({4}, std::numeric_limits<std::int64_t>::max(), at::kLong),
      at::zeros({1, 4}, at::kLong), at::zeros({4}, at::kDouble), at::zeros({3}, at::kLong)};
  for (std::size_t i = 0; i < counts.size(); ++i) {
    SCOPED_TRACE(i);
    RoleWorld world(make_config({"bipartite-exponential", 4}, 1), pull);
    world.tamper([&](Envelope& envelope) {
      if (auto* swap = std::get_if<Swap>(&envelope.payload))
        swap->steps = FrozenTensor::copy_of(counts[i]);
    });
    world.start();
    EXPECT_THROW(world.run(), InvariantBroken);
  }
}

// Each rank that has not ended has asked for a gradient, and takes it: also where the total has
// come to its end meanwhile.
TEST(Bilateral, ASavedStateForgetsNoGradientThatWasAskedFor) {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    const WorldConfig config = make_config({"bipartite-exponential", 4}, seed);
    RoleWorld world(config, pull);
    const auto steps = [&world] {
      std::int64_t total = 0;
      for (Rank r = 0; r < 4; ++r) total += gradients_of(world, r);
      return total;
    };
    world.start();
    while (steps() < 4 * config.horizon.steps && world.step()) {
    }
    for (std::uint64_t more = world.rng()() % 20; more > 0; --more) world.step();
    std::int64_t asked = 0;
    for (Rank r = 0; r < 4; ++r) asked += world.finished(r) ? 0 : 1;
    const std::int64_t before = steps();
    world.save_and_load();
    world.run();
    EXPECT_GE(steps(), before + asked);
    for (Rank r = 0; r < 4; ++r) EXPECT_TRUE(world.finished(r)) << "rank " << r;
  }
}

std::string refusal_of(const std::string& topology, std::int32_t ranks) {
  const auto parts = make_parts(make_plan(topology), {}, *LrSchedule::make({}), {}, ranks);
  return parts.ok() ? "" : parts.error().message;
}

// Following the advice leads out: whatever it names can be had with this number of ranks.
TEST(Bilateral, RefusesGraphsThatAreNotBipartiteAndNamesThoseThatFit) {
  for (const auto& [topology, ranks, says] :
       std::vector<std::tuple<std::string, std::int32_t, std::string>>{
           {"exponential", 4, "is not bipartite"},
           {"exponential", 6, "is not bipartite"},
           {"complete", 3, "is not bipartite"},
           {"ring", 5, "is not bipartite"},
           {"hypercube", 3, "needs a power of two"},
           {"hypercube", 6, "needs a power of two"}}) {
    const std::string refusal = refusal_of(topology, ranks);
    EXPECT_NE(refusal.find(says), std::string::npos) << refusal;
    const std::size_t advice = refusal.rfind(": ");
    ASSERT_NE(advice, std::string::npos) << refusal;
    int named = 0;
    for (const std::string& name : topology_names()) {
      if (refusal.find(" " + name, advice) == std::string::npos) continue;
      ++named;
      EXPECT_EQ(refusal_of(name, ranks), "") << "named in: " << refusal;
    }
    EXPECT_GE(named, 2) << refusal;
  }
}

}  // namespace bilateral_test
}  // namespace grapevine
