// What gossip owes to one optimizer on one machine: weight decay of its whole strength, a mean that
// averaging does not move, and local steps that hide the exchange.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "algorithms/graphs/topology.hpp"
#include "algorithms/roles/gossip/gossip.hpp"
#include "tests/algorithms/graphs/symmetric_matrix.hpp"
#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace gossip_exactness_test {

using sim::distance;
using sim::Keys;
using sim::pull;
using sim::RoleWorld;
using sim::scatter;
using sim::WorldConfig;

struct Mode {
  std::string name;
  Keys keys;
};

WorldConfig make_config(const Keys& keys, std::int32_t ranks, std::uint64_t seed) {
  WorldConfig config;
  config.plan = sim::plan_of(keys);
  config.ranks = ranks;
  config.seed = seed;
  config.horizon = {24, 6};
  config.dimension = 5;
  config.lr = 0.1;
  return config;
}

// ---- weight decay ----

std::vector<OptimizerConfig> decaying_optimizers() {
  std::vector<OptimizerConfig> all;
  for (const double momentum : {0.0, 0.9})
    for (const bool nesterov : {false, true})
      if (momentum > 0 || !nesterov) all.push_back({"sgd", momentum, nesterov, 0.1});
  for (const char* name : {"adam", "adamw"}) all.push_back({name, 0, false, 0.1});
  return all;
}

// Ranks that start alike and see the same gradients are one machine, whatever they exchange.
TEST(WeightDecay, RanksThatSeeTheSameAreOneOptimizer) {
  const auto gradient_of = [](Rank, Step step, const at::Tensor& z) {
    return z * 0.3 - at::arange(5) * (1 + static_cast<double>(step % 3));
  };
  for (const Mode& mode : std::vector<Mode>{
           {"sgp", {{"exchange", "gossip"}}},
           {"osgp", {{"exchange", "gossip"}, {"overlap", "true"}}},
           {"osgp p=2", {{"exchange", "gossip"}, {"overlap", "true"}, {"peers", "2"}}},
           {"osgp complete",
            {{"exchange", "gossip"}, {"overlap", "true"}, {"topology", "complete"}}},
           {"osgp H=3", {{"exchange", "gossip"}, {"overlap", "true"}, {"local_steps", "3"}}},
           {"biased", {{"exchange", "gossip"}, {"overlap", "true"}, {"averaging", "biased"}}},
           {"d-psgd", {{"exchange", "gossip"}, {"averaging", "symmetric"}, {"update", "after"}}}})
    for (const OptimizerConfig& optimizer : decaying_optimizers()) {
      SCOPED_TRACE(mode.name + ", " + optimizer.name + ", momentum " +
                   std::to_string(optimizer.momentum));
      WorldConfig config = make_config(mode.keys, 4, 3);
      config.horizon.steps = 15;
      config.optimizer = optimizer;
      RoleWorld world(config, gradient_of);
      const at::Tensor x0 = at::arange(5, at::kFloat) - 2;
      for (Rank r = 0; r < 4; ++r) world.set_x(r, x0);
      world.start();
      world.run();
      const auto alone = *make_optimizer(optimizer);
      at::Tensor x = x0.clone();
      for (Step step = 0; step < 15; ++step) {
        at::Tensor gradient = gradient_of(0, step, x);
        alone->step(x, gradient, config.lr);
      }
      for (Rank r = 0; r < 4; ++r) EXPECT_LT(distance(world.z(r), x), 1e-5) << "rank " << r;
    }
}

