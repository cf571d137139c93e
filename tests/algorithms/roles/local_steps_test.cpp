// Local steps between exchanges: local SGD (Stich 2019), DiLoCo (Douillard et al. 2023), and gossip
// at every H-th step.
#include <gtest/gtest.h>

#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace local_steps_test {

using sim::Keys;
using sim::RoleWorld;
using sim::WorldConfig;

constexpr int kRanks = 3;
constexpr double kRate = 0.125;

WorldConfig make_config(const Keys& keys, std::uint64_t seed, Step steps) {
  WorldConfig config;
  config.plan = sim::plan_of(keys);
  config.ranks = kRanks;
  config.seed = seed;
  config.horizon.steps = steps;
  config.horizon.steps_per_epoch = 5;
  config.lr = kRate;
  return config;
}

at::Tensor pull(Rank rank, Step, const at::Tensor& z) { return z - static_cast<double>(rank + 1); }

double distance(const at::Tensor& a, double b) {
  return (a.to(at::kDouble) - b).abs().max().item<double>();
}

struct Outer {
  double lr = 1, momentum = 0;
  Step decays_at =
      1000;  // from the exchange of that step on, counted from 0, the rate is half of it
};

// The algorithms in double precision: what every rank has after `steps` steps, H to an exchange.
double oracle(Step steps, Step local, const Outer& outer) {
  std::array<double, kRanks> x{};
  double anchor = 0, velocity = 0;
  for (Step k = 1; k <= steps; ++k) {
    for (int r = 0; r < kRanks; ++r) x[r] -= kRate * (x[r] - (r + 1));
    if (k % local != 0 && k != steps) continue;
    double difference = 0;
    for (const double value : x) difference += (anchor - value) / kRanks;
    velocity = outer.momentum * velocity + difference;
    const double rate = outer.lr * (k - 1 >= outer.decays_at ? 0.5 : 1);
    anchor -= rate * (outer.momentum > 0 ? difference + outer.momentum * velocity : difference);
    x.fill(anchor);
  }
  return anchor;
}

struct Case {
  Keys keys;
  Outer outer;
};
std::vector<Case> all_cases() {
  return {{{{"pack", "model"}}, {}},
          {{{"pack", "difference"}}, {}},
          {{{"pack", "difference"}, {"outer", "nesterov"}}, {0.7, 0.9}},
          {{{"pack", "difference"},
            {"outer", "nesterov"},
            {"outer_lr", "0.5"},
            {"outer_momentum", "0"}},
           {0.5, 0}},
          // An epoch has five steps.
          {{{"pack", "difference"}, {"outer", "nesterov"}, {"outer_schedule", "step:0.5@2"}},
           {0.7, 0.9, 10}}};
}

TEST(LocalSteps, FollowTheirEquations) {
  for (const Case& c : all_cases())
    for (const Step local : {1, 4, 7, 50})
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        Keys keys = c.keys;
        keys.emplace_back("local_steps", std::to_string(local));
        SCOPED_TRACE(keys.front().second + ", H=" + std::to_string(local) +
                     ", seed=" + std::to_string(seed));
        RoleWorld world(make_config(keys, seed, 30), pull);
        world.start();
        world.run();
        for (Rank r = 0; r < kRanks; ++r) {
          EXPECT_TRUE(world.finished(r));
          EXPECT_LT(distance(world.z(r), oracle(30, local, c.outer)), 1e-5) << "rank " << r;
          EXPECT_TRUE(at::equal(world.z(r), world.z(0))) << "replicas differ";
        }
      }
}

// Gradients count once they are in the common result: with the exchange, all of its steps.
TEST(LocalSteps, CommitWithTheExchange) {
  RoleWorld world(make_config({{"pack", "model"}, {"local_steps", "4"}}, 1, 10), pull);
  world.start();
  world.run();
  for (Rank r = 0; r < kRanks; ++r) {
    std::vector<Step> committed;
    std::int64_t since = 0;
    for (const Event& event : world.events(r)) {
      if (event.kind == EventKind::committed) {
        committed.push_back(event.stamp.step);
        ++since;
      }
      if (event.kind == EventKind::applied) {
        EXPECT_EQ(since, committed.size() == 10 ? 2 : 4);
        EXPECT_EQ(event.staleness, 0);
        since = 0;
      }
    }
    EXPECT_EQ(committed, (std::vector<Step>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
}

TEST(LocalSteps, SaveAndLoadAtAnyMomentChangesNoBit) {
  for (const Case& c : all_cases())
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE(c.keys.front().second + ", seed=" + std::to_string(seed));
      Keys keys = c.keys;
      keys.emplace_back("local_steps", "4");
      WorldConfig config = make_config(keys, seed, 22);
      config.optimizer.momentum = 0.5;
      RoleWorld straight(config, pull), broken(config, pull);
      straight.start();
      straight.run();
      broken.start();
      const auto when = static_cast<std::int64_t>(1 + broken.rng()() % 150);
      broken.run_until(when);
      broken.save_and_load();
      broken.run();
      EXPECT_TRUE(at::equal(straight.z(0), broken.z(0)));
    }
}

// Mass is kept, and there is one round for each H steps and one at the end.
TEST(LocalSteps, GossipAtEveryHthStep) {
  for (const Keys& more : std::vector<Keys>{
           {}, {{"overlap", "true"}}, {{"averaging", "symmetric"}, {"update", "after"}}}) {
    SCOPED_TRACE(more.empty() ? "sgp" : more.front().first);
    Keys keys = more;
    keys.insert(keys.end(), {{"exchange", "gossip"}, {"local_steps", "4"}});
    RoleWorld world(make_config(keys, 3, 22), pull);
    std::int64_t shares = 0;
    world.watch([&](const Envelope& e, bool delivered) {
      shares += !delivered && std::holds_alternative<Share>(e.payload);
    });
    world.start();
    world.run([&] { ASSERT_NEAR(world.total_w(), kRanks, 1e-9); });
    for (Rank r = 0; r < kRanks; ++r) EXPECT_TRUE(world.finished(r));
    const std::int64_t peers = more.size() == 2 ? 2 : 1;
    EXPECT_EQ(shares, kRanks * 6 * peers);
    EXPECT_LT(distance(world.total_x() + kRate * world.gradients(), 0), 1e-4);
  }
}

TEST(LocalSteps, RefusesPartsThatDoNotFit) {
  const auto says = [&](const Keys& keys, const std::string& text) {
    EXPECT_NE(sim::refusal_of(keys).find(text), std::string::npos) << sim::refusal_of(keys);
  };
  says({{"local_steps", "4"}}, "choose pack = 'model'");
  says({{"exchange", "partial"}, {"local_steps", "4"}}, "choose pack = 'difference'");
  says({{"pack", "model"}, {"outer", "nesterov"}}, "choose pack = 'difference'");
  says({{"pack", "difference"}, {"outer_lr", "0.5"}}, "choose outer = 'nesterov'");
  says({{"exchange", "gossip"}, {"pack", "gradient"}}, "gossip mixes models");
}

}  // namespace local_steps_test
}  // namespace grapevine
