// All-reduce SGD against the definition: one optimizer on the mean gradient.
#include <gtest/gtest.h>

#include "tests/sim/role_world.hpp"

namespace grapevine {
namespace {

using sim::RoleWorld;
using sim::WorldConfig;

at::Tensor pull(Rank rank, Step step, const at::Tensor& z) {
  return z * 0.5 - static_cast<double>(rank) + 0.01 * static_cast<double>(step);
}

WorldConfig make_config(std::int32_t ranks, std::uint64_t seed) {
  WorldConfig config;
  config.plan = *resolve(Wiring{});
  config.ranks = ranks;
  config.seed = seed;
  config.horizon.steps = 15;
  config.dimension = 7;
  config.lr = 0.1;
  config.optimizer.momentum = 0.9;
  return config;
}

// SGD with momentum in double precision.
at::Tensor oracle(const WorldConfig& config) {
  at::Tensor x = at::zeros({config.dimension}, at::kDouble), v = at::zeros_like(x);
  for (Step step = 0; step < config.horizon.steps; ++step) {
    at::Tensor mean = at::zeros_like(x);
    for (Rank r = 0; r < config.ranks; ++r) mean += pull(r, step, x) / config.ranks;
    v = config.optimizer.momentum * v + mean;
    x = x - config.lr * v;
  }
  return x;
}

TEST(Aggregate, EqualsOneOptimizerOnTheMeanGradient) {
  for (const std::int32_t n : {1, 2, 3, 4, 5, 8}) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE("n=" + std::to_string(n) + ", seed=" + std::to_string(seed));
      const WorldConfig config = make_config(n, seed);
      RoleWorld world(config, pull);
      world.start();
      world.run();
      const at::Tensor expected = oracle(config);
      for (Rank r = 0; r < n; ++r) {
        EXPECT_TRUE(world.finished(r));
        EXPECT_TRUE(at::allclose(world.z(r).to(at::kDouble), expected, 1e-5, 1e-5));
        EXPECT_TRUE(at::equal(world.z(r), world.z(0))) << "replicas must stay bitwise equal";
      }
    }
  }
}

TEST(Aggregate, EveryContributionIsCommittedOnceAndIsFresh) {
  const WorldConfig config = make_config(4, 9);
  RoleWorld world(config, pull);
  world.start();
  world.run();
  for (Rank r = 0; r < 4; ++r) {
    std::map<Step, int> committed;
    for (const Event& event : world.events(r)) {
      if (event.kind == EventKind::committed) ++committed[event.stamp.step];
      if (event.kind == EventKind::applied) {
        EXPECT_EQ(event.staleness, 0);
      }
    }
    ASSERT_EQ(committed.size(), static_cast<std::size_t>(config.horizon.steps));
    for (const auto& [step, count] : committed) EXPECT_EQ(count, 1) << "step " << step;
  }
}

TEST(Aggregate, SaveAndLoadInTheMiddleOfARingChangeNothing) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    const WorldConfig config = make_config(4, seed);
    RoleWorld straight(config, pull), broken(config, pull);
    straight.start();
    straight.run();
    broken.start();
    const auto when = static_cast<std::int64_t>(1 + broken.rng()() % 300);
    while (broken.event_count() < when && broken.step()) {
    }
    broken.save_and_load();
    broken.run();
    for (Rank r = 0; r < 4; ++r) EXPECT_TRUE(at::equal(straight.z(r), broken.z(r)));
  }
}

}  // namespace
}  // namespace grapevine
