// Levels: groups of ranks that exchange as one rank does. What must hold whatever roles are inside
// and outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "algorithms/roles/levels/level_parts.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/short_runs.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace level_test {

using sim::distance;
using sim::Keys;
using sim::models_after;
using sim::refusal_of;
using sim::RoleWorld;
using sim::short_config;
using sim::operator+;
using testing::AllOf;
using testing::HasSubstr;

constexpr Step kSteps = 12;

// The same keys as those of level `level`, whose groups have `ranks` ranks.
Keys inner(std::int32_t level, std::int32_t ranks, const Keys& keys) {
  const std::string prefix = "level." + std::to_string(level) + ".";
  Keys prefixed = {{prefix + "ranks", std::to_string(ranks)}};
  for (const auto& [key, value] : keys) prefixed.emplace_back(prefix + key, value);
  return prefixed;
}

using Named = std::pair<std::string, Keys>;

const Keys kGossip = {{"exchange", "gossip"}};
const Keys kSymmetric = kGossip + Keys{{"averaging", "symmetric"}};

// Roles that keep the mean of all models, but for the gradients.
const std::vector<Named> kInside = {
    {"ar", {{"exchange", "aggregate"}}},
    {"local-sgd", {{"exchange", "aggregate"}, {"pack", "model"}, {"local_steps", "2"}}},
    {"sgp", kGossip},
    {"sgp-star", kGossip + Keys{{"topology", "star"}, {"local_steps", "2"}}},
    {"d-psgd-before", kSymmetric + Keys{{"topology", "ring"}}},
    {"push-sum-int8", kGossip + Keys{{"compress", "int8"}, {"topology", "star"}}},
    {"group", {{"exchange", "group"}, {"staleness", "1"}}}};
const std::vector<Named> kOutside = {
    {"ar", {{"exchange", "aggregate"}}},
    {"local-sgd", {{"exchange", "aggregate"}, {"pack", "model"}, {"local_steps", "4"}}},
    {"sgp", kGossip + Keys{{"topology", "star"}}},
    {"sgp-local-steps", kGossip + Keys{{"local_steps", "4"}}},
    {"d-psgd", kSymmetric + Keys{{"update", "after"}, {"local_steps", "6"}}},
    {"choco", kSymmetric + Keys{{"compress", "top-k"}, {"density", "0.3"}}}};

// And others.
std::vector<Named> all_outside() {
  std::vector<Named> all = kOutside;
  for (const Named& other :
       std::vector<Named>{{"osgp", kGossip + Keys{{"overlap", "true"}, {"staleness", "2"}}},
                          {"solo", {{"exchange", "partial"}, {"activation", "solo"}}},
                          {"wagma", {{"exchange", "group"}}},
                          {"downpour", {{"exchange", "server"}, {"rule", "downpour"}}}})
    all.push_back(other);
  return all;
}

std::string name_of(const Named& inside, const Named& outside, std::int32_t ranks) {
  return inside.first + " inside " + outside.first + ", " + std::to_string(ranks) + " ranks";
}

// Gradients that do not depend on the models: what they add up to does not, either.
at::Tensor given_gradient(Rank rank, Step step, const at::Tensor& z) {
  return at::sin(at::arange(z.numel(), at::kFloat) + static_cast<double>(3 * rank + 7 * step));
}

// No role loses a gradient, or counts one twice: the sum of x over groups moves by the mean
// gradients of their ranks alone.
TEST(Level, MeanOfAllModelsMovesByTheGradientsAlone) {
  for (const std::int32_t ranks : {2, 6, 9})
    for (const Named& inside : kInside)
      for (const Named& outside : kOutside)
        for (std::uint64_t seed = 1; seed <= 2; ++seed) {
          const std::int32_t size = ranks == 9 ? 3 : 2;
          SCOPED_TRACE(name_of(inside, outside, ranks) + ", seed=" + std::to_string(seed));
          auto config =
              short_config(inner(1, size, inside.second) + outside.second, ranks, kSteps, seed);
          RoleWorld world(config, given_gradient);
          world.start();
          world.run();
          at::Tensor expected = at::zeros({config.dimension}, at::kDouble);
          for (Rank r = 0; r < ranks; ++r)
            for (Step step = 0; step < kSteps; ++step)
              expected -= given_gradient(r, step, expected).to(at::kDouble) * sim::kShortRate;
          at::Tensor sum = at::zeros({config.dimension}, at::kDouble);
          double weight = 0;
          for (Rank head = 0; head < ranks; head += size) {
            ASSERT_TRUE(world.finished(head));
            const StateDict group = world.saved(head).under("group");
            sum += group.tensor("x")->to(at::kDouble) * static_cast<double>(size);
            weight += *group.number("w") * size;
          }
          EXPECT_NEAR(weight, ranks, 1e-5);
          EXPECT_LT(distance(sum, expected), 1e-4 * ranks);
        }
}

