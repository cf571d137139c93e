// All-reduce SGD against the definition: one optimizer on the mean gradient.
#include <gtest/gtest.h>

#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace aggregate_test {

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
    broken.run_until(when);
    broken.save_and_load();
    broken.run();
    for (Rank r = 0; r < 4; ++r) EXPECT_TRUE(at::equal(straight.z(r), broken.z(r)));
  }
}

// ---- Compressed

using Keys = std::vector<std::pair<std::string, std::string>>;

const std::vector<Keys> kCompressed = {
    {{"compress", "top-k"}, {"density", "0.3"}},
    {{"compress", "top-k"}, {"density", "0.3"}, {"sparse_reduce", "all-gather-reselect"}},
    {{"compress", "top-k"}, {"density", "0.3"}, {"sparse_reduce", "butterfly"}},
    {{"compress", "top-k"}, {"density", "0.3"}, {"sparse_reduce", "tree"}},
    {{"compress", "top-k"}, {"density", "0.3"}, {"momentum_correction", "true"}},
    {{"compress", "random-k"}, {"density", "0.5"}, {"sparse_reduce", "butterfly"}},
    {{"compress", "fp16"}},
    {{"compress", "int8"}},
    {{"compress", "sign"}}};

// Ranks from which on vectors of 16 bits cost more than they save, and are refused.
constexpr std::int32_t kMostHalves = 4;

std::string describe(const Keys& keys) {
  std::string text;
  for (const auto& [key, value] : keys) text += value + " ";
  return text;
}

WorldConfig compressed(const Keys& keys, std::int32_t ranks, std::uint64_t seed) {
  WorldConfig config = make_config(ranks, seed);
  config.plan = sim::plan_of({keys.begin(), keys.end()});
  return config;
}

at::Tensor still_pull(Rank rank, Step, const at::Tensor& z) {
  return z * 0.5 - at::arange(7) * static_cast<double>(rank) * 0.1;
}

// Every rank's part of the gradient gets in sooner or later: the optimum is that of dense training.
TEST(Aggregate, CompressedReplicasStayEqualAndReachTheOptimum) {
  for (const Keys& keys : kCompressed)
    for (const std::int32_t n : {1, 4, 6}) {
      if (keys.front().second == "fp16" && n > kMostHalves) continue;
      SCOPED_TRACE(describe(keys) + "n=" + std::to_string(n));
      WorldConfig config = compressed(keys, n, 5);
      config.horizon.steps = 500;
      config.lr = 0.02;
      config.optimizer.momentum = 0.5;
      RoleWorld world(config, still_pull);
      world.start();
      world.run();
      const at::Tensor optimum = at::arange(7) * 0.1 * (n - 1.0);
      for (Rank r = 0; r < n; ++r) {
        EXPECT_TRUE(world.finished(r));
        EXPECT_TRUE(at::equal(world.z(r), world.z(0))) << "replicas must stay bitwise equal";
      }
      EXPECT_LT((world.z(0) - optimum).abs().max().item<double>(), 0.05) << world.z(0);
    }
}

TEST(Aggregate, CompressedSaveAndLoadAndTheOrderOfMessagesChangeNothing) {
  for (const Keys& keys : kCompressed)
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(describe(keys) + "seed=" + std::to_string(seed));
      const std::int32_t n = keys.front().second == "fp16" ? kMostHalves : 5;
      const WorldConfig config = compressed(keys, n, 1);
      RoleWorld straight(config, pull), broken(config, pull);
      straight.start();
      straight.run();
      for (std::uint64_t i = 0; i < seed; ++i) broken.rng()();  // another order of events
      broken.start();
      const auto when = static_cast<std::int64_t>(1 + broken.rng()() % 150);
      broken.run_until(when);
      broken.save_and_load();
      broken.run();
      for (Rank r = 0; r < n; ++r) EXPECT_TRUE(at::equal(straight.z(r), broken.z(r)));
    }
}

// Clipping in double precision; half of the steps are beyond the norm.
TEST(Aggregate, ClipsTheMeanOrEachRanksOwn) {
  for (const std::string where : {"sum", "local"}) {
    SCOPED_TRACE(where);
    WorldConfig config = compressed({{"clip", "2"}, {"clip_at", where}}, 4, 3);
    config.optimizer.momentum = 0;
    RoleWorld world(config, pull);
    world.start();
    world.run();
    at::Tensor x = at::zeros({config.dimension}, at::kDouble);
    int clipped = 0;
    const auto clip = [&](const at::Tensor& g, double norm) {
      const double is = g.norm().item<double>();
      clipped += is > norm;
      return is > norm ? g * (norm / is) : g;
    };
    for (Step step = 0; step < config.horizon.steps; ++step) {
      at::Tensor mean = at::zeros_like(x);
      for (Rank r = 0; r < 4; ++r) {
        const at::Tensor g = pull(r, step, x);
        mean += (where == "local" ? clip(g, 1) : g) / 4;
      }
      x = x - config.lr * (where == "sum" ? clip(mean, 2) : mean);
    }
    EXPECT_GT(clipped, 0);
    EXPECT_TRUE(at::allclose(world.z(0).to(at::kDouble), x, 1e-5, 1e-5));
  }
}

}  // namespace aggregate_test
}  // namespace grapevine
