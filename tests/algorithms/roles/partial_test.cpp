// Eager-SGD (Li et al. 2020) under random delays: lossless, alike on all ranks, bounded in age.
#include <gtest/gtest.h>

#include "algorithms/wiring/make_parts.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace partial_test {

using sim::RoleWorld;
using sim::WorldConfig;

constexpr std::int32_t kRanks[] = {1, 2, 3, 5, 6, 7, 8};

Plan make_plan(const sim::Keys& keys) {
  return sim::plan_of(sim::operator+({{"exchange", "partial"}}, keys));
}

WorldConfig make_config(const Plan& plan, std::int32_t ranks, std::uint64_t seed) {
  WorldConfig config;
  config.plan = plan;
  config.plan.seed = seed;
  config.ranks = ranks;
  config.seed = seed;
  config.horizon.steps = 40;
  config.dimension = 5;
  config.lr = 0.125;
  // Rank 1 is a straggler; the others are slow now and then.
  for (Rank r = 0; r < ranks; ++r) config.slowness[r] = r == 1 ? 0.97 : 0.3;
  return config;
}

// Whole numbers that do not depend on the model: no sum of them is rounded.
at::Tensor whole(Rank rank, Step step, const at::Tensor& z) {
  return at::full_like(z, static_cast<double>(64 * (rank + 1) + 8 * (step % 4)));
}
at::Tensor pull(Rank rank, Step step, const at::Tensor& z) {
  return z * 0.5 - static_cast<double>(rank) + 0.01 * static_cast<double>(step);
}

const std::vector<std::string> kActivations = {"solo", "majority", "quorum"};

void expect_all_finished_alike(RoleWorld& world, std::int32_t n) {
  for (Rank r = 0; r < n; ++r) {
    EXPECT_TRUE(world.finished(r)) << "rank " << r;
    EXPECT_TRUE(at::equal(world.z(r), world.z(0))) << "rank " << r;
  }
}

// Every gradient of every rank once, none older than tau. Returns the sum of their ages.
std::int64_t expect_each_once(const RoleWorld& world, const WorldConfig& config, std::int64_t tau) {
  std::int64_t ages = 0;
  for (Rank r = 0; r < config.ranks; ++r) {
    std::map<Step, int> committed;
    for (const Event& event : world.events(r)) {
      if (event.kind == EventKind::committed) ++committed[event.stamp.step];
      if (event.kind == EventKind::contributed) {
        EXPECT_LE(event.staleness, tau);
      }
      if (event.kind == EventKind::applied) {
        EXPECT_GE(event.staleness, 0);
        EXPECT_LE(event.staleness, tau) << "rank " << r << ", step " << event.stamp.step;
        ages += event.staleness;
      }
    }
    EXPECT_EQ(committed.size(), static_cast<std::size_t>(config.horizon.steps)) << "rank " << r;
    for (const auto& [step, count] : committed) EXPECT_EQ(count, 1) << "step " << step;
  }
  return ages;
}

// In P = 1, 2, 8, where 1/P is exact, x is what all gradients say, to the last bit.
TEST(Partial, EveryGradientIsConsumedOnceWithinItsAge) {
  for (const std::string& activation : kActivations)
    for (const int tau : {0, 1, 3, 50})
      for (const std::int32_t n : kRanks)
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
          SCOPED_TRACE(activation + ", tau=" + std::to_string(tau) + ", n=" + std::to_string(n) +
                       ", seed=" + std::to_string(seed));
          const WorldConfig config = make_config(
              make_plan({{"activation", activation}, {"staleness", std::to_string(tau)}}), n, seed);
          RoleWorld world(config, whole);
          world.start();
          world.run();
          expect_all_finished_alike(world, n);
          const std::int64_t ages = expect_each_once(world, config, tau);
          if (tau > 0 && n > 2 && activation != "majority") {
            EXPECT_GT(ages, 0) << "everybody waited for everybody";
          }
          const at::Tensor x = world.z(0).to(at::kDouble);
          const at::Tensor expected = world.gradients() * (-config.lr / n);
          const bool exact = (n & (n - 1)) == 0;
          EXPECT_TRUE(exact ? at::equal(x, expected) : at::allclose(x, expected, 1e-5, 1e-5));
        }
}

