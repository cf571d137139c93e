// Ranks of levels die and return in virtual time, and the shipped actors continue.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/wiring/role_type.hpp"
#include "messages/random.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace changed_levels_run_test {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using virtual_run_test::add_deaths_and_returns;
using virtual_run_test::end_by_samples;
using virtual_run_test::expect_all_accounted;
using virtual_run_test::fresh_folder;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

constexpr std::int32_t kRanks = 9;

using Keys = std::vector<std::pair<std::string, std::string>>;

// Groups of three: all-reduce, gossip and local SGD in them.
const std::vector<Keys> kInside = {{{"level.1.ranks", "3"}, {"level.1.exchange", "aggregate"}},
                                   {{"level.1.ranks", "3"}, {"level.1.exchange", "gossip"}},
                                   {{"level.1.ranks", "3"},
                                    {"level.1.exchange", "aggregate"},
                                    {"level.1.pack", "model"},
                                    {"level.1.local_steps", "2"}}};

bool can_change(const std::string& preset, const Keys& inside) {
  Wiring levels;
  for (const auto& [key, value] : inside)
    if (!levels.set(key, value)) return false;
  const auto plan = resolve(on_top_of(find_preset(preset)->wiring, levels));
  return plan.ok() && changes_members(*plan);
}

Scenario make_scenario(const std::string& preset, const Keys& inside, std::uint64_t seed) {
  Scenario scenario;
  scenario.preset = preset;
  scenario.set = inside;
  scenario.ranks = kRanks;
  scenario.seed = seed;
  scenario.steps = 40;
  scenario.lr = 0.05;
  return scenario;
}

void expect_sound(const RunResult& result) {
  ASSERT_FALSE(result.error) << result.error->message;
  expect_all_accounted(result);
}

template <class F>
int for_each_wiring(const F& visit) {
  int wirings = 0;
  for (const std::string& preset : virtual_run_test::kPresets)
    for (const Keys& inside : kInside) {
      if (!can_change(preset, inside)) continue;
      ++wirings;
      SCOPED_TRACE(preset + " around " + inside[1].second);
      visit(preset, inside);
    }
  return wirings;
}

// A rank, a head, two of one group, or a whole group, at any moment; the second loss often falls
// into the change for the first.
TEST(ChangedLevelsRun, EveryWiringContinuesWithoutTheDead) {
  std::size_t lost = 0;
  const int wirings = for_each_wiring([&](const std::string& preset, const Keys& inside) {
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE("seed=" + std::to_string(seed));
      RunConfig config = make_run(make_scenario(preset, inside, seed));
      Rng rng(seed);
      const Duration at = microseconds(rng() % 400'000);
      const std::vector<std::vector<Rank>> of_seed = {{4},       {3},    {6, 7},
                                                      {3, 4, 5}, {3, 6}, {8, 6, 1}};
      for (const Rank rank : of_seed[seed % of_seed.size()])
        config.deaths.push_back({rank, at + microseconds(rng() % 20'000)});
      const RunResult result = run_virtual(config, std::make_shared<Quiet>());
      expect_sound(result);
      lost += result.lost.size();
    }
  });
  EXPECT_GT(wirings, 20);
  EXPECT_GT(lost, static_cast<std::size_t>(8 * wirings));
}

TEST(ChangedLevelsRun, EveryWiringTakesRanksBack) {
  std::int64_t returned = 0;
  const int wirings = for_each_wiring([&](const std::string& preset, const Keys& inside) {
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE("seed=" + std::to_string(seed));
      RunConfig config = make_run(make_scenario(preset, inside, seed));
      Rng rng(seed);
      add_deaths_and_returns(config, rng, 3, kRanks);
      const RunResult result = run_virtual(config, std::make_shared<Quiet>());
      expect_sound(result);
      returned += result.returned;
    }
  });
  EXPECT_GT(returned, 5 * wirings) << "few ranks have returned: little was tested";
}

// A head dies and returns: one model, to the same bits; and the same run has the same trace.
TEST(ChangedLevelsRun, AReplicatedModelStaysOne) {
  for (const std::string preset : {"ar", "local-sgd", "gtopk"})
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      const auto once = [&] {
        RunConfig config = make_run(make_scenario(preset, kInside[seed % 2], seed));
        config.deaths = {{3, milliseconds(60 + 7 * static_cast<int>(seed))}};
        config.returns = {{3, milliseconds(100)}};
        return run_virtual(config, std::make_shared<Quiet>());
      };
      const RunResult result = once();
      expect_sound(result);
      EXPECT_EQ(result.returned, 1);
      EXPECT_TRUE(result.lost.empty());
      EXPECT_EQ(result.consensus_distance, 0);
      EXPECT_EQ(once().trace_hash, result.trace_hash);
    }
}

// The counts of a view in several messages, one rank in each, have the effect of those in one.
TEST(ChangedLevelsRun, TheCountsOfAViewMayComeInParts) {
  for (const std::string preset : {"ar", "sgp", "local-sgd"})
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      const auto run = [&](std::size_t counts_per_message) {
        RunConfig config = make_run(make_scenario(preset, kInside[seed % 2], seed));
        config.counts_per_message = counts_per_message;
        config.deaths = {{3, milliseconds(60 + 7 * static_cast<int>(seed))}};
        config.returns = {{3, milliseconds(100)}};
        return run_virtual(config, std::make_shared<Quiet>());
      };
      const RunResult whole = run(ViewCounts::kMostNumbers), in_parts = run(1);
      expect_sound(whole);
      expect_sound(in_parts);
      EXPECT_EQ(in_parts.trace_hash, whole.trace_hash);
      EXPECT_TRUE(at::equal(in_parts.z.read(), whole.z.read()));
    }
}