// The sum of x changes by -lr (g + wd z), z where g was taken: also where rounds are skipped, where
// weights differ, and with local steps.
TEST(WeightDecay, TheSumLosesWhatEveryStepDecays) {
  constexpr double kDecay = 0.1;
  for (const Mode& mode : std::vector<Mode>{
           {"sgp star", {{"topology", "star"}}},
           {"osgp", {{"overlap", "true"}}},
           {"osgp star", {{"overlap", "true"}, {"topology", "star"}}},
           {"osgp tau=1", {{"overlap", "true"}, {"staleness", "1"}}},
           {"osgp tau=3, p=2", {{"overlap", "true"}, {"staleness", "3"}, {"peers", "2"}}},
           {"osgp H=4", {{"overlap", "true"}, {"local_steps", "4"}}},
           {"osgp H=4, tau=2", {{"overlap", "true"}, {"local_steps", "4"}, {"staleness", "2"}}}})
    for (const std::int32_t n : {1, 3, 6})
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE(mode.name + ", n=" + std::to_string(n) + ", seed=" + std::to_string(seed));
        WorldConfig config =
            make_config(sim::operator+({{"exchange", "gossip"}}, mode.keys), n, seed);
        config.optimizer.weight_decay = kDecay;
        config.slowness[n - 1] = 0.9;
        at::Tensor given = at::zeros({config.dimension}, at::kDouble);
        RoleWorld world(config, [&](Rank rank, Step step, const at::Tensor& z) {
          at::Tensor g = pull(rank, step, z);
          given += g.to(at::kDouble) + kDecay * z.to(at::kDouble);
          return g;
        });
        scatter(world, n, config.dimension);
        const at::Tensor x0 = world.total_x();
        world.start();
        world.run();
        EXPECT_LT(distance(world.total_x() + config.lr * given, x0), 1e-4 * n);
        EXPECT_NEAR(world.total_w(), n, 1e-9);
      }
}

// ---- the mean ----

// -1 or 1, a function of the seeds alone.
at::Tensor coin(Rank rank, Step step, const at::Tensor& z) {
  at::Tensor g = at::empty_like(z);
  for (std::int64_t i = 0; i < g.numel(); ++i) {
    const std::uint64_t drawn =
        mix_seed(mix_seed(static_cast<std::uint64_t>(rank) + 1, static_cast<std::uint64_t>(step)),
                 static_cast<std::uint64_t>(i));
    g.data_ptr<float>()[i] = (drawn & 1) != 0 ? 1.0F : -1.0F;
  }
  return g;
}

// Rounding is noise: it moves the mean of many coordinates by far less than a weight that is wrong
// in its last bit, the same way in every round, which comes to 3e-5 here.
TEST(Averaging, DoesNotMoveTheMeanOverManyRounds) {
  constexpr Step kSteps = 1000;
  for (const auto& [mode, n] : std::vector<std::pair<Mode, std::int32_t>>{
           {{"sgp p=2", {{"exchange", "gossip"}, {"peers", "2"}}}, 3},
           {{"osgp p=2", {{"exchange", "gossip"}, {"peers", "2"}, {"overlap", "true"}}}, 3},
           {{"sgp complete", {{"exchange", "gossip"}, {"topology", "complete"}}}, 6},
           {{"d-psgd star",
             {{"exchange", "gossip"},
              {"averaging", "symmetric"},
              {"update", "after"},
              {"topology", "star"}}},
            3},
           {{"d-psgd", {{"exchange", "gossip"}, {"averaging", "symmetric"}, {"update", "after"}}},
            5},
           {{"local SGD", {{"exchange", "aggregate"}, {"pack", "model"}}}, 3},
           {{"local SGD", {{"exchange", "aggregate"}, {"pack", "model"}}}, 7},
           {{"groups", {{"exchange", "group"}, {"staleness", "1"}, {"group_size", "3"}}}, 3}}) {
    SCOPED_TRACE(mode.name + ", n=" + std::to_string(n));
    WorldConfig config = make_config(mode.keys, n, 5);
    config.horizon = {kSteps, 100};
    config.dimension = 64;
    config.lr = 1e-3;
    RoleWorld world(config, coin);
    for (Rank r = 0; r < n; ++r)
      world.set_x(r, at::ones({config.dimension}) + 0.01 * static_cast<double>(r));
    const at::Tensor x0 = world.total_x();
    world.start();
    world.run([] {}, 10'000'000);
    const at::Tensor x = world.total_x() + config.lr * world.gradients();
    const double moved = ((x - x0).sum() / x0.sum()).item<double>();
    EXPECT_LT(std::abs(moved), 1e-5);
    if (sim::is_role(config.plan, "gossip")) {
      EXPECT_NEAR(world.total_w(), n, 1e-12);
    }
  }
}