// With a quorum of all, or tau = 0, this is synchronous SGD: the same bits, whatever the delays.
TEST(Partial, WithoutFreedomItIsAllReduceBitForBit) {
  for (const std::int32_t n : kRanks)
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      WorldConfig config = make_config(*resolve(Wiring{}), n, seed);
      config.optimizer.momentum = 0.9;
      config.lr = 0.1;
      RoleWorld reference(config, pull);
      reference.start();
      reference.run();
      for (const auto& keys : std::vector<std::vector<std::pair<std::string, std::string>>>{
               {{"activation", "quorum"}, {"quorum", std::to_string(n)}},
               {{"activation", "solo"}, {"staleness", "0"}},
               {{"activation", "majority"}, {"staleness", "0"}}}) {
        SCOPED_TRACE("n=" + std::to_string(n) + ", seed=" + std::to_string(seed) + ", " +
                     keys[0].second + " " + keys[1].second);
        config.plan = make_plan(keys);
        RoleWorld world(config, pull);
        world.start();
        world.run();
        expect_all_finished_alike(world, n);
        EXPECT_TRUE(at::equal(world.z(0), reference.z(0)));
      }
    }
}

// Without a bound a straggler is not waited for: the others are through long before it.
TEST(Partial, SoloDoesNotWaitForAStraggler) {
  WorldConfig config =
      make_config(make_plan({{"activation", "solo"}, {"staleness", "1000"}}), 4, 7);
  config.slowness = {{1, 0.999}};
  RoleWorld world(config, whole);
  world.start();
  std::int64_t of_straggler = -1;
  const auto produced = [&world](Rank r) {
    std::int64_t steps = 0;
    for (const Event& event : world.events(r)) steps += event.kind == EventKind::step_done;
    return steps;
  };
  world.run([&] {
    if (of_straggler < 0 && produced(0) == config.horizon.steps) of_straggler = produced(1);
  });
  EXPECT_GE(of_straggler, 0);
  EXPECT_LT(of_straggler, config.horizon.steps / 2);
  expect_all_finished_alike(world, 4);
}

// 1/active instead of 1/P: a round with one rank in it moves x by the whole of its gradient.
TEST(Partial, ScaleByActiveDividesByThoseInTheSum) {
  WorldConfig config = make_config(
      make_plan({{"activation", "solo"}, {"staleness", "1000"}, {"scale", "active"}}), 2, 3);
  config.horizon.steps = 1;
  config.lr = 1;
  config.slowness = {{1, 0.999}};
  RoleWorld world(config, [](Rank, Step, const at::Tensor& z) { return at::ones_like(z); });
  world.start();
  world.run();
  EXPECT_EQ(world.z(0)[0].item<float>(), -2.0F) << "two rounds of one rank each";
}

// The sums of what was saved, loaded and went on are the same whole numbers.
TEST(Partial, SaveAndLoadInTheMiddleLoseNothing) {
  for (const std::string& activation : kActivations)
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE(activation + ", seed=" + std::to_string(seed));
      const WorldConfig config =
          make_config(make_plan({{"activation", activation}, {"staleness", "3"}}), 4, seed);
      RoleWorld world(config, whole);
      world.start();
      const auto when = static_cast<std::int64_t>(1 + world.rng()() % 2000);
      world.run_until(when);
      world.save_and_load();
      world.run();
      for (Rank r = 0; r < 4; ++r) EXPECT_TRUE(at::equal(world.z(r), world.z(0)));
      expect_each_once(world, config, 3);
      EXPECT_TRUE(at::equal(world.z(0).to(at::kDouble), world.gradients() * (-config.lr / 4)));
    }
}

// What a round brings enters the model in the step that the rank finishes next.
TEST(Partial, RoundsAreRecordedInTheStepThatTheyEnter) {
  for (const std::string& activation : kActivations) {
    SCOPED_TRACE(activation);
    RoleWorld world(make_config(make_plan({{"activation", activation}, {"staleness", "3"}}), 4, 2),
                    pull);
    world.start();
    world.run();
    for (Rank r = 0; r < 4; ++r) {
      Step done = 0;
      for (const Event& event : world.events(r)) {
        const bool of_round =
            event.kind == EventKind::reduced || event.kind == EventKind::committed ||
            event.kind == EventKind::applied || event.kind == EventKind::contributed;
        if (of_round) {
          EXPECT_EQ(event.step, done) << name_of(event.kind) << " of rank " << r;
        }
        done += event.kind == EventKind::step_done;
      }
    }
  }
}

// Compressed sums with a quorum of all are the aggregate's, bit for bit.
TEST(Partial, CompressedWithoutFreedomItIsTheCompressedAggregate) {
  for (const std::string reduce : {"all-gather", "all-gather-reselect", "butterfly", "tree"})
    for (const std::int32_t n : {1, 2, 3, 5, 8}) {
      SCOPED_TRACE(reduce + ", n=" + std::to_string(n));
      const sim::Keys keys = {{"compress", "top-k"}, {"density", "0.4"}, {"sparse_reduce", reduce}};
      WorldConfig config = make_config(sim::plan_of(keys), n, 3);
      RoleWorld reference(config, pull);
      reference.start();
      reference.run();
      config.plan = make_plan(sim::operator+
                              (keys, {{"activation", "quorum"}, {"quorum", std::to_string(n)}}));
      RoleWorld world(config, pull);
      world.start();
      world.run();
      expect_all_finished_alike(world, n);
      EXPECT_TRUE(at::equal(world.z(0), reference.z(0)));
    }
}

