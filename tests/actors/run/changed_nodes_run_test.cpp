// Ranks of nodes die and return in virtual time, and the shipped actors continue.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "actors/run/simulation/virtual_world.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/random.hpp"
#include "tests/actors/run/changing_presets.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace changed_nodes_run_test {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using virtual_run_test::add_deaths_and_returns;
using virtual_run_test::end_by_samples;
using virtual_run_test::expect_all_accounted;
using virtual_run_test::fresh_folder;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

constexpr std::int32_t kRanks = 9, kNode = 3;

bool can_change(const std::string& preset) {
  return changes_ranks(*resolve(find_preset(preset)->wiring));
}

Scenario make_scenario(const std::string& preset, std::uint64_t seed) {
  Scenario scenario;
  scenario.preset = preset;
  scenario.set = {{"hierarchy", std::to_string(kNode)}};
  scenario.ranks = kRanks;
  scenario.seed = seed;
  scenario.steps = 40;
  return scenario;
}

void expect_sound(const RunResult& result) {
  ASSERT_FALSE(result.error) << result.error->message;
  expect_all_accounted(result);
  EXPECT_NEAR(result.weight_sum, static_cast<double>(kRanks - result.lost.size()), 1e-6);
}

// A rank behind its head, a head, or a whole node, at any moment; the second loss often falls into
// the change for the first.
TEST(ChangedNodesRun, EveryPresetContinuesWithoutTheDead) {
  int presets = 0;
  std::size_t lost = 0;
  for (const std::string& preset : virtual_run_test::kPresets) {
    if (!can_change(preset)) continue;
    ++presets;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      RunConfig config = make_run(make_scenario(preset, seed));
      Rng rng(seed);
      const Duration at = microseconds(rng() % 400'000);
      const std::vector<std::vector<Rank>> of_seed = {{4},       {3},    {6, 7},
                                                      {3, 4, 5}, {3, 6}, {8, 6, 1}};
      const std::vector<Rank>& dead = of_seed[seed % of_seed.size()];
      for (const Rank rank : dead)
        config.deaths.push_back({rank, at + microseconds(rng() % 20'000)});
      const RunResult result = run_virtual(config, std::make_shared<Quiet>());
      expect_sound(result);
      lost += result.lost.size();
    }
  }
  EXPECT_EQ(presets, virtual_run_test::presets_without_servers());
  EXPECT_GT(lost, static_cast<std::size_t>(8 * presets));
}

TEST(ChangedNodesRun, EveryPresetTakesRanksBack) {
  int presets = 0;
  std::int64_t returned = 0;
  for (const std::string& preset : virtual_run_test::kPresets) {
    if (!can_change(preset)) continue;
    ++presets;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      RunConfig config = make_run(make_scenario(preset, seed));
      Rng rng(seed);
      add_deaths_and_returns(config, rng, 3, kRanks - 1, 1);
      const RunResult result = run_virtual(config, std::make_shared<Quiet>());
      expect_sound(result);
      returned += result.returned;
    }
  }
  EXPECT_EQ(presets, virtual_run_test::presets_without_servers());
  EXPECT_GT(returned, 8 * presets) << "few ranks have returned: little was tested";
}

// A head dies, the node joins anew, the head returns and follows: one model, to the same bits.
TEST(ChangedNodesRun, AReplicatedModelStaysOne) {
  for (const std::string preset : {"ar", "eager-solo", "local-sgd", "gtopk"})
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      RunConfig config = make_run(make_scenario(preset, seed));
      config.deaths = {{3, milliseconds(60 + 7 * static_cast<int>(seed))}};
      config.returns = {{3, milliseconds(100)}};
      const RunResult result = run_virtual(config, std::make_shared<Quiet>());
      expect_sound(result);
      EXPECT_EQ(result.returned, 1);
      EXPECT_TRUE(result.lost.empty());
      EXPECT_EQ(result.consensus_distance, 0);
    }
}

TEST(ChangedNodesRun, SameSeedSameTrace) {
  for (const std::string preset : {"osgp", "ar", "ad-psgd"}) {
    const auto once = [&] {
      RunConfig config = make_run(make_scenario(preset, 3));
      config.deaths = {{3, milliseconds(90)}, {7, milliseconds(95)}};
      config.returns = {{3, milliseconds(96)}, {7, milliseconds(200)}};
      return run_virtual(config, std::make_shared<Quiet>());
    };
    const RunResult first = once(), second = once();
    ASSERT_FALSE(first.error) << first.error->message;
    EXPECT_EQ(first.returned, 2);
    EXPECT_EQ(first.trace_hash, second.trace_hash);
  }
}

// By samples, with checkpoints.
RunConfig make_saved(const std::string& preset, std::uint64_t seed, const std::string& folder) {
  Scenario scenario = make_scenario(preset, seed);
  scenario.momentum = 0.9;
  scenario.lr = 0.02;
  scenario.folder = fresh_folder(folder);
  RunConfig config = make_run(scenario);
  end_by_samples(config);
  config.checkpoint_every_epochs = 0.5;
  return config;
}

// A head and a rank that follows are lost: every checkpoint since is continued by all ranks, the
// lost ones behind the head that their node has now.
TEST(ChangedNodesRun, ACheckpointWithoutSomeRanksIsContinuedByAll) {
  int continued = 0;
  for (const std::string& preset : virtual_run_test::kPresets) {
    if (!can_change(preset)) continue;
    SCOPED_TRACE(preset);
    RunConfig config = make_saved(preset, 2, "nodes-before");
    config.deaths = {{3, milliseconds(70)}, {7, milliseconds(110)}};
    const auto observer = std::make_shared<Quiet>();
    expect_sound(run_virtual(config, observer));
    for (const std::string& path : observer->checkpoints) {
      SCOPED_TRACE(path);
      RunConfig again = make_saved(preset, 2, "nodes-after");
      again.resume = *read_checkpoint(path);
      if (again.resume->lost.empty()) continue;
      ++continued;
      const auto view = again.resume->view();
      ASSERT_TRUE(view.ok() && view->has_value());
      if (again.resume->lost.front() == 3) {
        EXPECT_EQ((*view)->ranks.heads, (std::vector<Rank>{0, 4, 6}));
      }
      const RunResult result = run_virtual(again, std::make_shared<Quiet>());
      expect_sound(result);
      EXPECT_TRUE(result.lost.empty());
    }
  }
  EXPECT_GT(continued, 40);
}

// All ranks are back, one of them behind another head: a run that continues ends in the same bits.
TEST(ChangedNodesRun, ARunThatContinuesEndsInTheStateOfTheStraightOne) {
  for (const std::string preset : {"ar", "sgp", "osgp", "local-sgd", "gtopk", "d-psgd"}) {
    SCOPED_TRACE(preset);
    RunConfig straight = make_saved(preset, 3, "nodes-straight");
    straight.checkpoint_every_epochs = 1;
    straight.deaths = {{3, milliseconds(60)}, {8, milliseconds(110)}};
    straight.returns = {{3, milliseconds(100)}, {8, milliseconds(150)}};
    const RunResult all = run_virtual(straight, std::make_shared<Quiet>());
    ASSERT_FALSE(all.error) << all.error->message;
    ASSERT_EQ(all.returned, 2);
    const auto middle = read_checkpoint(straight.checkpoint_folder + "/epoch-0003");
    ASSERT_TRUE(middle.ok()) << middle.error().message;
    ASSERT_TRUE(middle->lost.empty());
    ASSERT_TRUE(middle->view().ok() && middle->view()->has_value());
    RunConfig again = make_saved(preset, 3, "nodes-resumed");
    again.checkpoint_every_epochs = 1;
    again.resume = *middle;
    const RunResult rest = run_virtual(again, std::make_shared<Quiet>());
    ASSERT_FALSE(rest.error) << rest.error->message;
    EXPECT_EQ(rest.steps, all.steps);
    EXPECT_TRUE(at::equal(rest.z.read(), all.z.read()));
  }
}

// Where no rank is left that exchanges for a node, none has the whole state.
TEST(ChangedNodesRun, EndsWithoutAnyHead) {
  Scenario scenario = make_scenario("ar", 1);
  scenario.ranks = 6;
  RunConfig config = make_run(scenario);
  config.deaths = {{0, milliseconds(80)}, {3, milliseconds(80)}};
  // Else the rest of the first node has the state of the other head before that one is lost.
  config.world = std::make_shared<VirtualWorld>();
  config.world->control_delay = milliseconds(1);
  const RunResult result = run_virtual(config, std::make_shared<Quiet>());
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, Errc::peer_down);
  EXPECT_NE(result.error->message.find("every node has lost"), std::string::npos)
      << result.error->message;
}

}  // namespace changed_nodes_run_test
}  // namespace grapevine
