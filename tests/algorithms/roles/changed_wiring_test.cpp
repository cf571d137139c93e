// The wiring of a run changes at any moment: by Role::flush(), the mean of all models and
// Role::take_over(), as the actors call them.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/changing_wirings.hpp"
#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace changed_wiring_test {

using sim::distance;
using sim::Keys;
using sim::name_of;
using sim::RoleWorld;
using sim::WorldConfig;
using sim::operator+;

constexpr std::int64_t kDimension = sim::kChangingDimension;

// Of the step alone, so that the sum of all gradients does not depend on who exchanged with whom.
at::Tensor gradient_of(Rank rank, Step step, const at::Tensor&) {
  Rng rng(static_cast<std::uint64_t>(rank) * 1000 + static_cast<std::uint64_t>(step));
  at::Tensor g = at::empty({kDimension});
  for (std::int64_t i = 0; i < kDimension; ++i)
    g[i] = std::uniform_real_distribution<double>(-1, 1)(rng);
  return g;
}

std::map<Rank, std::int64_t> counted(const RoleWorld& world, std::int32_t ranks, EventKind kind) {
  std::map<Rank, std::int64_t> counts;
  for (Rank r = 0; r < ranks; ++r)
    for (const Event& event : world.events(r)) counts[r] += event.kind == kind;
  return counts;
}

// Whether the mean of all models is that of the start less the gradients, at any moment.
bool keeps_the_mean(const Keys& keys) {
  const Plan plan = sim::plan_of(keys);
  const bool steps_outside =
      std::any_of(keys.begin(), keys.end(), [](const auto& own) { return own.first == "outer"; });
  const auto has = [&keys](const std::string& key, const std::string& value) {
    return std::find(keys.begin(), keys.end(), std::pair(key, value)) != keys.end();
  };
  // A late model of a group counts twice; differences of a quorum are divided by those in it.
  const bool weighs = sim::is_role(plan, "group") ||
                      (sim::is_role(plan, "partial") && plan.local.pack == Pack::difference);
  // The estimate of a tracked gradient is a part of two steps.
  // A server divides, scales or delays what its clients commit.
  const bool served = plan.servers > 0 && !has("rule", "downpour") && !has("rule", "easgd");
  return !weighs && !served && !has("tracking", "true") && !steps_outside &&
         !has("error_feedback", "false") && !has("averaging", "biased") &&
         plan.compression.residual_decay == 1;
}

// By which the mean of all models moves along a gradient; n ranks train.
double share_of_a_gradient(const Keys& keys, std::int32_t n) {
  const Plan plan = sim::plan_of(keys);
  if (plan.servers == 0) return 1.0 / n;
  return plan.local.pack == Pack::model ? 1.0 / (n + 1) : 1;  // easgd: the centre is one more
}

struct Models {
  at::Tensor sum = at::zeros({kDimension}, at::kDouble);
  double weight = 0;
};

Models models_of(const RoleWorld& world) {
  Models models;
  for (const Rank rank : world.members_and_servers()) {
    models.sum += world.model(rank).x.read().to(at::kDouble);
    models.weight += world.mean_weight(rank) * world.model(rank).w;
  }
  return models;
}

class ChangedWiring : public ::testing::Test {
 protected:
  // Runs `first`, changes to `second`, and ends.
  void run(const Keys& first, const Keys& second, std::uint64_t seed) {
    SCOPED_TRACE(name_of(first) + "-> " + name_of(second) + ", seed=" + std::to_string(seed));
    const std::int32_t n = 4 + 2 * static_cast<std::int32_t>(seed % 2);
    WorldConfig config = sim::changing_config(first, n, seed);
    if (seed % 4 == 0) config.slowness[1] = 0.9;
    RoleWorld world(config, gradient_of);
    const at::Tensor start = at::arange(kDimension).to(at::kFloat);
    world.begin_at(start);
    world.start();
    world.run_until(static_cast<std::int64_t>(world.rng()() % 400));

    Models before;
    if (seed % 3 == 0) world.change_members();  // and no event before the other change
    world.change_wiring(sim::plan_of(second), [&] { before = models_of(world); });
    const at::Tensor mean = before.sum / before.weight;
    for (const Rank r : world.members())
      EXPECT_LT(distance(world.z(r), mean.to(at::kFloat)), 1e-5) << "rank " << r;
    if (keeps_the_mean(first)) {
      ++kept_;
      at::Tensor expected = start.to(at::kDouble);
      if (world.gradients().defined())
        expected -= sim::kChangingRate * share_of_a_gradient(first, n) * world.gradients();
      EXPECT_LT(distance(mean.to(at::kFloat), expected.to(at::kFloat)), 2e-5)
          << "something is lost, or counts twice";
      EXPECT_EQ(counted(world, n, EventKind::committed), minus(given(world), dropped(world, n)))
          << "a gradient is in no model";
    }
    world.run();
    for (const Rank r : world.members()) {
      ASSERT_TRUE(world.finished(r)) << "rank " << r;
      EXPECT_TRUE(at::isfinite(world.z(r)).all().item<bool>()) << "rank " << r;
      if (sim::plan_of(second).role->replicates) {
        EXPECT_EQ(distance(world.z(r), world.z(0)), 0) << "rank " << r;
      }
    }
    EXPECT_EQ(counted(world, n, EventKind::committed), minus(given(world), dropped(world, n)));
  }