// What is not in x yet is in a residual: x says all gradients but those, to the last bit.
TEST(Partial, CompressedSumsLoseNothing) {
  for (const std::string& activation : kActivations)
    for (const std::int32_t n : {1, 2, 8})
      for (std::uint64_t seed = 1; seed <= 4; ++seed) {
        SCOPED_TRACE(activation + ", n=" + std::to_string(n) + ", seed=" + std::to_string(seed));
        const WorldConfig config = make_config(make_plan({{"activation", activation},
                                                          {"staleness", "3"},
                                                          {"compress", "top-k"},
                                                          {"density", "0.4"}}),
                                               n, seed);
        RoleWorld world(config, [](Rank rank, Step step, const at::Tensor& z) {
          return at::arange(1, z.numel() + 1, z.options()) * (8.0 * (rank + 1) + step % 4);
        });
        world.start();
        world.run();
        expect_all_finished_alike(world, n);
        expect_each_once(world, config, 3);
        at::Tensor residuals = at::zeros({config.dimension}, at::kDouble);
        for (Rank r = 0; r < n; ++r)
          residuals += world.saved(r)
                           .under("reduce")
                           .under("reduction")
                           .under("feedback")
                           .tensor("residual")
                           ->to(at::kDouble);
        EXPECT_GT(residuals.abs().sum().item<double>(), 0) << "nothing is tested";
        EXPECT_TRUE(at::equal(world.z(0).to(at::kDouble),
                              (world.gradients() - residuals) * (-config.lr / n)));
      }
}

// The same through checkpoints: between the sum and the tally, with residuals and lists half done.
TEST(Partial, SaveAndLoadInTheMiddleOfCompressedSumsLoseNothing) {
  for (const std::string reduce : {"all-gather", "all-gather-reselect", "butterfly", "tree"})
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(reduce + ", seed=" + std::to_string(seed));
      const WorldConfig config = make_config(make_plan({{"activation", "solo"},
                                                        {"staleness", "3"},
                                                        {"compress", "top-k"},
                                                        {"density", "0.4"},
                                                        {"sparse_reduce", reduce}}),
                                             4, seed);
      RoleWorld world(config, whole);
      world.start();
      const auto when = static_cast<std::int64_t>(1 + world.rng()() % 2000);
      world.run_until(when);
      world.save_and_load();
      world.run();
      expect_each_once(world, config, 3);
      at::Tensor residuals = at::zeros({config.dimension}, at::kDouble);
      for (Rank r = 0; r < 4; ++r) {
        EXPECT_TRUE(at::equal(world.z(r), world.z(0)));
        residuals += world.saved(r)
                         .under("reduce")
                         .under("reduction")
                         .under("feedback")
                         .tensor("residual")
                         ->to(at::kDouble);
      }
      EXPECT_TRUE(at::equal(world.z(0).to(at::kDouble),
                            (world.gradients() - residuals) * (-config.lr / 4)));
    }
}

TEST(Partial, WiringsThatDoNotFitAreRefused) {
  const auto refusal = [](const sim::Keys& keys) { return sim::refusal_of(keys); };
  EXPECT_NE(refusal({{"exchange", "partial"}, {"activation", "solo"}, {"quorum", "2"}})
                .find("choose activation = 'quorum'"),
            std::string::npos);
  EXPECT_NE(refusal({{"exchange", "gossip"}, {"activation", "solo"}}).find("belongs to partial"),
            std::string::npos);
  EXPECT_NE(refusal({{"exchange", "partial"}, {"pack", "model"}}).find("choose pack = 'gradient'"),
            std::string::npos);
  EXPECT_NE(refusal({{"exchange", "aggregate"}, {"pack", "model"}, {"compress", "top-k"}})
                .find("choose pack = 'difference'"),
            std::string::npos);
  EXPECT_NE(refusal({{"exchange", "aggregate"}, {"pack", "model"}, {"clip_at", "sum"}})
                .find("belongs to gradient, choose pack = 'gradient'"),
            std::string::npos);
  EXPECT_NE(refusal({{"exchange", "partial"}, {"scale", "active"}, {"compress", "top-k"}})
                .find("choose scale = 'ranks'"),
            std::string::npos);
  EXPECT_NE(refusal({{"exchange", "aggregate"}, {"staleness", "2"}})
                .find("belongs to gossip, partial and group"),
            std::string::npos);
  Plan plan = make_plan({{"activation", "quorum"}, {"quorum", "5"}});
  LrConfig rate;
  EXPECT_FALSE(make_parts(plan, {}, *LrSchedule::make(rate), {}, 4).ok());
}

}  // namespace partial_test
}  // namespace grapevine
