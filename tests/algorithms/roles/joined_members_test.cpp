// Ranks are lost, and join again at any moment with the model of another: by Role::joiner_fields(),
// as the actors call it.
#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "tests/sim/changing_wirings.hpp"
#include "tests/sim/pulled_ranks.hpp"

namespace grapevine {
namespace joined_members_test {

using sim::changing_config;
using sim::distance;
using sim::Keys;
using sim::pull;
using sim::RoleWorld;
using sim::scatter;
using sim::WorldConfig;

constexpr std::int64_t kDimension = sim::kChangingDimension;
constexpr double kRate = sim::kChangingRate;

// A rank that is up.
Rank any_member(RoleWorld& world) {
  const std::vector<Rank>& up = world.members();
  return up[world.rng()() % up.size()];
}

// All ranks finish, each gradient that a worker gave since its rank joined is committed or dropped
// once, and where ranks replicate one model they end with the same bits.
TEST(JoinedMembers, FinishWithTheOthersAndAccountForTheirGradients) {
  std::int64_t trained_after = 0;
  for (const Keys& keys : sim::wirings_of_changing_members())
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(sim::name_of(keys) + ", seed=" + std::to_string(seed));
      const std::int32_t n = 4 + static_cast<std::int32_t>(seed % 3);
      WorldConfig config = changing_config(keys, n, seed);
      if (seed % 4 == 0) config.slowness[1] = 0.9;
      RoleWorld world(config, pull);
      scatter(world, config.plan.role->replicates ? 1 : n, kDimension);
      if (config.plan.role->replicates)
        for (Rank r = 1; r < n; ++r) world.set_x(r, world.model(0).x.read());
      world.start();
      std::int64_t events = 0;
      for (std::uint64_t lives = 0; lives < 1 + seed % 3; ++lives) {
        world.run_until(events += static_cast<std::int64_t>(world.rng()() % 200));
        const Rank lost = any_member(world);
        world.kill(lost);
        world.run_until(events += static_cast<std::int64_t>(world.rng()() % 20));
        // Also without a view in between.
        if (seed % 2 == 0) world.change_members();
        world.run_until(events += static_cast<std::int64_t>(world.rng()() % 60));
        world.change_members({lost});
      }
      world.run();
      for (Rank r = 0; r < n; ++r) {
        ASSERT_TRUE(world.finished(r)) << "rank " << r;
        const auto counts = sim::counts_of(world, r);
        const auto of = [&counts](EventKind kind) {
          const auto found = counts.find(kind);
          return found == counts.end() ? 0 : found->second;
        };
        EXPECT_EQ(of(EventKind::committed) + of(EventKind::dropped), world.given(r))
            << "rank " << r;
        EXPECT_TRUE(at::isfinite(world.z(r)).all().item<bool>()) << "rank " << r;
        if (config.plan.role->replicates) {
          EXPECT_EQ(distance(world.z(r), world.z(0)), 0) << "rank " << r;
        }
        trained_after += world.given(r);
      }
    }
  EXPECT_GT(trained_after, 10000);
}

// Push-sum: a rank that joins takes a part of another's x and w, so that nothing is added.
TEST(JoinedMembers, GossipKeepsItsMass) {
  for (const Keys& keys : std::vector<Keys>{{},
                                            {{"overlap", "true"}},
                                            {{"overlap", "true"}, {"staleness", "2"}},
                                            {{"overlap", "true"}, {"local_steps", "3"}},
                                            {{"peers", "2"}}})
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(sim::name_of(keys) + ", seed=" + std::to_string(seed));
      const std::int32_t n = 6;
      RoleWorld world(changing_config(sim::operator+({{"exchange", "gossip"}}, keys), n, seed),
                      pull);
      scatter(world, n, kDimension);
      const at::Tensor x0 = world.total_x();
      const auto check = [&] {
        ASSERT_NEAR(world.total_w() + world.lost_w(), n, 1e-9);
        at::Tensor x = world.total_x() + world.lost_x();
        if (world.gradients().defined()) x += world.gradients() * kRate;
        ASSERT_LT((x - x0).abs().max().item<double>(), 1e-3 * n);
      };
      world.start();
      std::int64_t events = 0;
      for (int lives = 0; lives < 3; ++lives) {
        world.run_until(events += static_cast<std::int64_t>(10 + world.rng()() % 40));
        const Rank first = any_member(world);
        world.kill(first);
        world.change_members();
        check();
        world.run_until(events += static_cast<std::int64_t>(world.rng()() % 20));
        const Rank second = any_member(world);
        world.kill(second);
        world.change_members();
        world.change_members({std::min(first, second), std::max(first, second)});
        check();
      }
      world.run(check);
    }
}

// Symmetric gossip: a copy of weight 1, so that all weights stay 1 on average.
TEST(JoinedMembers, SymmetricGossipTakesACopy) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    const Keys keys = {{"exchange", "gossip"}, {"averaging", "symmetric"}};
    RoleWorld world(changing_config(keys, 5, seed), pull);
    scatter(world, 5, kDimension);
    world.start();
    world.run_until(static_cast<std::int64_t>(10 + world.rng()() % 40));
    const Rank lost = any_member(world);
    world.kill(lost);
    world.change_members();
    world.change_members({lost});
    EXPECT_NEAR(world.total_w(), 5, 1e-9);
    world.run();
  }
}

// A naive oracle: x <- x - lr * mean of the gradients at x of the members of that step.
TEST(JoinedMembers, AggregateTakesTheMeanOfThePresentMembers) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    const std::int32_t n = 5;
    const WorldConfig config = changing_config({{"exchange", "aggregate"}}, n, seed);
    RoleWorld world(config, pull);
    world.start();
    std::vector<std::pair<Step, std::vector<Rank>>> views = {{0, world.members()}};
    std::int64_t events = 0;
    const auto changed = [&] {
      views.emplace_back(world.parts()->horizon.first_step, world.members());
    };
    for (int lives = 0; lives < 2; ++lives) {
      world.run_until(events += static_cast<std::int64_t>(world.rng()() % 300));
      const Rank lost = any_member(world);
      world.kill(lost);
      world.change_members();
      changed();
      world.run_until(events += static_cast<std::int64_t>(world.rng()() % 200));
      world.change_members({lost});
      changed();
    }
    world.run();
    const Step steps = world.parts()->horizon.steps;
    double x = 0, samples = 0;
    std::size_t view = 0;
    for (Step step = 0; step < steps; ++step) {
      while (view + 1 < views.size() && views[view + 1].first <= step) ++view;
      double sum = 0;
      for (const Rank r : views[view].second) sum += x - r;
      x -= kRate * sum / static_cast<double>(views[view].second.size());
      samples += static_cast<double>(views[view].second.size());
    }
    for (Rank r = 0; r < n; ++r) EXPECT_NEAR(world.z(r)[0].item<double>(), x, 1e-5) << "rank " << r;
    if (config.horizon.by_samples) {
      EXPECT_NEAR(samples, static_cast<double>(config.horizon.steps * n), n)
          << "the samples are not dealt anew";
    }
  }
}

}  // namespace joined_members_test
}  // namespace grapevine