// Also where the ranks inside have not agreed when a period ends, and one of them is slow.
TEST(Level, RanksOfAGroupEndWithTheSameModel) {
  for (const Named& inside : kInside)
    for (const Named& outside : all_outside()) {
      SCOPED_TRACE(name_of(inside, outside, 8));
      auto config = short_config(inner(1, 2, inside.second) + outside.second, 8, kSteps, 3);
      config.slowness[5] = 0.9;
      RoleWorld world(config, sim::pull_beyond);
      world.start();
      world.run();
      for (Rank r = 0; r < 8; ++r) {
        EXPECT_TRUE(world.finished(r)) << "rank " << r;
        EXPECT_TRUE(at::equal(world.z(r), world.z(r / 2 * 2))) << "rank " << r;
      }
    }
}

// A group of all ranks: the outer level has no other to exchange with.
TEST(Level, OneGroupDoesWhatTheRoleInsideDoes) {
  for (const auto& [name, keys] : std::vector<Named>{kInside[0],
                                                     kInside[1],
                                                     {"diloco",
                                                      {{"exchange", "aggregate"},
                                                       {"pack", "difference"},
                                                       {"local_steps", "2"},
                                                       {"outer", "nesterov"}}}}) {
    SCOPED_TRACE(name);
    auto flat = short_config(keys, 4, kSteps, 1);
    auto nested = short_config(inner(1, 4, keys) + Keys{{"exchange", "aggregate"}}, 4, kSteps, 1);
    flat.optimizer.momentum = nested.optimizer.momentum = 0.9;
    const auto expected = models_after(flat), found = models_after(nested);
    for (std::size_t r = 0; r < 4; ++r) EXPECT_LT(distance(expected[r], found[r]), 1e-5);
  }
}

// Groups of one rank: H local steps and the exchange of the outer level. (Not where push-sum has
// weights: local steps at x / w are then longer by 1 / w, those of a level inside are not.)
TEST(Level, GroupsOfOneRankDoWhatTheRoleOutsideDoes) {
  for (const auto& [name, keys] : std::vector<Named>{
           {"local-sgd", {{"exchange", "aggregate"}, {"pack", "model"}, {"local_steps", "3"}}},
           {"diloco",
            {{"exchange", "aggregate"},
             {"pack", "difference"},
             {"local_steps", "3"},
             {"outer", "nesterov"}}},
           {"sgp", kGossip + Keys{{"local_steps", "3"}}},
           {"noloco", kSymmetric + Keys{{"pack", "difference"},
                                        {"outer", "momentum"},
                                        {"topology", "ring"},
                                        {"local_steps", "3"}}}}) {
    SCOPED_TRACE(name);
    auto flat = short_config(keys, 5, kSteps, 1);
    auto nested = short_config(inner(1, 1, {{"exchange", "aggregate"}}) + keys, 5, kSteps, 1);
    flat.optimizer.momentum = nested.optimizer.momentum = 0.9;
    const auto expected = models_after(flat), found = models_after(nested);
    for (std::size_t r = 0; r < 5; ++r) EXPECT_LT(distance(expected[r], found[r]), 1e-5);
  }
}

// Means of means: two levels of averages, and three, are local SGD of all ranks.
TEST(Level, AveragesOfAveragesAreLocalSgd) {
  const Keys average = {{"exchange", "aggregate"}, {"pack", "model"}, {"local_steps", "4"}};
  const auto expected = models_after(short_config(average, 8, kSteps, 1));
  for (const auto& [name, levels] : std::vector<Named>{
           {"two", inner(1, 2, average)},
           {"three", inner(1, 2, average) + inner(2, 4, average)},
           {"three, gossip of two inside", inner(1, 2, average) + inner(2, 4, kGossip)}}) {
    SCOPED_TRACE(name);
    const auto found = models_after(short_config(levels + average, 8, kSteps, 1));
    for (std::size_t r = 0; r < 8; ++r) EXPECT_LT(distance(expected[r], found[r]), 1e-5);
  }
}

