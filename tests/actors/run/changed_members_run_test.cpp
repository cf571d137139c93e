// Ranks die in virtual time, and the shipped actors continue without them.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "algorithms/wiring/role_type.hpp"
#include "messages/random.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace changed_members_run_test {

using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

bool can_change(const std::string& preset) {
  return changes_members(*resolve(find_preset(preset)->wiring));
}

// The run ends well, with each gradient of the remaining ranks in a model, or dropped by name, and
// those that the dead ranks had last reported.
TEST(ChangedMembersRun, EveryPresetContinuesWithoutTheDead) {
  int presets = 0;
  std::int64_t steps_after = 0;
  for (const std::string& preset : virtual_run_test::kPresets) {
    if (!can_change(preset)) continue;
    ++presets;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      Scenario scenario;
      scenario.preset = preset;
      scenario.ranks = 5;
      scenario.seed = seed;
      scenario.steps = 30;
      RunConfig config = make_run(scenario);
      Rng rng(seed);
      const int deaths = 1 + static_cast<int>(seed % 2);
      std::vector<Rank> dead;
      for (int i = 0; i < deaths; ++i) {
        const Rank rank = static_cast<Rank>((rng() + static_cast<std::uint64_t>(2 * i)) % 5);
        if (std::count(dead.begin(), dead.end(), rank) > 0) continue;
        dead.push_back(rank);
        // A step takes about 18 ms; the second one often dies while members change.
        const auto at = std::chrono::microseconds(rng() % 400'000);
        const Duration first = config.deaths.empty() ? Duration(0) : config.deaths[0].at;
        config.deaths.push_back(
            {rank,
             i == 0 ? Duration(at) : first + Duration(std::chrono::microseconds(rng() % 20'000))});
      }
      std::sort(dead.begin(), dead.end());
      const auto observer = std::make_shared<Quiet>();
      const RunResult result = run_virtual(config, observer);
      ASSERT_FALSE(result.error) << result.error->message;
      if (result.lost.empty()) continue;  // all had trained before
      EXPECT_EQ(result.lost, dead);
      EXPECT_EQ(result.ledger.produced,
                result.ledger.committed + result.ledger.dropped + result.destroyed);
      EXPECT_EQ(result.ledger.sent, result.ledger.received);
      EXPECT_NEAR(result.weight_sum, static_cast<double>(5 - dead.size()), 1e-6);
      EXPECT_TRUE(at::isfinite(result.z.read()).all().item<bool>());
      for (Rank rank = 0; rank < 5; ++rank)
        if (std::count(dead.begin(), dead.end(), rank) == 0)
          steps_after += result.steps[static_cast<std::size_t>(rank)];
    }
  }
  EXPECT_EQ(presets, static_cast<int>(virtual_run_test::kPresets.size()));
  EXPECT_GT(steps_after, 100 * presets);
}

// Where H changes with the epoch, a change of members moves the boundaries: two ranks in one period
// must not end up on two sides of one.
TEST(ChangedMembersRun, LocalStepsThatChangeKeepTheExchangesTogether) {
  using Keys = std::vector<std::pair<std::string, std::string>>;
  std::size_t lost = 0;
  for (const auto& [preset, keys] : std::vector<std::pair<std::string, Keys>>{
           {"local-sgd", {{"local_steps", "0:2,1:5"}}},
           {"local-sgd", {{"local_steps", "0:2,1:5"}, {"overlap", "true"}}},
           {"diloco", {{"local_steps", "0:3,1:8"}}},
           {"diloco", {{"local_steps", "0:1,1:6"}, {"overlap", "true"}}},
           {"sparseloco", {{"local_steps", "0:2,1:5"}}},
           {"eager-majority", {{"local_steps", "0:2,1:5"}, {"pack", "difference"}}},
           {"sgp", {{"local_steps", "0:1,1:4"}}},
           {"osgp", {{"local_steps", "0:1,1:4"}}}})
    for (std::uint64_t seed = 1; seed <= 25; ++seed) {
      SCOPED_TRACE(preset + testing::PrintToString(keys) + ", seed=" + std::to_string(seed));
      Scenario scenario;
      scenario.preset = preset;
      scenario.set = keys;
      scenario.ranks = 5;
      scenario.seed = seed;
      scenario.steps = 60;
      scenario.steps_per_epoch = 20;
      scenario.delay = "lognormal=-4:0.7";
      RunConfig config = make_run(scenario);
      Rng rng(seed);
      const Rank dead = static_cast<Rank>(1 + rng() % 4);
      config.deaths.push_back({dead, std::chrono::microseconds(rng() % 900'000)});
      if (seed % 3 == 0)
        config.returns.push_back({dead, config.deaths[0].at + std::chrono::milliseconds(100)});
      const RunResult result = run_virtual(config, std::make_shared<Quiet>());
      ASSERT_FALSE(result.error) << result.error->message;
      lost += result.lost.size();
      EXPECT_EQ(result.ledger.produced,
                result.ledger.committed + result.ledger.dropped + result.destroyed);
      EXPECT_EQ(result.ledger.sent, result.ledger.received);
    }
  EXPECT_GT(lost, 60u) << "few ranks were lost: little was tested";
}

// Ranks stand at different steps when one is lost, and take different numbers of rounds from then
// on: compressed differences to a rank that has ended would take weight out of the run.
TEST(ChangedMembersRun, CompressedPushSumKeepsItsWeight) {
  std::size_t lost = 0;
  for (const std::string compress : {"fp16", "top-k"})
    for (const std::string topology : {"exponential", "star", "complete"})
      for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        SCOPED_TRACE(compress + ", " + topology + ", seed=" + std::to_string(seed));
        Scenario scenario;
        scenario.preset = "sgp";
        scenario.set = {{"compress", compress}, {"topology", topology}};
        if (compress == "top-k") scenario.set.emplace_back("density", "0.3");
        scenario.seed = seed;
        scenario.steps = 24;
        scenario.delay = "lognormal=-3:0.6";
        RunConfig config = make_run(scenario);
        config.deaths = {{static_cast<Rank>(seed % 4), std::chrono::milliseconds(150 + 20 * seed)}};
        const RunResult result = run_virtual(config, std::make_shared<Quiet>());
        ASSERT_FALSE(result.error) << result.error->message;
        lost += result.lost.size();
        EXPECT_NEAR(result.weight_sum, static_cast<double>(4 - result.lost.size()), 1e-6);
      }
  EXPECT_GT(lost, 50u);
}

// The same run again gives the same trace: a death is one event like any other.
TEST(ChangedMembersRun, SameSeedSameTrace) {
  for (const std::string preset : {"sgp", "ar", "eager-solo"}) {
    const auto once = [&] {
      Scenario scenario;
      scenario.preset = preset;
      RunConfig config = make_run(scenario);
      config.deaths = {{2, std::chrono::milliseconds(120)}};
      return run_virtual(config, std::make_shared<Quiet>());
    };
    const RunResult first = once(), second = once();
    ASSERT_FALSE(first.error) << first.error->message;
    EXPECT_EQ(first.lost, std::vector<Rank>{2});
    EXPECT_EQ(first.trace_hash, second.trace_hash);
  }
}

TEST(ChangedMembersRun, EndsWhereTooFewRemain) {
  Scenario scenario;
  scenario.preset = "ar";
  RunConfig config = make_run(scenario);
  config.deaths = {{1, std::chrono::milliseconds(50)}, {3, std::chrono::milliseconds(90)}};
  const RunResult result = run_virtual(config, std::make_shared<Quiet>());
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, Errc::peer_down);
  EXPECT_NE(result.error->message.find("--min-ranks needs 3"), std::string::npos)
      << result.error->message;
  EXPECT_EQ(result.lost, (std::vector<Rank>{1, 3})) << "and the rank whose loss ended the run";
}

// Epochs are validated with the models of the ranks that are left.
TEST(ChangedMembersRun, ValidationContinues) {
  Scenario scenario;
  scenario.preset = "sgp";
  scenario.steps = 40;
  RunConfig config = make_run(scenario);
  config.deaths = {{1, std::chrono::milliseconds(60)}};
  const auto observer = std::make_shared<Quiet>();
  const RunResult result = run_virtual(config, observer);
  ASSERT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(observer->validations.size(), 3u) << "40 steps of 3 ranks of 10 a 4-rank epoch";
}

}  // namespace changed_members_run_test
}  // namespace grapevine
