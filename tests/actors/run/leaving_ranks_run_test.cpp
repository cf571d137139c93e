// Ranks leave by request and return in virtual time: the shipped actors let them go and take them
// back.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "messages/random.hpp"
#include "tests/actors/run/changing_presets.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace leaving_ranks_run_test {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using virtual_run_test::changing_presets;
using virtual_run_test::expect_all_accounted;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

constexpr std::int32_t kRanks = 5;

Scenario make_scenario(const std::string& preset, std::uint64_t seed) {
  Scenario scenario;
  scenario.preset = preset;
  scenario.ranks = kRanks;
  scenario.seed = seed;
  scenario.steps = 40;
  return scenario;
}

RunConfig make_config(const std::string& preset, std::uint64_t seed) {
  return make_run(make_scenario(preset, seed));
}

bool has_left(const Quiet& observer, Rank rank) {
  const std::string line = fmt::format("rank {} has left: the other ranks continue", rank);
  return std::any_of(observer.warnings.begin(), observer.warnings.end(),
                     [&](const std::string& warning) { return warning.rfind(line, 0) == 0; });
}

void expect_weight_of(const RunResult& result, std::size_t absent) {
  EXPECT_EQ(result.lost.size(), absent);
  EXPECT_NEAR(result.weight_sum, static_cast<double>(kRanks) - static_cast<double>(absent), 1e-6);
}

// At any moment of the run. Half of the ranks return, some of them at once.
TEST(LeavingRanksRun, EveryPresetContinuesWithoutThemAndTakesThemBack) {
  const std::vector<std::string> presets = changing_presets();
  std::size_t left = 0, returned = 0;
  for (const std::string& preset : presets)
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      RunConfig config = make_config(preset, seed);
      Rng rng(seed);
      const auto rank = static_cast<Rank>(rng() % kRanks);
      const Duration at = microseconds(rng() % 300'000);
      if (seed % 2 == 0) config.returns = {{rank, at + microseconds(1 + rng() % 40'000)}};
      const auto observer = std::make_shared<Quiet>();
      const RunResult result = run_virtual(config, observer, {{rank, at}});
      ASSERT_FALSE(result.error) << result.error->message;
      expect_all_accounted(result);
      const bool gone = has_left(*observer, rank);
      left += gone ? 1 : 0;
      returned += static_cast<std::size_t>(result.returned);
      EXPECT_LE(result.returned, gone ? 1 : 0);
      expect_weight_of(result, gone && result.returned == 0 ? 1 : 0);
    }
  EXPECT_EQ(presets, virtual_run_test::kPresets);
  EXPECT_GT(left, 5 * presets.size()) << "few ranks have left: little was tested";
  EXPECT_GT(returned, 2 * presets.size()) << "few ranks have returned: little was tested";
}

// A death shortly before or after.
TEST(LeavingRanksRun, ALeaveAndADeathMeet) {
  std::size_t both = 0;
  for (const std::string& preset : changing_presets())
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      RunConfig config = make_config(preset, seed);
      Rng rng(seed);
      const auto leaving = static_cast<Rank>(rng() % kRanks);
      const auto dead = static_cast<Rank>((leaving + 1 + static_cast<Rank>(rng() % 4)) % kRanks);
      const Duration at = milliseconds(20) + microseconds(rng() % 250'000);
      config.deaths = {{dead, at - milliseconds(5) + microseconds(rng() % 10'000)}};
      const auto observer = std::make_shared<Quiet>();
      const RunResult result = run_virtual(config, observer, {{leaving, at}});
      ASSERT_FALSE(result.error) << result.error->message;
      expect_all_accounted(result);
      const bool gone = has_left(*observer, leaving);
      both += result.lost.size() == 2 ? 1 : 0;
      EXPECT_EQ(std::count(result.lost.begin(), result.lost.end(), leaving), gone ? 1 : 0);
      expect_weight_of(result, result.lost.size());
    }
  EXPECT_GT(both, 20U);
}

// One model stays one, without the rank and with it again, and with it the momentum.
TEST(LeavingRanksRun, AReplicatedModelStaysOne) {
  for (const std::string preset : {"ar", "eager-solo", "local-sgd", "gtopk"})
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      Scenario scenario = make_scenario(preset, seed);
      scenario.momentum = 0.9;
      scenario.lr = 0.02;
      RunConfig config = make_run(scenario);
      config.returns = {{2, milliseconds(120)}};
      const RunResult result = run_virtual(config, std::make_shared<Quiet>(),
                                           {{2, milliseconds(60 + 7 * static_cast<int>(seed))}});
      ASSERT_FALSE(result.error) << result.error->message;
      EXPECT_EQ(result.returned, 1);
      expect_weight_of(result, 0);
      EXPECT_EQ(result.consensus_distance, 0);
    }
}

}  // namespace leaving_ranks_run_test
}  // namespace grapevine