// Trains on three levels, however the events fall, and as often as it is saved and loaded.
TEST(Level, ThreeLevelsEndAlikeInEveryOrderAndAfterEveryCheckpoint) {
  const Keys levels = inner(1, 2, kGossip + Keys{{"local_steps", "2"}}) +
                      inner(2, 4, kGossip + Keys{{"local_steps", "4"}}) +
                      Keys{{"exchange", "aggregate"},
                           {"pack", "difference"},
                           {"outer", "nesterov"},
                           {"local_steps", "8"}};
  const auto expected = models_after(short_config(levels, 12, 20, 1));
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    const auto found = models_after(short_config(levels, 12, 20, seed), sim::pull_beyond,
                                    static_cast<std::int64_t>(seed * seed));
    for (std::size_t r = 0; r < 12; ++r) EXPECT_TRUE(at::equal(expected[r], found[r]));
  }
}

// Every gradient counts once, for its own rank: the exchange of groups is no gradient.
TEST(Level, CommitsEveryGradientOnce) {
  auto config = short_config(
      inner(1, 2, kGossip) + Keys{{"exchange", "server"}, {"rule", "downpour"}}, 6, kSteps, 4);
  RoleWorld world(config, sim::pull_beyond);
  world.start();
  world.run();
  for (Rank r = 0; r < 6; ++r) {
    std::vector<Step> committed;
    for (const Event& event : world.events(r))
      if (event.kind == EventKind::committed) {
        EXPECT_EQ(event.stamp.origin, r);
        committed.push_back(event.stamp.step);
      }
    ASSERT_EQ(committed.size(), static_cast<std::size_t>(kSteps)) << "rank " << r;
    for (Step step = 0; step < kSteps; ++step)
      EXPECT_EQ(committed[static_cast<std::size_t>(step)], step);
  }
}

// The head's bytes to its group, once a period, and those of the mean where ranks differ.
TEST(Level, ExchangesOncePerPeriod) {
  for (const auto& [name, keys] : {kInside[0], kInside[2]}) {
    SCOPED_TRACE(name);
    const Keys outside = {
        {"exchange", "aggregate"}, {"pack", "model"}, {"local_steps", "4"}, {"all_reduce", "ring"}};
    auto config = short_config(inner(1, 3, keys) + outside, 6, kSteps, 1);
    RoleWorld world(config, sim::pull_beyond);
    std::int64_t parameters = 0, between_groups = 0, means = 0;
    world.watch([&](const Envelope& message, bool delivered) {
      if (delivered) return;
      const auto* chunk = std::get_if<Chunk>(&message.payload);
      parameters += std::holds_alternative<Parameters>(message.payload);
      between_groups += message.from / 3 != message.to / 3;
      means += chunk != nullptr && chunk->operation < 0;
    });
    world.start();
    world.run();
    constexpr std::int64_t kPeriods = kSteps / 4;
    EXPECT_EQ(parameters, 2 * 2 * (kPeriods + 1));  // two members of two groups; the last model
    EXPECT_EQ(between_groups, 2 * 2 * kPeriods);    // a ring of two heads
    EXPECT_EQ(means, name == "ar" ? 0 : 2 * 4 * kPeriods);  // three by pairs: four messages
  }
}

// Inside, the role must be one whose ranks end a period with the same exchange.
TEST(Level, RefusesWhatDoesNotNest) {
  const Keys outside = {{"exchange", "aggregate"}};
  for (const auto& [keys, why] : std::vector<std::pair<Keys, std::string>>{
           {inner(1, 2, kGossip + Keys{{"overlap", "true"}}), "exchanges outstanding"},
           {inner(1, 2, kGossip + Keys{{"update", "after"}}), "exchanges outstanding"},
           {inner(1, 2, {{"exchange", "partial"}}), "wiring.level.1.exchange = 'partial'"},
           {inner(1, 2, {{"exchange", "bilateral"}, {"topology", "bipartite-exponential"}}),
            "exchanges outstanding"},
           {inner(1, 2, {{"exchange", "group"}}), "exchanges outstanding"},
           {inner(1, 4, {}) + inner(2, 6, {}), "no multiple of the 4 ranks"},
           {inner(2, 2, {}), "wiring.level.1.ranks is missing"},
           {Keys{{"level.1.exchange", "aggregate"}}, "wiring.level.1.ranks is missing"},
           {inner(1, 2, {}) + Keys{{"hierarchy", "2"}}, "wiring.hierarchy"},
           {inner(1, 2, {{"topology", "ring"}}), "wiring.level.1.topology"},
           {inner(1, 2, {{"local_steps", "2"}}), "wiring.level.1.local_steps"}})
    EXPECT_THAT(refusal_of(keys + outside), HasSubstr(why));
  EXPECT_THAT(refusal_of(inner(1, 2, {}) +
                         Keys{{"exchange", "bilateral"}, {"topology", "bipartite-exponential"}}),
              HasSubstr("take steps over"));
  EXPECT_THAT(refusal_of(inner(1, 2, {}) + Keys{{"exchange", "server"}, {"rule", "gem"}}),
              HasSubstr("may drop a period"));
  EXPECT_THAT(refusal_of(inner(1, 2, {{"qq", "1"}})), HasSubstr("level.1.qq"));
}

