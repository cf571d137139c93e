// A run begins with fewer ranks than it has places for, and others take these while it trains.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/random.hpp"
#include "tests/actors/run/changing_presets.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace vacant_places_run_test {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using virtual_run_test::changing_presets;
using virtual_run_test::end_by_samples;
using virtual_run_test::expect_all_accounted;
using virtual_run_test::fresh_folder;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

constexpr std::int32_t kPlaces = 6;

Scenario make_scenario(const std::string& preset, std::uint64_t seed,
                       const std::string& folder = "") {
  Scenario scenario;
  scenario.preset = preset;
  scenario.ranks = kPlaces;
  scenario.seed = seed;
  scenario.steps = 40;
  scenario.folder = folder;
  return scenario;
}

RunConfig make_config(const Scenario& scenario, std::int32_t initial) {
  RunConfig config = make_run(scenario);
  config.initial_workers = initial;
  return config;
}

// Those that nobody has asked for stay vacant.
void expect_grown(const RunResult& result, std::size_t vacant) {
  ASSERT_FALSE(result.error) << result.error->message;
  expect_all_accounted(result);
  EXPECT_EQ(result.vacant.size(), vacant);
  const auto absent = static_cast<double>(result.vacant.size() + result.lost.size());
  EXPECT_NEAR(result.weight_sum, kPlaces - absent, 1e-6);
}

// At any moment, also before the first step, two at once, and into the change for another one.
void add_joins(RunConfig& config, Rng& rng, std::int32_t from, std::int32_t to) {
  for (Rank rank = from; rank < to; ++rank)
    config.returns.push_back({rank, microseconds(rng() % (rank % 2 == 0 ? 60'000 : 300'000))});
}

TEST(VacantPlacesRun, EveryPresetTakesRanksThatCome) {
  std::int64_t joined = 0, steps = 0;
  for (const std::string& preset : changing_presets())
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      const auto initial = static_cast<std::int32_t>(1 + seed % 4);
      RunConfig config = make_config(make_scenario(preset, seed), initial);
      config.min_workers = 1;
      Rng rng(seed);
      add_joins(config, rng, initial, kPlaces - (seed % 3 == 0 ? 1 : 0));
      const RunResult result = run_virtual(config, std::make_shared<Quiet>());
      expect_grown(result, seed % 3 == 0 ? 1 : 0);
      if (HasFailure()) return;
      EXPECT_TRUE(result.lost.empty());
      EXPECT_EQ(result.returned, 0);
      joined += result.joined;
      for (Rank rank = initial; rank < kPlaces; ++rank)
        steps += result.steps[static_cast<std::size_t>(rank)];
    }
  const auto presets = static_cast<std::int64_t>(changing_presets().size());
  EXPECT_EQ(changing_presets(), virtual_run_test::kPresets);
  EXPECT_GT(joined, 10 * presets) << "few ranks have joined: little was tested";
  EXPECT_GT(steps, 20 * joined) << "those that joined took few steps";
}

