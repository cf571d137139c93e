// A run that goes on from a checkpoint ends in the state of the run that was never interrupted: not
// only the model, but all that its last checkpoint holds.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "actors/run/simulation/run_virtual.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "gpu/quadratic_compute.hpp"
#include "net/inproc/inproc.hpp"

namespace grapevine {
namespace resumed_run_test {

struct Heard : RunObserver {
  void on_step(const StepReport& report) override { steps.push_back(report); }
  void on_validation(Epoch epoch, const Evaluation&) override { validated.push_back(epoch); }
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string& message) override { ADD_FAILURE() << message; }
  void on_end(RunResult) override {}

  std::vector<StepReport> steps;
  std::vector<Epoch> validated;
};

constexpr std::int32_t kRanks = 5;

struct Case {
  std::string preset;
  std::vector<std::pair<std::string, std::string>> set;
};

std::unique_ptr<Compute> quadratic(Rank rank) {
  QuadraticConfig config;
  config.dimension = 16;
  config.rank = rank;
  config.ranks = kRanks;
  config.seed = 3;
  config.heterogeneity = 1;
  return std::move(*QuadraticCompute::make(config));
}

RunConfig make_run(const Case& c, const std::string& folder) {
  auto wiring = find_preset(c.preset)->wiring;
  for (const auto& [key, value] : c.set) EXPECT_TRUE(wiring.set(key, value));
  LrConfig rate;
  rate.lr = 0.02;
  OptimizerConfig optimizer;
  optimizer.momentum = 0.9;
  RunConfig run;
  run.ranks = kRanks;
  run.seed = 3;
  run.parts = *make_parts(*resolve(wiring), {40, 10}, *LrSchedule::make(rate), optimizer, kRanks);
  run.transport = make_inproc_transport(kRanks);
  for (Rank rank = 0; rank < kRanks; ++rank) run.computes.push_back(quadratic(rank));
  run.evaluator = quadratic(0);
  run.delay = *parse_delay("lognormal=-4:1", kRanks, 3);
  run.checkpoint_folder = folder;
  run.checkpoint_every_epochs = 1;
  return run;
}

std::string fresh_folder(const std::string& name) {
  const auto path = std::filesystem::path(testing::TempDir()) / name;
  std::filesystem::remove_all(path);
  std::filesystem::create_directories(path);
  return path.string();
}

// Time goes differently where all ranks begin at once; markers count among the bytes, and the run
// that was interrupted took one checkpoint less.
bool may_differ(const std::string& entry) {
  return entry == "elapsed_ns" || entry == "ledger.bytes_sent" || entry == "trace.cut";
}

bool is_same(const StateValue& a, const StateValue& b) {
  if (const auto* tensor = std::get_if<at::Tensor>(&a)) {
    const auto* other = std::get_if<at::Tensor>(&b);
    return other != nullptr && tensor->scalar_type() == other->scalar_type() &&
           at::equal(*tensor, *other);
  }
  if (const auto* number = std::get_if<double>(&a)) {
    const double other = std::get<double>(b);
    return *number == other || (std::isnan(*number) && std::isnan(other));
  }
  if (const auto* text = std::get_if<std::string>(&a)) return *text == std::get<std::string>(b);
  return std::get<std::int64_t>(a) == std::get<std::int64_t>(b);
}

void expect_same(const StateDict& straight, const StateDict& resumed) {
  std::set<std::string> names;
  for (const auto* state : {&straight, &resumed})
    for (const auto& [name, value] : state->entries()) names.insert(name);
  for (const std::string& name : names) {
    if (may_differ(name)) continue;
    SCOPED_TRACE(name);
    const auto a = straight.entries().find(name), b = resumed.entries().find(name);
    ASSERT_TRUE(a != straight.entries().end() && b != resumed.entries().end());
    ASSERT_EQ(a->second.index(), b->second.index());
    EXPECT_TRUE(is_same(a->second, b->second));
  }
}

TEST(ResumedRun, EndsInTheStateOfTheStraightOne) {
  const std::vector<Case> cases = {{"ar", {}},
                                   {"sgp", {}},
                                   {"osgp", {}},
                                   {"local-sgd", {}},
                                   {"topk", {{"compress", "random-k"}, {"density", "0.3"}}},
                                   {"choco-sgd", {{"compress", "random-k"}}}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    SCOPED_TRACE(c.preset);
    const std::string name = "resumed-run-" + std::to_string(i);
    const std::string folder = fresh_folder(name), other = fresh_folder(name + "-again");
    const auto all = std::make_shared<Heard>(), rest = std::make_shared<Heard>();
    const RunResult straight = run_virtual(make_run(c, folder), all);
    ASSERT_FALSE(straight.error) << straight.error->message;
    auto middle = read_checkpoint(folder + "/epoch-0002");
    ASSERT_TRUE(middle.ok()) << middle.error().message;
    const double elapsed = to_seconds(middle->elapsed());
    RunConfig again = make_run(c, other);
    again.resume = std::move(*middle);
    const RunResult resumed = run_virtual(std::move(again), rest);
    ASSERT_FALSE(resumed.error) << resumed.error->message;

    const auto a = read_checkpoint(folder), b = read_checkpoint(other);
    ASSERT_TRUE(a.ok() && b.ok());
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      SCOPED_TRACE("rank " + std::to_string(rank));
      expect_same(a->ranks[rank], b->ranks[rank]);
    }
    EXPECT_EQ(all->validated, (std::vector<Epoch>{0, 1, 2, 3}));
    EXPECT_EQ(rest->validated, (std::vector<Epoch>{2, 3})) << "epochs that were validated before";
    EXPECT_GT(elapsed, 0);
    for (const StepReport& report : rest->steps)
      EXPECT_GE(report.time_s, 0.8 * elapsed) << "the time before the checkpoint is part of it";
  }
}

}  // namespace resumed_run_test
}  // namespace grapevine
