// Ranks die and return in virtual time: the shipped actors take them back.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/wiring/role_type.hpp"
#include "messages/random.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace joined_members_run_test {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using virtual_run_test::add_deaths_and_returns;
using virtual_run_test::end_by_samples;
using virtual_run_test::expect_all_accounted;
using virtual_run_test::fresh_folder;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

bool can_change(const std::string& preset) {
  return changes_members(*resolve(find_preset(preset)->wiring));
}

Scenario make_scenario(const std::string& preset, std::uint64_t seed) {
  Scenario scenario;
  scenario.preset = preset;
  scenario.ranks = 5;
  scenario.seed = seed;
  scenario.steps = 40;
  return scenario;
}

// The run ends with all ranks, and every gradient is in a model, dropped by name, or gone with its
// rank.
TEST(JoinedMembersRun, EveryPresetTakesRanksBack) {
  int presets = 0;
  std::int64_t returned = 0;
  for (const std::string& preset : virtual_run_test::kPresets) {
    if (!can_change(preset)) continue;
    ++presets;
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      RunConfig config = make_run(make_scenario(preset, seed));
      Rng rng(seed);
      add_deaths_and_returns(config, rng, 1 + static_cast<int>(seed % 3), 5);
      const auto observer = std::make_shared<Quiet>();
      const RunResult result = run_virtual(config, observer);
      ASSERT_FALSE(result.error) << result.error->message;
      returned += result.returned;
      expect_all_accounted(result);
      EXPECT_NEAR(result.weight_sum, static_cast<double>(5 - result.lost.size()), 1e-6);
    }
  }
  EXPECT_EQ(presets, static_cast<int>(virtual_run_test::kPresets.size()));
  EXPECT_GT(returned, 6 * presets) << "few ranks have returned: little was tested";
}

// A rank that returns trains with the others: where one model is replicated, to the same bits. With
// the model it receives their momentum.
TEST(JoinedMembersRun, AReplicatedModelStaysOne) {
  for (const std::string preset : {"ar", "eager-solo", "local-sgd", "gtopk"})
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      Scenario scenario = make_scenario(preset, seed);
      scenario.momentum = 0.9;
      scenario.lr = 0.02;
      RunConfig config = make_run(scenario);
      config.deaths = {{2, milliseconds(60 + 7 * static_cast<int>(seed))}};
      config.returns = {{2, milliseconds(100)}};
      const RunResult result = run_virtual(config, std::make_shared<Quiet>());
      ASSERT_FALSE(result.error) << result.error->message;
      EXPECT_EQ(result.returned, 1);
      EXPECT_TRUE(result.lost.empty());
      EXPECT_EQ(result.consensus_distance, 0);
    }
}

TEST(JoinedMembersRun, SameSeedSameTrace) {
  for (const std::string preset : {"sgp", "ar", "ad-psgd"}) {
    const auto once = [&] {
      RunConfig config = make_run(make_scenario(preset, 3));
      config.deaths = {{2, milliseconds(90)}, {4, milliseconds(95)}};
      config.returns = {{2, milliseconds(96)}, {4, milliseconds(200)}};
      return run_virtual(config, std::make_shared<Quiet>());
    };
    const RunResult first = once(), second = once();
    ASSERT_FALSE(first.error) << first.error->message;
    EXPECT_EQ(first.returned, 2);
    EXPECT_EQ(first.trace_hash, second.trace_hash);
  }
}

// Epochs are validated once each, with the models of the members: four of ten steps of five ranks.
TEST(JoinedMembersRun, ValidationContinues) {
  for (const std::string preset : {"sgp", "ad-psgd", "ar"}) {
    SCOPED_TRACE(preset);
    RunConfig config = make_run(make_scenario(preset, 1));
    end_by_samples(config);
    config.deaths = {{1, milliseconds(60)}, {3, milliseconds(300)}};
    config.returns = {{1, milliseconds(120)}, {3, milliseconds(340)}};
    const auto observer = std::make_shared<Quiet>();
    const RunResult result = run_virtual(config, observer);
    ASSERT_FALSE(result.error) << result.error->message;
    EXPECT_EQ(result.returned, 2);
    EXPECT_EQ(observer->validations.size(), 4u);
  }
}