TEST(Averaging, WeightsAreExactAndSumToOne) {
  const auto exact = [](double weight) {
    return weight >= 0 && static_cast<double>(static_cast<float>(weight)) == weight;
  };
  for (const std::string topology : {"exponential", "star", "grid2d", "complete", "ring"})
    for (const std::int32_t n : {1, 2, 3, 5, 7, 12, 64})
      for (const char* peers : {"1", "2", "6"}) {
        SCOPED_TRACE(topology + ", n=" + std::to_string(n) + ", p=" + peers);
        const auto graph = *GossipGraph::make(topology, *CountSchedule::parse(peers), n, 1);
        const auto everybody = [](Rank) { return true; };
        const auto odd_ones = [](Rank peer) { return peer % 2 == 1; };
        for (Rank r = 0; r < n; ++r)
          for (const Shares& shares :
               {graph->even_shares(0, r, everybody), graph->even_shares(0, r, odd_ones),
                graph->symmetric_shares(0, r, everybody),
                graph->symmetric_shares(0, r, odd_ones)}) {
            double sum = shares.kept;
            EXPECT_TRUE(exact(shares.kept));
            for (const Shares::Link& link : shares.links) {
              EXPECT_TRUE(exact(link.weight) && link.weight > 0);
              sum += link.weight;
            }
            EXPECT_EQ(sum, 1);
            EXPECT_GT(shares.kept, 0);
          }
      }
}

// ---- local steps that hide an exchange ----

const std::vector<Keys>& hiding() {
  static const std::vector<Keys> all = {{{"overlap", "true"}},
                                        {{"update", "after"}},
                                        {{"update", "after"}, {"averaging", "symmetric"}},
                                        {{"overlap", "true"}, {"topology", "star"}}};
  return all;
}

WorldConfig hiding_config(const Keys& keys, Step local, std::int32_t n, std::uint64_t seed) {
  return make_config(sim::operator+(sim::operator+({{"exchange", "gossip"}}, keys),
                                    {{"local_steps", std::to_string(local)}}),
                     n, seed);
}

// A round is waited for where the next exchange is due, and nowhere else.
TEST(OverlappedLocalSteps, HideTheExchangeBehindAllOfThem) {
  constexpr Step kLocal = 8;
  for (const Keys& keys : hiding())
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE(keys.back().second + ", seed=" + std::to_string(seed));
      WorldConfig config = hiding_config(keys, kLocal, 4, seed);
      config.horizon.steps = 64;
      config.slowness[3] = 0.9;
      RoleWorld world(config, pull);
      world.start();
      world.run();
      int waits = 0;
      // The last gradient of a period waits where it is applied after the exchange.
      const Step due = keys.front().second == "after" ? kLocal - 1 : 0;
      for (Rank r = 0; r < 3; ++r)
        for (const Event& event : world.events(r)) {
          if (event.kind == EventKind::wait_begin) {
            ++waits;
            EXPECT_EQ(event.step % kLocal, due) << "rank " << r << ", step " << event.step;
          }
          if (event.kind == EventKind::applied && event.step < config.horizon.steps) {
            EXPECT_EQ(event.staleness, due == 0 ? kLocal : kLocal - 1);
          }
        }
      EXPECT_GT(waits, 5) << "nobody waited for the slow rank: nothing was tested";
    }
}

// tau counts exchanges: no rank takes more than (tau + 1) H steps from one of its rounds to the
// next, and some take more than H.
TEST(OverlappedLocalSteps, SkipAtMostTauExchanges) {
  constexpr Step kLocal = 4;
  for (const Step tau : {1, 3}) {
    SCOPED_TRACE("tau=" + std::to_string(tau));
    WorldConfig config =
        hiding_config({{"overlap", "true"}, {"staleness", std::to_string(tau)}}, kLocal, 4, 2);
    config.horizon.steps = 160;
    config.slowness[3] = 0.97;
    RoleWorld world(config, pull);
    world.start();
    while (!world.finished(0) && !world.finished(1) && !world.finished(2) && world.step()) {
    }
    Step longest = 0;
    for (Rank r = 0; r < 3; ++r) {
      Step newest = 0;
      for (const Event& event : world.events(r))
        if (event.kind == EventKind::applied) {
          longest = std::max(longest, event.step - newest);
          newest = event.step;
        }
    }
    EXPECT_LE(longest, (tau + 1) * kLocal);
    EXPECT_GT(longest, kLocal) << "the slow rank was never skipped: nothing was tested";
  }
}