// Members die, among them those that have joined, and return.
TEST(VacantPlacesRun, GrowthAndLossesMeet) {
  std::int64_t joined = 0;
  std::size_t lost = 0;
  for (const std::string& preset : changing_presets())
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      RunConfig config = make_config(make_scenario(preset, seed), 4);
      config.min_workers = 1;
      Rng rng(seed);
      add_joins(config, rng, 4, kPlaces);
      const Duration at = microseconds(rng() % 300'000);
      const auto dead = static_cast<Rank>(1 + rng() % 5);
      config.deaths.push_back({dead, at});
      if (seed % 2 == 0) config.returns.push_back({dead, at + microseconds(rng() % 60'000)});
      const RunResult result = run_virtual(config, std::make_shared<Quiet>());
      ASSERT_FALSE(result.error) << result.error->message;
      expect_all_accounted(result);
      joined += result.joined;
      lost += result.lost.size();
    }
  EXPECT_GT(joined, 100);
  EXPECT_GT(lost, 20U);
}

// Where a run ends after a number of samples, they are dealt among those that are there: as many
// gradients as all places together would have made.
TEST(VacantPlacesRun, TheSamplesAreSharedByThoseThatAreThere) {
  for (const std::string preset : {"ar", "sgp", "gtopk", "local-sgd"}) {
    SCOPED_TRACE(preset);
    RunConfig config = make_config(make_scenario(preset, 2), 2);
    end_by_samples(config);
    config.returns = {{2, milliseconds(100)}, {3, milliseconds(160)}};
    const auto observer = std::make_shared<Quiet>();
    const RunResult result = run_virtual(config, observer);
    expect_grown(result, 2);
    EXPECT_EQ(result.joined, 2);
    EXPECT_NEAR(static_cast<double>(result.ledger.produced), 40 * kPlaces, 4 * kPlaces);
    EXPECT_GT(result.steps[0], 40) << "a third of the ranks takes more steps";
  }
}

// The run whose vacant places nobody takes is that of the ranks that began it, to the same bits.
TEST(VacantPlacesRun, WithoutOthersItIsTheSmallerRun) {
  for (const std::string& preset : changing_presets()) {
    SCOPED_TRACE(preset);
    const Scenario scenario = make_scenario(preset, 5);
    const RunResult places = run_virtual(make_config(scenario, 4), std::make_shared<Quiet>());
    expect_grown(places, 2);
    EXPECT_EQ(places.views, 1);
    Scenario smaller = scenario;
    smaller.ranks = 4;
    smaller.steps_per_epoch = scenario.steps_per_epoch * kPlaces / 4;
    RunConfig config = make_run(smaller);
    // The objectives are those of the larger run.
    const RunConfig larger = make_run(scenario);
    config.computes.assign(larger.computes.begin(), larger.computes.begin() + 4);
    const RunResult alone = run_virtual(config, std::make_shared<Quiet>());
    ASSERT_FALSE(alone.error) << alone.error->message;
    EXPECT_EQ(places.ledger.produced, alone.ledger.produced);
    EXPECT_TRUE(at::equal(places.z.read(), alone.z.read()));
  }
}

// Ranks of one model have it in common once others have joined, and the momentum.
TEST(VacantPlacesRun, AReplicatedModelStaysOne) {
  for (const std::string preset : {"ar", "eager-solo", "eager-majority", "gtopk", "local-sgd"})
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      Scenario scenario = make_scenario(preset, seed);
      scenario.momentum = 0.9;
      scenario.lr = 0.02;
      RunConfig config = make_config(scenario, 3);
      Rng rng(seed);
      add_joins(config, rng, 3, kPlaces);
      const RunResult result = run_virtual(config, std::make_shared<Quiet>());
      expect_grown(result, 0);
      EXPECT_EQ(result.consensus_distance, 0);
    }
}

// Nodes and levels whose ranks come later, whole nodes among them.
TEST(VacantPlacesRun, NodesAndLevelsGrow) {
  using Keys = std::vector<std::pair<std::string, std::string>>;
  const std::vector<Keys> outer = {
      {{"hierarchy", "2"}}, {{"level", "mean"}, {"level.group", "2"}, {"level.local_steps", "2"}}};
  int runs = 0;
  for (const std::string& preset : changing_presets())
    for (const Keys& keys : outer) {
      Scenario scenario = make_scenario(preset, 3);
      scenario.set = keys;
      auto wiring = find_preset(preset)->wiring;
      bool fits = true;
      for (const auto& [key, value] : keys) fits = wiring.set(key, value).ok() && fits;
      const auto plan = fits ? resolve(wiring) : Expected<Plan>(bad_input("no such key"));
      if (!plan || !changes_members(*plan)) continue;
      for (const std::int32_t initial : {2, 3}) {
        SCOPED_TRACE(preset + testing::PrintToString(keys) + ", " + std::to_string(initial));
        RunConfig config = make_config(scenario, initial);
        config.min_workers = 1;
        Rng rng(7);
        add_joins(config, rng, initial, kPlaces);
        const RunResult result = run_virtual(config, std::make_shared<Quiet>());
        expect_grown(result, 0);
        ++runs;
      }
    }
  EXPECT_GT(runs, 20);
}

// The evaluator has the models of those that are there.
TEST(VacantPlacesRun, EachEpochIsValidated) {
  for (const std::string preset : {"sgp", "ar", "gem", "ad-psgd"})
    for (const bool grows : {false, true}) {
      SCOPED_TRACE(preset + (grows ? ", grows" : ""));
      RunConfig config = make_config(make_scenario(preset, 1), 4);
      end_by_samples(config);
      if (grows) config.returns = {{4, milliseconds(150)}};
      const auto observer = std::make_shared<Quiet>();
      const RunResult result = run_virtual(config, observer);
      expect_grown(result, grows ? 1 : 2);
      EXPECT_EQ(observer->validations.size(), 4U);
    }
}

// Stopped before or after others have joined, and continued by as many, by more or by fewer ranks.
TEST(VacantPlacesRun, ItIsContinuedByOthers) {
  for (const std::string& preset : changing_presets())
    for (const bool grown : {false, true})
      for (const std::int32_t next :
           grown ? std::vector<std::int32_t>{3, 4, 5} : std::vector<std::int32_t>{3, 6}) {
        SCOPED_TRACE(preset + (grown ? ", grown, " : ", ") + std::to_string(next));
        RunConfig config = make_config(make_scenario(preset, 4, fresh_folder("vacant-before")), 4);
        if (grown) config.returns = {{4, milliseconds(40)}};
        config.stop_at = milliseconds(250);
        const RunResult before = run_virtual(config, std::make_shared<Quiet>());
        ASSERT_FALSE(before.error) << before.error->message;
        ASSERT_TRUE(before.interrupted);
        ASSERT_EQ(before.joined, grown ? 1 : 0);
        RunConfig again = make_config(make_scenario(preset, 4, fresh_folder("vacant-after")), next);
        again.min_workers = 1;
        auto checkpoint = read_checkpoint(config.checkpoint_folder);
        ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
        again.resume = *std::move(checkpoint);
        const RunResult after = run_virtual(again, std::make_shared<Quiet>());
        expect_grown(after, static_cast<std::size_t>(kPlaces - next));
        EXPECT_GE(after.ledger.produced, before.ledger.produced);
        if (HasFailure()) return;
      }
}

// As many ranks as before continue to the same bits.
TEST(VacantPlacesRun, ItEndsInTheStateOfTheStraightRun) {
  for (const std::string& preset : virtual_run_test::kSynchronous) {
    SCOPED_TRACE(preset);
    RunConfig straight = make_config(make_scenario(preset, 3, fresh_folder("vacant-straight")), 4);
    const RunResult all = run_virtual(straight, std::make_shared<Quiet>());
    expect_grown(all, 2);
    RunConfig again = make_config(make_scenario(preset, 3, fresh_folder("vacant-resumed")), 4);
    auto middle = read_checkpoint(straight.checkpoint_folder + "/epoch-0002");
    ASSERT_TRUE(middle.ok()) << middle.error().message;
    EXPECT_EQ(middle->lost, std::vector<Rank>({4, 5}));
    again.resume = *std::move(middle);
    const RunResult rest = run_virtual(again, std::make_shared<Quiet>());
    expect_grown(rest, 2);
    EXPECT_EQ(rest.views, 1);
    EXPECT_EQ(rest.steps, all.steps);
    EXPECT_TRUE(at::equal(rest.z.read(), all.z.read()));
  }
}

}  // namespace vacant_places_run_test
}  // namespace grapevine
