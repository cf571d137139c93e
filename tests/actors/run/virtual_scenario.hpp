// A training run of a quadratic in virtual time, as tests vary it.
#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/run/simulation/run_virtual.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "gpu/quadratic_compute.hpp"
#include "messages/random.hpp"
#include "net/inproc/inproc.hpp"

namespace grapevine {
namespace virtual_run_test {

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

// On real threads: the end of the run, for the main thread.
struct Waiting : Quiet {
  void on_end(RunResult result) override { promise.set_value(std::move(result)); }
  // Once the run has ended. Call it once.
  RunResult wait(std::chrono::seconds timeout = std::chrono::seconds(120)) {
    auto future = promise.get_future();
    const bool ended = future.wait_for(timeout) == std::future_status::ready;
    EXPECT_TRUE(ended);
    RunResult never;
    never.error = Error{Errc::timeout, "the run does not end"};
    return ended ? future.get() : never;
  }
  std::promise<RunResult> promise;
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

inline RunConfig make_run(const Scenario& scenario) {
  auto wiring = find_preset(scenario.preset)->wiring;
  for (const auto& [key, value] : scenario.set) EXPECT_TRUE(wiring.set(key, value));
  LrConfig rate;
  rate.lr = scenario.lr;
  OptimizerConfig optimizer;
  optimizer.momentum = scenario.momentum;
  RunConfig run;
  const Plan plan = *resolve(wiring);
  run.ranks = all_ranks_of(plan, scenario.ranks);
  run.seed = scenario.seed;
  run.parts = *make_parts(plan, {scenario.steps, scenario.steps_per_epoch}, *LrSchedule::make(rate),
                          optimizer, scenario.ranks);
  if (changes_members(plan)) run.spare_ranks = 3;
  run.transport = make_inproc_transport(run.world_size());
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
  run.delay = *parse_delay(scenario.delay, scenario.ranks, scenario.seed, plan.servers);
  run.checkpoint_folder = scenario.folder;
  run.checkpoint_every_epochs = 1;
  run.state_part_bytes = 512;  // several windows of parts, as large models have
  return run;
}

// Training ends after a number of samples, however many ranks share them.
inline void end_by_samples(RunConfig& config) {
  auto parts = std::make_shared<SharedParts>(*config.parts);
  parts->horizon.by_samples = true;
  config.parts = parts;
}

// Some of the `ranks` ranks from `first` on die and return, at any moment: also while members
// change for another, and the same rank twice. A step takes about 18 ms.
inline void add_deaths_and_returns(RunConfig& config, Rng& rng, int lives, std::int32_t ranks,
                                   Rank first = 0) {
  for (int i = 0; i < lives; ++i) {
    const auto rank = static_cast<Rank>(first + rng() % static_cast<std::uint64_t>(ranks));
    const Duration death =
        std::chrono::milliseconds(200 * i) + std::chrono::microseconds(rng() % 150'000);
    config.deaths.push_back({rank, death});
    config.returns.push_back({rank, death + std::chrono::microseconds(1 + rng() % 40'000)});
  }
}

// Every gradient is in a model, dropped by name, or gone with its rank, and no message is missing.
inline void expect_all_accounted(const RunResult& result) {
  EXPECT_EQ(result.ledger.produced,
            result.ledger.committed + result.ledger.dropped + result.destroyed);
  EXPECT_EQ(result.ledger.sent, result.ledger.received);
  EXPECT_TRUE(at::isfinite(result.z.read()).all().item<bool>());
}

inline RunResult run(const Scenario& scenario,
                     std::shared_ptr<Quiet> observer = std::make_shared<Quiet>()) {
  return run_virtual(make_run(scenario), observer);
}

// The run ends well, or the test says why not.
inline RunResult run_well(const Scenario& scenario,
                          std::shared_ptr<Quiet> observer = std::make_shared<Quiet>()) {
  RunResult result = run(scenario, observer);
  EXPECT_FALSE(result.error) << result.error->message;
  return result;
}

inline const std::vector<std::string> kPresets = {"ar",
                                                  "sgp",
                                                  "osgp",
                                                  "d-psgd",
                                                  "ad-psgd",
                                                  "eager-solo",
                                                  "eager-majority",
                                                  "topk",
                                                  "topk2",
                                                  "gtopk",
                                                  "choco-sgd",
                                                  "eager-quorum",
                                                  "wagma",
                                                  "gem",
                                                  "downpour",
                                                  "adaptive",
                                                  "easgd",
                                                  "local-sgd",
                                                  "diloco",
                                                  "slowmo",
                                                  "sparseloco",
                                                  "noloco",
                                                  "qg-dsgdm",
                                                  "gradient-tracking",
                                                  "decoupled-diloco"};
// Those whose ranks wait for each other: their result does not depend on time.
inline const std::vector<std::string> kSynchronous = {
    "ar",     "sgp",        "osgp",   "d-psgd",   "local-sgd",
    "diloco", "topk",       "topk2",  "gtopk",    "choco-sgd",
    "slowmo", "sparseloco", "noloco", "qg-dsgdm", "gradient-tracking"};
inline const std::vector<std::string> kServers = {"gem", "downpour", "adaptive", "easgd"};

inline std::string fresh_folder(const std::string& name) {
  const auto path = std::filesystem::path(testing::TempDir()) / name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path.string();
}

}  // namespace virtual_run_test
}  // namespace grapevine