// CoCoD-SGD in double precision: H local steps from z, then z <- W z + what the steps came to.
TEST(OverlappedLocalSteps, FollowTheirEquation) {
  for (const Keys& keys : {hiding()[0], hiding()[1], hiding()[2]})
    for (const std::int32_t n : {1, 2, 4, 5})
      for (const Step local : {2, 8}) {
        SCOPED_TRACE(keys.back().second + ", n=" + std::to_string(n) +
                     ", H=" + std::to_string(local));
        const WorldConfig config = hiding_config(keys, local, n, 9);
        RoleWorld world(config, pull);
        scatter(world, n, config.dimension);
        std::vector<at::Tensor> rows;
        for (Rank r = 0; r < n; ++r) rows.push_back(world.z(r).to(at::kDouble));
        at::Tensor z = at::stack(rows);
        const at::Tensor own = at::arange(n, at::kDouble).unsqueeze(1);
        const auto graph = *make_topology("exponential", n, 1);
        const bool symmetric =
            data_as<GossipSettings>(config.plan.settings).averaging == MixingRule::symmetric;
        for (std::int64_t round = 0; round * local < config.horizon.steps; ++round) {
          const at::Tensor w =
              at::tensor(symmetric ? symmetric_matrix(*graph, round) : graph->mixing_matrix(round),
                         at::kDouble)
                  .view({n, n});
          at::Tensor steps = z.clone();
          for (Step h = 0; h < local; ++h) steps = steps - config.lr * (steps - own);
          z = at::mm(w, z) + steps - z;
        }
        world.start();
        world.run();
        for (Rank r = 0; r < n; ++r) EXPECT_LT(distance(world.z(r), z[r]), 1e-4) << "rank " << r;
      }
}

TEST(OverlappedLocalSteps, ConserveMassAtEveryMoment) {
  for (const Keys& keys : hiding())
    for (const std::int32_t n : {2, 5}) {
      SCOPED_TRACE(keys.back().second + ", n=" + std::to_string(n));
      WorldConfig config = hiding_config(keys, 4, n, 7);
      config.slowness[n - 1] = 0.9;
      RoleWorld world(config, pull);
      scatter(world, n, config.dimension);
      const at::Tensor x0 = world.total_x();
      world.start();
      world.run([&] {
        ASSERT_NEAR(world.total_w(), n, 1e-9);
        at::Tensor x = world.total_x();
        if (world.gradients().defined()) x += world.gradients() * config.lr;
        ASSERT_LT(distance(x, x0), 1e-3 * n);
      });
    }
}

TEST(OverlappedLocalSteps, SaveAndLoadAndTheOrderOfMessagesChangeNothing) {
  for (const Keys& keys : hiding())
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(keys.back().second + ", seed=" + std::to_string(seed));
      WorldConfig config = hiding_config(keys, 4, 5, 1);
      config.optimizer.momentum = 0.9;
      config.optimizer.weight_decay = 0.01;
      RoleWorld straight(config, pull), broken(config, pull);
      for (RoleWorld* world : {&straight, &broken}) scatter(*world, 5, config.dimension);
      straight.start();
      straight.run();
      for (std::uint64_t i = 0; i < seed; ++i) broken.rng()();  // another order of events
      broken.start();
      const auto when = static_cast<std::int64_t>(1 + broken.rng()() % 150);
      broken.run_until(when);
      broken.save_and_load();
      broken.run();
      for (Rank r = 0; r < 5; ++r) EXPECT_TRUE(at::equal(straight.z(r), broken.z(r))) << r;
    }
}

}  // namespace gossip_exactness_test
}  // namespace grapevine