// As many samples as planned, however many ranks shared them.
TEST(JoinedMembersRun, TheSamplesOfAllEpochsAreShared) {
  Scenario scenario = make_scenario("ar", 1);
  scenario.delay = "lognormal=-4:0.1";
  RunConfig config = make_run(scenario);
  end_by_samples(config);
  config.deaths = {{1, milliseconds(100)}};
  config.returns = {{1, milliseconds(300)}};
  const RunResult result = run_virtual(config, std::make_shared<Quiet>());
  ASSERT_FALSE(result.error) << result.error->message;
  EXPECT_EQ(result.returned, 1);
  EXPECT_GT(result.steps[0], 40) << "nobody took over what the lost rank left";
  EXPECT_NEAR(static_cast<double>(result.ledger.produced), 5 * 40, 5 + 1);
}

// The batch of each rank's newest request for each step.
using Batches = std::map<std::pair<Rank, Step>, std::int64_t>;

class Recording : public Compute {
 public:
  Recording(std::shared_ptr<Compute> inner, Rank rank, std::shared_ptr<Batches> batches)
      : inner_(std::move(inner)), rank_(rank), batches_(std::move(batches)) {}
  std::int64_t dimension() const override { return inner_->dimension(); }
  FrozenTensor initial_parameters() const override { return inner_->initial_parameters(); }
  FrozenTensor initial_buffers() const override { return inner_->initial_buffers(); }
  Gradient gradient(GradientRequest request) override {
    Deal deal = request.deal;
    if (deal.ranks == 0) deal = {5, rank_, 0, 0};  // of the start
    (*batches_)[{rank_, request.step}] = deal.batch_of(request.step);
    return inner_->gradient(std::move(request));
  }
  Expected<Evaluation> evaluate(const FrozenTensor& z, const FrozenTensor& buffers) override {
    return inner_->evaluate(z, buffers);
  }

 private:
  const std::shared_ptr<Compute> inner_;
  const Rank rank_;
  const std::shared_ptr<Batches> batches_;
};

struct BatchesOfSteps : Quiet {
  explicit BatchesOfSteps(std::shared_ptr<Batches> of) : batches(std::move(of)) {}
  void on_step(const StepReport& report) override {
    taken[report.rank].push_back(batches->at({report.rank, report.step}));
  }
  // It may have been further than all others: nobody knows its last batches.
  void on_rank_lost(Rank rank) override { taken[rank].clear(); }
  std::vector<std::int64_t> all() const {
    std::vector<std::int64_t> batches;
    for (const auto& [rank, of_rank] : taken)
      batches.insert(batches.end(), of_rank.begin(), of_rank.end());
    std::sort(batches.begin(), batches.end());
    return batches;
  }
  const std::shared_ptr<Batches> batches;
  std::map<Rank, std::vector<std::int64_t>> taken;
};

// By ranks that are there at the end.
TEST(JoinedMembersRun, NoBatchIsTakenTwice) {
  for (const std::string preset : {"ar", "sgp", "eager-majority", "wagma"})
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      RunConfig config = make_run(make_scenario(preset, seed));
      const auto batches = std::make_shared<Batches>();
      for (Rank rank = 0; rank < 5; ++rank) {
        auto& compute = config.computes[static_cast<std::size_t>(rank)];
        compute = std::make_shared<Recording>(compute, rank, batches);
      }
      Rng rng(seed);
      add_deaths_and_returns(config, rng, 3, 5);
      const auto observer = std::make_shared<BatchesOfSteps>(batches);
      const RunResult result = run_virtual(config, observer);
      ASSERT_FALSE(result.error) << result.error->message;
      const std::vector<std::int64_t> taken = observer->all();
      const auto twice = std::adjacent_find(taken.begin(), taken.end());
      EXPECT_TRUE(twice == taken.end()) << "batch " << *twice;
      EXPECT_GT(taken.size(), 80u) << "of 200, without those of the lost";
    }
}

struct TimesOfBatches : Quiet {
  explicit TimesOfBatches(std::shared_ptr<Batches> of) : batches(std::move(of)) {}
  void on_step(const StepReport& report) override {
    ++times[batches->at({report.rank, report.step})];
  }
  const std::shared_ptr<Batches> batches;
  std::map<std::int64_t, std::int64_t> times;  // that steps of them were reported, by batch
};

// The batches of these runs, by their number: epochs of 50.
std::vector<std::int64_t> named(const std::vector<BatchTally::Named>& runs) {
  std::vector<std::int64_t> all;
  for (const auto& [epoch, run] : runs)
    for (std::int64_t i = 0; i < run.count; ++i)
      all.push_back(epoch * 50 + run.first + i * run.stride);
  return all;
}