RunConfig make_saved(const std::string& preset, const Keys& inside, const std::string& folder) {
  Scenario scenario = make_scenario(preset, inside, 2);
  scenario.momentum = 0.9;
  scenario.lr = 0.02;
  scenario.folder = fresh_folder(folder);
  RunConfig config = make_run(scenario);
  end_by_samples(config);
  config.checkpoint_every_epochs = 0.5;
  return config;
}

// A head and another rank are lost: every checkpoint since is continued by all ranks.
TEST(ChangedLevelsRun, ACheckpointWithoutSomeRanksIsContinuedByAll) {
  int continued = 0;
  for (const std::string preset : {"ar", "sgp", "osgp", "d-psgd", "eager-solo", "local-sgd"}) {
    SCOPED_TRACE(preset);
    RunConfig config = make_saved(preset, kInside[0], "levels-before");
    config.deaths = {{3, milliseconds(70)}, {7, milliseconds(110)}};
    const auto observer = std::make_shared<Quiet>();
    expect_sound(run_virtual(config, observer));
    for (const std::string& path : observer->checkpoints) {
      SCOPED_TRACE(path);
      RunConfig again = make_saved(preset, kInside[0], "levels-after");
      again.resume = *read_checkpoint(path);
      if (again.resume->lost.empty()) continue;
      ++continued;
      const RunResult result = run_virtual(again, std::make_shared<Quiet>());
      expect_sound(result);
      EXPECT_TRUE(result.lost.empty());
    }
  }
  EXPECT_GT(continued, 12);
}

// All ranks are back: a run that continues ends in the same bits.
TEST(ChangedLevelsRun, ARunThatContinuesEndsInTheStateOfTheStraightOne) {
  for (const std::string preset : {"ar", "sgp", "osgp", "local-sgd"}) {
    SCOPED_TRACE(preset);
    RunConfig straight = make_saved(preset, kInside[0], "levels-straight");
    straight.checkpoint_every_epochs = 1;
    straight.deaths = {{4, milliseconds(60)}};
    straight.returns = {{4, milliseconds(100)}};
    const RunResult all = run_virtual(straight, std::make_shared<Quiet>());
    expect_sound(all);
    ASSERT_EQ(all.returned, 1);
    RunConfig again = make_saved(preset, kInside[0], "levels-resumed");
    again.checkpoint_every_epochs = 1;
    const auto middle = read_checkpoint(straight.checkpoint_folder + "/epoch-0003");
    ASSERT_TRUE(middle.ok()) << middle.error().message;
    again.resume = *middle;
    const RunResult rest = run_virtual(again, std::make_shared<Quiet>());
    ASSERT_FALSE(rest.error) << rest.error->message;
    EXPECT_EQ(rest.steps, all.steps);
    EXPECT_TRUE(at::equal(rest.z.read(), all.z.read()));
  }
}

}  // namespace changed_levels_run_test
}  // namespace grapevine