// A period that ends amid the local steps inside would mean of models that are not exchanged yet.
TEST(Level, PeriodsEndWithAnExchangeInside) {
  const Keys inside = {{"exchange", "aggregate"}, {"pack", "model"}, {"local_steps", "3"}};
  const auto parts_of = [&](const std::string& local_steps) {
    const Plan plan = sim::plan_of(inner(1, 2, inside) +
                                   Keys{{"exchange", "gossip"}, {"local_steps", local_steps}});
    Horizon horizon;
    horizon.steps = 20;
    return make_parts(plan, horizon, *LrSchedule::make({}), {}, 4);
  };
  EXPECT_TRUE(parts_of("6").ok());
  const auto amid = parts_of("4");
  ASSERT_FALSE(amid.ok());
  EXPECT_THAT(amid.error().message, AllOf(HasSubstr("after 4 steps"), HasSubstr("multiple")));
  const auto by_epoch = parts_of("0:3,1:6");
  ASSERT_FALSE(by_epoch.ok());
  EXPECT_THAT(by_epoch.error().message, HasSubstr("periods, which must have one length"));
}

// A run that continues with another batch size has another number of periods in an epoch from then
// on: those that lie behind it do not count again.
TEST(Level, PeriodsFollowTheEpochsOfARunWithAnotherBatchSize) {
  for (const Step first_step : {0, 1, 8, 12, 30})
    for (const double steps_per_epoch : {6.0, 20.0}) {
      SCOPED_TRACE(testing::Message() << "step " << first_step << ", " << steps_per_epoch);
      Horizon horizon;
      horizon.steps = 120;
      horizon.steps_per_epoch = steps_per_epoch;
      horizon.first_step = first_step;
      horizon.first_epoch = static_cast<double>(first_step) / 10;
      const Plan plan = sim::plan_of(
          inner(1, 2, {{"exchange", "aggregate"}}) + kGossip +
          Keys{{"topology", "exponential"}, {"peers", "0:1,2:2,4:7"}, {"local_steps", "4"}});
      const auto parts = make_parts(plan, horizon, *LrSchedule::make({}), OptimizerConfig(), 16);
      ASSERT_TRUE(parts.ok()) << parts.error().message;
      const SharedParts& outside = *data_as<LevelParts>((*parts)->prepared).outside;
      const CountSchedule peers = *CountSchedule::parse("0:1,2:2,4:7");
      for (std::int64_t period = (first_step + 3) / 4; period < 30; ++period) {
        const double epoch = horizon.epoch_of(period * 4);
        EXPECT_NEAR(outside.horizon.epoch_of(period), epoch, 1e-9) << period;
        EXPECT_EQ(outside.graph->out(period, 0).size(),
                  static_cast<std::size_t>(peers.at(epoch + 1e-9)))
            << period;
      }
    }
}

// Without a number of its own a level exchanges whenever the ranks inside have.
TEST(Level, ExchangesAsOftenAsTheLevelInside) {
  const Keys inside = {{"exchange", "aggregate"}, {"pack", "model"}, {"local_steps", "3"}};
  for (const Keys& outside : {kGossip, Keys{{"exchange", "aggregate"}}}) {
    const Plan plan = sim::plan_of(inner(1, 2, inside) + outside);
    EXPECT_EQ(plan.local.steps.by_epoch.at(0), 3);
  }
}

}  // namespace level_test
}  // namespace grapevine
