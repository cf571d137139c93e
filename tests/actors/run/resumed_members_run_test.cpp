// Checkpoints of runs whose members change: each of them can be continued.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/record/resume_hint.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/random.hpp"
#include "tests/actors/run/changing_presets.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace resumed_members_run_test {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using virtual_run_test::end_by_samples;
using virtual_run_test::expect_all_accounted;
using virtual_run_test::fresh_folder;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

constexpr std::int32_t kRanks = 5;

Scenario make_scenario(const std::string& preset, std::uint64_t seed, const std::string& folder) {
  Scenario scenario;
  scenario.preset = preset;
  scenario.ranks = kRanks;
  scenario.seed = seed;
  scenario.steps = 40;
  scenario.momentum = 0.9;
  scenario.lr = 0.02;
  scenario.folder = folder;
  return scenario;
}

RunConfig make_config(const Scenario& scenario) {
  RunConfig config = make_run(scenario);
  end_by_samples(config);
  return config;
}

std::int64_t warnings_with(const Quiet& observer, const std::string& text) {
  return std::count_if(observer.warnings.begin(), observer.warnings.end(),
                       [&](const auto& line) { return line.find(text) != std::string::npos; });
}

void expect_sound(const RunResult& result) {
  expect_all_accounted(result);
  EXPECT_NEAR(result.weight_sum, static_cast<double>(kRanks - result.lost.size()), 1e-6);
}

// A run whose rank 2 dies, and the checkpoints that it has written since.
std::vector<std::string> checkpoints_after_a_loss(const std::string& preset, std::uint64_t seed,
                                                  const std::string& folder) {
  RunConfig config = make_config(make_scenario(preset, seed, folder));
  config.deaths = {{2, milliseconds(60 + 9 * static_cast<int>(seed))}};
  const auto observer = std::make_shared<Quiet>();
  const RunResult result = run_virtual(config, observer);
  EXPECT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(result.lost, std::vector<Rank>{2});
  EXPECT_EQ(warnings_with(*observer, "no more checkpoints"), 0);
  expect_sound(result);
  std::vector<std::string> without_it;
  for (const std::string& path : observer->checkpoints) {
    const auto checkpoint = read_checkpoint(path);
    EXPECT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    if (checkpoint && checkpoint->lost == std::vector<Rank>{2}) without_it.push_back(path);
  }
  return without_it;
}

void expect_continued_by_all(const std::string& preset, std::uint64_t seed,
                             const std::string& path) {
  SCOPED_TRACE(path);
  RunConfig again = make_config(make_scenario(preset, seed, fresh_folder("members-after")));
  again.resume = *read_checkpoint(path);
  const double before = again.resume->epochs().front();
  const auto observer = std::make_shared<Quiet>();
  const RunResult result = run_virtual(again, observer);
  ASSERT_FALSE(result.error) << result.error->message;
  EXPECT_TRUE(result.lost.empty());
  EXPECT_EQ(result.views, 2);
  expect_sound(result);
  if (preset == "ar") {
    EXPECT_NEAR(static_cast<double>(result.ledger.produced), kRanks * 40, kRanks + 2)
        << "what the lost rank had done counts, too";
  }
  const bool joined = std::any_of(observer->steps.begin(), observer->steps.end(),
                                  [](const StepReport& step) { return step.rank == 2; });
  EXPECT_TRUE(joined || before > 3.5) << "from epoch " << before;
  const auto last = read_checkpoint(again.checkpoint_folder);
  ASSERT_TRUE(last.ok()) << last.error().message;
  EXPECT_TRUE(last->lost.empty());
}

// The remaining ranks write checkpoints; a run that continues one has all its ranks again.
TEST(ResumedMembersRun, ARunWithoutARankIsContinuedByAll) {
  std::uint64_t presets = 0;
  for (const std::string& preset : virtual_run_test::changing_presets()) {
    const std::uint64_t seed = 1 + ++presets % 2;
    SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
    const auto paths = checkpoints_after_a_loss(preset, seed, fresh_folder("members-before"));
    ASSERT_GE(paths.size(), 2u);
    expect_continued_by_all(preset, seed, paths.front());
    expect_continued_by_all(preset, seed, paths.back());
  }
  EXPECT_EQ(presets, virtual_run_test::kPresets.size());
}

