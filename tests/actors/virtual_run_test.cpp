// The shipped actors under CAF's testing scheduler: no clock and no chance may creep in.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "actors/runtime.hpp"
#include "gpu/quadratic_compute.hpp"
#include "messages/random.hpp"
#include "net/inproc.hpp"

namespace grapevine {
namespace {

struct Quiet : RunObserver {
  void on_step(const StepReport& report) override { steps.push_back(report); }
  void on_validation(Epoch epoch, const Evaluation& evaluation) override {
    validations[epoch] = evaluation;
  }
  void on_checkpoint(const std::string& path) override { checkpoints.push_back(path); }
  void on_warning(const std::string& message) override { warnings.push_back(message); }
  void on_end(RunResult) override { ++ends; }

  std::vector<StepReport> steps;
  std::map<Epoch, Evaluation> validations;
  std::vector<std::string> checkpoints;
  std::vector<std::string> warnings;
  int ends = 0;
};

struct Scenario {
  std::string preset = "sgp";
  std::vector<std::pair<std::string, std::string>> set;
  std::int32_t ranks = 4;
  std::int64_t dimension = 16;
  Step steps = 20;
  double steps_per_epoch = 10;
  double lr = 0.1;
  double momentum = 0;
  double heterogeneity = 1;
  double noise = 0;
  std::uint64_t seed = 1;
  std::string delay = "lognormal=-4:1";
  std::string folder;
};

RunConfig make_run(const Scenario& scenario) {
  auto wiring = find_preset(scenario.preset)->wiring;
  for (const auto& [key, value] : scenario.set) EXPECT_TRUE(wiring.set(key, value));
  LrConfig rate;
  rate.lr = scenario.lr;
  OptimizerConfig optimizer;
  optimizer.momentum = scenario.momentum;
  RunConfig run;
  run.ranks = scenario.ranks;
  run.seed = scenario.seed;
  run.parts = *make_parts(*resolve(wiring), {scenario.steps, scenario.steps_per_epoch},
                          *LrSchedule::make(rate), optimizer, scenario.ranks);
  run.transport = make_inproc_transport(scenario.ranks);
  for (Rank r = 0; r < scenario.ranks; ++r) {
    QuadraticConfig quadratic;
    quadratic.dimension = scenario.dimension;
    quadratic.rank = r;
    quadratic.ranks = scenario.ranks;
    quadratic.seed = scenario.seed;
    quadratic.heterogeneity = scenario.heterogeneity;
    quadratic.noise = scenario.noise;
    run.computes.push_back(std::move(*QuadraticCompute::make(quadratic)));
  }
  QuadraticConfig global;
  global.dimension = scenario.dimension;
  global.ranks = scenario.ranks;
  global.seed = scenario.seed;
  run.evaluator = std::move(*QuadraticCompute::make(global));
  run.delay = *parse_delay(scenario.delay, scenario.ranks, scenario.seed);
  run.checkpoint_folder = scenario.folder;
  run.checkpoint_every_epochs = 1;
  return run;
}

RunResult run(const Scenario& scenario,
              std::shared_ptr<Quiet> observer = std::make_shared<Quiet>()) {
  return run_virtual(make_run(scenario), observer);
}

std::string fresh_folder(const std::string& name) {
  const auto path = std::filesystem::path(GRAPEVINE_BINARY_DIR) / "testdata" / name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path.string();
}

TEST(VirtualRun, SameSeedSameTrace) {
  Scenario scenario;
  scenario.ranks = 64;
  scenario.noise = 0.1;
  const RunResult first = run(scenario), second = run(scenario);
  ASSERT_FALSE(first.error) << first.error->message;
  EXPECT_EQ(first.trace_hash, second.trace_hash);
  EXPECT_TRUE(at::equal(first.z.read(), second.z.read()));
  scenario.seed = 2;
  EXPECT_NE(run(scenario).trace_hash, first.trace_hash) << "the hash does not see the trace";
}

TEST(VirtualRun, LedgerBalancesAndMassIsConserved) {
  for (const std::string preset : {"ar", "sgp", "osgp"})
    for (const std::int32_t n : {1, 2, 3, 5, 8, 16}) {
      SCOPED_TRACE(preset + ", n=" + std::to_string(n));
      Scenario scenario;
      scenario.preset = preset;
      scenario.ranks = n;
      const auto observer = std::make_shared<Quiet>();
      const RunResult result = run(scenario, observer);
      ASSERT_FALSE(result.error) << result.error->message;
      EXPECT_EQ(observer->ends, 1);
      EXPECT_EQ(result.ledger.produced, n * scenario.steps);
      EXPECT_EQ(result.ledger.committed, n * scenario.steps);
      EXPECT_EQ(result.ledger.pending(), 0);
      EXPECT_EQ(result.ledger.sent, result.ledger.received);
      EXPECT_NEAR(result.weight_sum, n, 1e-9);
      EXPECT_EQ(observer->validations.size(), 2u);
      EXPECT_EQ(observer->steps.size(), static_cast<std::size_t>(n * scenario.steps));
    }
}

// A straggler and skipped rounds: nothing may hang, and late shares count until the very end.
TEST(VirtualRun, OverlapWithABoundSurvivesAStraggler) {
  for (const int tau : {0, 1, 4}) {
    SCOPED_TRACE("tau=" + std::to_string(tau));
    Scenario scenario;
    scenario.preset = "osgp";
    scenario.set = {{"staleness", std::to_string(tau)}};
    scenario.ranks = 6;
    scenario.steps = 60;
    scenario.delay = "lognormal=-4:0.5,rank=2:200ms";
    const RunResult result = run(scenario);
    ASSERT_FALSE(result.error) << result.error->message;
    EXPECT_NEAR(result.weight_sum, 6, 1e-9);
    EXPECT_EQ(result.ledger.sent, result.ledger.received);
  }
}

TEST(VirtualRun, ReachesTheOptimumOfHeterogeneousRanks) {
  for (const std::string preset : {"ar", "sgp", "osgp"}) {
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    scenario.ranks = 8;
    scenario.steps = 400;
    scenario.lr = 0.05;
    const RunResult result = run(scenario);
    ASSERT_FALSE(result.error) << result.error->message;
    auto config = make_run(scenario);
    const auto& global = dynamic_cast<QuadraticCompute&>(*config.evaluator);
    EXPECT_LT((result.z.read() - global.optimum()).abs().max().item<double>(), 5e-3);
  }
}

// A checkpoint of a moment with messages in flight: going on from it gives the same bits.
TEST(VirtualRun, ResumeGivesTheSameBits) {
  for (const std::string preset : {"ar", "sgp", "osgp"}) {
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    scenario.ranks = 5;
    scenario.steps = 40;
    scenario.momentum = 0.9;
    scenario.lr = 0.02;
    scenario.folder = fresh_folder("resume-" + preset);
    const RunResult straight = run(scenario);
    ASSERT_FALSE(straight.error) << straight.error->message;

    auto checkpoint = read_checkpoint(scenario.folder + "/epoch-0002");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    const std::vector<Step> behind = checkpoint->steps();
    RunConfig again = make_run(scenario);
    again.resume = std::move(*checkpoint);
    const auto observer = std::make_shared<Quiet>();
    const RunResult resumed = run_virtual(std::move(again), observer);
    ASSERT_FALSE(resumed.error) << resumed.error->message;
    // Every step is reported once, with figures of its own.
    std::map<Rank, Step> next;
    for (Rank r = 0; r < 5; ++r) next[r] = behind[static_cast<std::size_t>(r)];
    for (const StepReport& report : observer->steps) {
      EXPECT_EQ(report.step, next[report.rank]++) << "rank " << report.rank;
      EXPECT_GT(report.loss, 0);
    }
    EXPECT_EQ(resumed.ledger.samples, straight.ledger.samples);
    EXPECT_TRUE(at::equal(straight.z.read(), resumed.z.read()));
    EXPECT_EQ(resumed.ledger.produced, straight.ledger.produced);
    EXPECT_EQ(resumed.ledger.committed, straight.ledger.committed);
    EXPECT_NEAR(resumed.weight_sum, 5, 1e-12);
  }
}

// Longer than planned: what was finished goes on.
TEST(VirtualRun, AFinishedRunCanBeExtended) {
  for (const auto& [preset, tau] : std::vector<std::pair<std::string, std::string>>{
           {"ar", ""}, {"sgp", ""}, {"osgp", "0"}, {"osgp", "2"}}) {
    SCOPED_TRACE(preset + tau);
    Scenario scenario;
    scenario.preset = preset;
    if (!tau.empty()) scenario.set = {{"staleness", tau}};
    scenario.steps = 20;
    scenario.folder = fresh_folder("extend-" + preset + tau);
    ASSERT_FALSE(run(scenario).error);
    auto checkpoint = read_checkpoint(scenario.folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    scenario.steps = 30;
    RunConfig longer = make_run(scenario);
    longer.resume = std::move(*checkpoint);
    const RunResult result = run_virtual(std::move(longer), std::make_shared<Quiet>());
    ASSERT_FALSE(result.error) << result.error->message;
    EXPECT_EQ(result.ledger.produced, 4 * 30);
    EXPECT_EQ(result.steps, std::vector<Step>(4, 30));
    EXPECT_NEAR(result.weight_sum, 4, 1e-9);
    EXPECT_GT(result.ledger.sent, 4 * 3) << "the ranks stopped talking to each other";
  }
}

// A compute that fails at one step.
class Failing : public Compute {
 public:
  std::int64_t dimension() const override { return 4; }
  FrozenTensor initial_parameters() const override { return FrozenTensor::freeze(at::zeros({4})); }
  FrozenTensor initial_buffers() const override { return {}; }
  Gradient gradient(GradientRequest request) override {
    Gradient gradient;
    gradient.step = request.step;
    gradient.error = "rank 2: the disk is on fire";
    return gradient;
  }
  Expected<Evaluation> evaluate(const FrozenTensor&, const FrozenTensor&) override {
    return Evaluation{};
  }
};

TEST(VirtualRun, AFailingWorkerEndsTheRunWithItsReason) {
  Scenario scenario;
  RunConfig config = make_run(scenario);
  scenario.dimension = 4;
  config = make_run(scenario);
  config.computes[2] = std::make_shared<Failing>();
  const auto observer = std::make_shared<Quiet>();
  const RunResult result = run_virtual(std::move(config), observer);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->message, "rank 2: the disk is on fire");
  EXPECT_EQ(observer->ends, 1);
}

// A worker that never answers: the run ends by its patience, not never.
TEST(VirtualRun, ARankThatHangsEndsTheRunInBoundedTime) {
  Scenario scenario;
  scenario.delay = "rank=1:900000s";
  RunConfig config = make_run(scenario);
  config.patience = std::chrono::seconds(60);
  const RunResult result = run_virtual(std::move(config), std::make_shared<Quiet>());
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->code, Errc::timeout);
  EXPECT_NE(result.error->message.find("no rank made progress for 60 s"), std::string::npos)
      << result.error->message;
}

// The same actors on real threads end with the same bits as in virtual time.
TEST(VirtualRun, RealThreadsGiveTheSameBits) {
  for (const std::string preset : {"ar", "sgp", "osgp"}) {
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    scenario.momentum = 0.9;
    scenario.delay = "lognormal=-8:1";
    const RunResult expected = run(scenario);

    struct Waiting : Quiet {
      void on_end(RunResult result) override { promise.set_value(std::move(result)); }
      std::promise<RunResult> promise;
    };
    const auto observer = std::make_shared<Waiting>();
    auto future = observer->promise.get_future();
    Runtime runtime(make_run(scenario), observer);
    ASSERT_EQ(future.wait_for(std::chrono::seconds(120)), std::future_status::ready);
    const RunResult real = future.get();
    ASSERT_FALSE(real.error) << real.error->message;
    EXPECT_TRUE(at::equal(expected.z.read(), real.z.read()));
    EXPECT_EQ(real.ledger.pending(), 0);
  }
}

}  // namespace
}  // namespace grapevine