  static std::map<Rank, std::int64_t> dropped(const RoleWorld& world, std::int32_t n) {
    return counted(world, n, EventKind::dropped);
  }
  static std::map<Rank, std::int64_t> given(const RoleWorld& world) {
    std::map<Rank, std::int64_t> counts;
    for (const Rank r : world.members())
      if (world.given(r) > 0) counts[r] = world.given(r);
    return counts;
  }
  static std::map<Rank, std::int64_t> minus(std::map<Rank, std::int64_t> from,
                                            const std::map<Rank, std::int64_t>& less) {
    for (const auto& [rank, count] : less) from[rank] -= count;
    return from;
  }

  int kept_ = 0;  // runs that compared with the sum of all gradients
};

TEST_F(ChangedWiring, KeepsTheMeanOfAllModelsAndEveryGradient) {
  std::vector<Keys> all = sim::wirings_of_changing_members();
  const Keys nodes = {{"hierarchy", "2"}};
  const Keys groups = {{"level.1.ranks", "2"}, {"level.1.exchange", "aggregate"}};
  for (const std::string preset :
       {"ar", "osgp", "d-psgd", "ad-psgd", "eager-solo", "gtopk", "wagma"})
    all.push_back(sim::keys_of(preset) + nodes);
  for (const std::string preset : {"ar", "osgp", "d-psgd", "diloco"})
    all.push_back(sim::keys_of(preset) + groups);
  for (std::size_t i = 0; i < all.size(); ++i)
    for (std::uint64_t seed = 1; seed <= 8; ++seed)
      run(all[i], all[(i * 7 + seed * 5) % all.size()], seed);
  EXPECT_GT(kept_, 100);
}

// To the same wiring: ranks that have one model, and one state of their optimizers, continue as if
// nothing had happened. Of 4 equal values the mean has the same bits.
TEST_F(ChangedWiring, OptimizersContinue) {
  for (const std::string name : {"sgd", "adam"})
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(name + ", seed=" + std::to_string(seed));
      WorldConfig config = sim::changing_config({{"exchange", "aggregate"}}, 4, seed);
      config.optimizer.name = name;
      config.optimizer.momentum = name == "sgd" ? 0.9 : 0;
      config.horizon.by_samples = false;
      const auto run = [&](bool changes) {
        RoleWorld world(config, sim::pull);
        world.start();
        world.run_until(static_cast<std::int64_t>(40 + world.rng()() % 200));
        if (changes) world.change_wiring(config.plan);
        world.run();
        return world.z(2);
      };
      EXPECT_EQ(distance(run(true), run(false)), 0);
    }
}

// What compression has left over is divided by the number of present members, when it is sent as
// when another wiring takes it over: where ranks were lost before, the moment of that change makes
// no difference but for the gradients that ranks behind the others drop.
TEST_F(ChangedWiring, AResidualCountsAmongThePresentMembersWheneverItIsGiven) {
  const Keys top_k = {{"compress", "top-k"}, {"density", "0.3"}};
  for (const Keys& keys : {Keys{{"exchange", "aggregate"}} + top_k,
                           Keys{{"exchange", "aggregate"}, {"overlap", "true"}} + top_k,
                           Keys{{"exchange", "aggregate"}, {"compress", "int8"}},
                           Keys{{"exchange", "aggregate"}, {"pack", "difference"}} + top_k})
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(name_of(keys) + ", seed=" + std::to_string(seed));
      WorldConfig config = sim::changing_config(keys, 5, seed);
      config.horizon = {24, 6};
      const auto end_of = [&](std::int64_t later) {
        RoleWorld world(config, gradient_of);
        world.start();
        world.run_until(static_cast<std::int64_t>(60 + world.rng()() % 100));
        world.kill(static_cast<Rank>(seed % 5));
        world.change_members();
        world.run_until(world.event_count() + later);
        world.change_wiring(sim::plan_of({{"exchange", "aggregate"}}));
        world.run();
        EXPECT_EQ(world.model(world.members().front()).step, 24);
        return world.z(world.members().front()).to(at::kDouble) +
               sim::kChangingRate / 4 * world.gradients();
      };
      const at::Tensor at_once = end_of(0);
      for (const std::int64_t later : {40, 150})
        EXPECT_LT(distance(end_of(later), at_once), 1e-4) << later << " events later";
    }
}

// Steps that no server has enter the common model with the factor of a commit: all of it, or, where
// a server divides by the staleness, as among clients of one speed.
TEST_F(ChangedWiring, ServersCountWhatClientsHadNotCommitted) {
  for (const auto& [rule, factor] : {std::pair("downpour", 1.0), std::pair("adaptive", 1.0 / 4)}) {
    SCOPED_TRACE(rule);
    const Keys keys = {{"exchange", "server"}, {"rule", rule}, {"local_steps", "20"}};
    RoleWorld world(sim::changing_config(keys, 4, 1), gradient_of);
    const at::Tensor start = at::arange(kDimension).to(at::kFloat);
    world.begin_at(start);
    world.start();
    world.run_until(30);
    ASSERT_EQ(counted(world, 4, EventKind::committed)[0], 0) << "nothing is left to be given";
    world.change_wiring(sim::plan_of({{"exchange", "aggregate"}}));
    const at::Tensor expected =
        start.to(at::kDouble) - sim::kChangingRate * factor * world.gradients();
    EXPECT_LT(distance(world.z(0), expected.to(at::kFloat)), 1e-5);
  }
}

}  // namespace changed_wiring_test
}  // namespace grapevine