// Where the ranks are those of the start again, a run that continues ends in the same bits.
TEST(ResumedMembersRun, ARunWhoseRanksAreBackEndsInTheStateOfTheStraightOne) {
  for (const std::string preset : {"ar", "sgp", "osgp", "local-sgd", "gtopk", "d-psgd"}) {
    SCOPED_TRACE(preset);
    const auto make = [&](const std::string& folder) {
      return make_config(make_scenario(preset, 3, fresh_folder(folder)));
    };
    RunConfig straight = make("members-straight");
    straight.deaths = {{2, milliseconds(60)}, {4, milliseconds(110)}};
    straight.returns = {{2, milliseconds(100)}, {4, milliseconds(150)}};
    const auto observer = std::make_shared<Quiet>();
    const RunResult all = run_virtual(straight, observer);
    ASSERT_FALSE(all.error) << all.error->message;
    ASSERT_EQ(all.returned, 2);
    const auto middle = read_checkpoint(straight.checkpoint_folder + "/epoch-0003");
    ASSERT_TRUE(middle.ok()) << middle.error().message;
    ASSERT_TRUE(middle->lost.empty());
    ASSERT_TRUE(middle->view().ok() && middle->view()->has_value());
    RunConfig again = make("members-resumed");
    again.resume = *middle;
    const RunResult rest = run_virtual(again, std::make_shared<Quiet>());
    ASSERT_FALSE(rest.error) << rest.error->message;
    EXPECT_EQ(rest.steps, all.steps);
    EXPECT_TRUE(at::equal(rest.z.read(), all.z.read()));
    EXPECT_EQ(rest.batches.left_out, all.batches.left_out);
    EXPECT_EQ(rest.batches.again, all.batches.again);
    EXPECT_GT(all.batches.left_out, 0) << "nothing was tested";
    const auto a = read_checkpoint(straight.checkpoint_folder),
               b = read_checkpoint(again.checkpoint_folder);
    ASSERT_TRUE(a.ok() && b.ok());
    for (std::size_t rank = 0; rank < kRanks; ++rank)
      for (const char* entry : {"view.first_step", "view.first_batch", "deal_end"})
        EXPECT_EQ(*a->ranks[rank].integer(entry), *b->ranks[rank].integer(entry)) << entry;
  }
}

// A run of five ranks is continued by fewer or more: the model is the one of before, the epochs are
// completed, and what is replicated stays so.
TEST(ResumedMembersRun, AnotherNumberOfRanksContinues) {
  int presets = 0;
  for (const std::string& preset : virtual_run_test::kPresets) {
    if (!changes_ranks(*resolve(find_preset(preset)->wiring))) continue;
    ++presets;
    Scenario scenario = make_scenario(preset, 2, fresh_folder("workers-before"));
    const auto observer = std::make_shared<Quiet>();
    const RunResult before = run_virtual(make_config(scenario), observer);
    ASSERT_FALSE(before.error) << before.error->message;
    for (const std::int32_t ranks : {3, 4, 8}) {
      SCOPED_TRACE(preset + ", " + std::to_string(ranks) + " ranks");
      scenario.folder = fresh_folder("workers-after");
      scenario.ranks = ranks;
      scenario.steps = (40 * kRanks + ranks - 1) / ranks;  // the last epoch is complete
      scenario.steps_per_epoch = 10.0 * kRanks / ranks;
      RunConfig again = make_config(scenario);
      again.resume = *read_checkpoint(observer->checkpoints[1]);
      ASSERT_TRUE(again.resume->change_ranks(ranks, 0, 0).ok());
      const auto steps = std::make_shared<Quiet>();
      const RunResult result = run_virtual(again, steps);
      ASSERT_FALSE(result.error) << result.error->message;
      EXPECT_EQ(result.ledger.produced,
                result.ledger.committed + result.ledger.dropped + result.destroyed);
      EXPECT_NEAR(result.weight_sum, ranks, 1e-6);
      std::vector<int> taken(static_cast<std::size_t>(ranks));
      for (const StepReport& step : steps->steps) ++taken[static_cast<std::size_t>(step.rank)];
      // Where ranks go at their own pace, some may have done all that was left.
      if (preset != "noloco" && preset != "ad-psgd") {
        EXPECT_EQ(std::count(taken.begin(), taken.end(), 0), 0) << "a rank takes no part";
      }
      EXPECT_TRUE(at::isfinite(result.z.read()).all().item<bool>());
      if (preset == "ar" || preset == "gtopk" || preset == "eager-solo") {
        EXPECT_EQ(result.consensus_distance, 0);
      }
      const auto last = read_checkpoint(again.checkpoint_folder);
      ASSERT_TRUE(last.ok()) << last.error().message;
      EXPECT_GE(last->epochs().front(), 4 - 1e-6);
    }
  }
  EXPECT_EQ(presets, virtual_run_test::presets_without_servers());
}