// Each of the 200 batches of the epochs is that of a reported step, or in the result's lists; but
// for gradients that a rank had when its exchange was given up: at most one of each rank and view.
TEST(JoinedMembersRun, EachBatchIsTakenOnceOrListed) {
  std::int64_t left_out = 0, again = 0;
  for (const std::string preset : {"ar", "sgp", "eager-majority", "ad-psgd", "local-sgd"})
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      RunConfig config = make_run(make_scenario(preset, seed));
      end_by_samples(config);
      const auto batches = std::make_shared<Batches>();
      for (Rank rank = 0; rank < 5; ++rank) {
        auto& compute = config.computes[static_cast<std::size_t>(rank)];
        compute = std::make_shared<Recording>(compute, rank, batches);
      }
      Rng rng(seed);
      if (seed > 1) add_deaths_and_returns(config, rng, 3, 5);
      const auto observer = std::make_shared<TimesOfBatches>(batches);
      const RunResult result = run_virtual(config, observer);
      ASSERT_FALSE(result.error) << result.error->message;
      std::int64_t missing = 0, twice = 0;
      for (std::int64_t batch = 0; batch < 200; ++batch)
        missing += observer->times.count(batch) == 0;
      for (const auto& [batch, times] : observer->times) twice += times - 1;
      for (const std::int64_t batch : named(result.batches.left_out_runs))
        EXPECT_EQ(observer->times.count(batch), 0U) << "batch " << batch << " was taken";
      const std::int64_t unfinished = 5 * (result.views - 1);
      EXPECT_GE(missing, result.batches.left_out);
      EXPECT_LE(missing, result.batches.left_out + unfinished);
      EXPECT_LE(twice, result.batches.again);
      EXPECT_LE(result.batches.again, twice + unfinished);
      const bool is_whole = seed > 1 || preset == "ad-psgd" || missing == 0;
      EXPECT_TRUE(is_whole) << missing << " batches are missing, and no rank was lost";
      left_out += result.batches.left_out;
      again += result.batches.again;
    }
  EXPECT_GT(left_out, 40) << "little was left out: little was tested";
  EXPECT_GT(again, 0) << "no lost rank was ahead of the others: little was tested";
}

// A stop amid returns and losses, also of the rank whose state another one waits for.
TEST(JoinedMembersRun, AStopAtAnyMomentEndsWithACheckpoint) {
  int stopped = 0, amid_a_transfer = 0;
  for (const std::string preset : {"ar", "sgp", "eager-solo", "d-psgd"})
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      SCOPED_TRACE(preset + ", seed=" + std::to_string(seed));
      Scenario scenario = make_scenario(preset, seed);
      scenario.dimension = 4000;
      scenario.folder = fresh_folder("stop-" + preset);
      RunConfig config = make_run(scenario);
      config.checkpoint_every_epochs = 0;
      SimConfig sim;
      sim.world_size = config.ranks;
      sim.network.link = {1e-3, 1e-6};  // 16 ms for a model
      config.world = std::make_shared<VirtualWorld>();
      config.world->network = std::make_shared<SimTransport>(sim, [] { return Timestamp{0}; });
      config.world->deadline = std::chrono::seconds(60);
      config.transport = config.world->network;
      Rng rng(seed);
      const Duration back = milliseconds(300) + microseconds(rng() % 100'000);
      const Duration donor_dies = back + microseconds(rng() % 80'000);
      config.deaths = {{3, milliseconds(100)}, {0, donor_dies}};
      config.returns = {{3, back}};
      config.stop_at = donor_dies - milliseconds(20) + microseconds(rng() % 40'000);
      const RunResult result = run_virtual(config, std::make_shared<Quiet>());
      ASSERT_FALSE(result.error) << result.error->message;
      if (!result.interrupted) continue;
      ++stopped;
      amid_a_transfer += std::count(result.lost.begin(), result.lost.end(), 3) > 0;
      const auto checkpoint = read_checkpoint(scenario.folder);
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
      EXPECT_FALSE(result.lacks_final);
    }
  EXPECT_GT(stopped, 100);
  EXPECT_GT(amid_a_transfer, 0) << "no rank waited for a lost one: nothing was tested";
}

}  // namespace joined_members_run_test
}  // namespace grapevine