// Ranks die and return at any moment, also during cuts: no checkpoint is half of one view.
TEST(ResumedMembersRun, EveryCheckpointUnderPressureIsContinued) {
  int continued = 0;
  for (const std::string preset : {"ar", "sgp", "osgp", "ad-psgd", "eager-majority", "gtopk"})
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      Scenario scenario = make_scenario(preset, seed, fresh_folder("members-pressed"));
      RunConfig config = make_config(scenario);
      config.checkpoint_every_epochs = 0.25;
      Rng rng(seed);
      for (int i = 0; i < 3; ++i) {
        const auto rank = static_cast<Rank>(1 + rng() % (kRanks - 1));
        const Duration death = milliseconds(150 * i) + microseconds(rng() % 120'000);
        config.deaths.push_back({rank, death});
        if (rng() % 3 != 0)
          config.returns.push_back({rank, death + microseconds(1 + rng() % 30'000)});
      }
      const auto observer = std::make_shared<Quiet>();
      const RunResult result = run_virtual(config, observer);
      ASSERT_FALSE(result.error) << result.error->message;
      expect_sound(result);
      ASSERT_GE(observer->checkpoints.size(), 6u);
      for (std::size_t i = rng() % 4; i < observer->checkpoints.size(); i += 4) {
        SCOPED_TRACE(observer->checkpoints[i]);
        scenario.folder = fresh_folder("members-continued");
        RunConfig again = make_config(scenario);
        auto checkpoint = read_checkpoint(observer->checkpoints[i]);
        ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
        again.resume = std::move(*checkpoint);
        const RunResult rest = run_virtual(again, std::make_shared<Quiet>());
        ASSERT_FALSE(rest.error) << rest.error->message;
        EXPECT_TRUE(rest.lost.empty());
        expect_sound(rest);
        ++continued;
      }
    }
  EXPECT_GT(continued, 25);
}

// Lost before its first checkpoint: --resume with the folder of the run continues it there, and
// the checkpoint of another folder is named as it is.
TEST(ResumedMembersRun, ARunThatIsContinuedInItsFolderNamesThat) {
  const std::string run = fresh_folder("members-hint");
  ASSERT_FALSE(run_virtual(make_config(make_scenario("ar", 1, run + "/checkpoint")),
                           std::make_shared<Quiet>())
                   .error);
  const std::string path = read_checkpoint(run + "/checkpoint/epoch-0001")->path;
  for (const bool in_place : {true, false}) {
    const std::string folder = in_place ? run : fresh_folder("members-hint-elsewhere");
    RunConfig again = make_config(make_scenario("ar", 1, folder + "/checkpoint"));
    std::filesystem::create_directories(again.checkpoint_folder);
    again.resume = *read_checkpoint(path);
    again.min_workers = kRanks;
    again.deaths = {{2, milliseconds(1)}};
    const RunResult lost = run_virtual(again, std::make_shared<Quiet>());
    ASSERT_TRUE(lost.error);
    EXPECT_EQ(resume_hint_in(lost.error->message),
              "; resume with --resume " + (in_place ? run_folder_of(path) : path));
  }
}

}  // namespace resumed_members_run_test
}  // namespace grapevine
