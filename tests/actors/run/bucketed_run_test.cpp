// All-reduce in buckets among the shipped actors, in virtual time: the bits of the exchange of
// whole gradients, of which the last parts leave while the workers still compute the first.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/run/simulation/watched_compute.hpp"
#include "messages/trace/merged_trace.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace bucketed_run_test {

using virtual_run_test::fresh_folder;
using virtual_run_test::make_run;
using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

constexpr Duration kComputing = std::chrono::milliseconds(30);

Scenario scenario_of(const std::string& all_reduce, const std::string& bucket_bytes,
                     std::int32_t ranks = 5) {
  Scenario scenario;
  scenario.preset = "ar";
  scenario.set = {{"all_reduce", all_reduce}, {"bucket_bytes", bucket_bytes}};
  scenario.ranks = ranks;
  scenario.momentum = 0.9;
  scenario.lr = 0.02;
  scenario.noise = 0.1;
  return scenario;
}

struct Outcome {
  RunResult result;
  std::vector<StepReport> steps;
};

Outcome outcome_of(RunConfig config) {
  const auto observer = std::make_shared<Quiet>();
  RunResult result = run_virtual(std::move(config), observer);
  EXPECT_FALSE(result.error) << result.error->message;
  return {std::move(result), observer->steps};
}

void expect_accounted(const RunResult& result) {
  EXPECT_EQ(result.ledger.produced,
            result.ledger.committed + result.ledger.dropped + result.destroyed);
  EXPECT_EQ(result.ledger.sent, result.ledger.received);
}

// Parameters and losses, with stragglers: at every number of ranks where each element is added up
// in the order of ranks, and of two around a ring.
TEST(BucketedRun, GivesTheBitsOfWholeGradients) {
  for (const auto& [all_reduce, ranks] : std::vector<std::pair<std::string, std::int32_t>>{
           {"direct", 5}, {"direct", 3}, {"ring", 2}, {"auto", 5}})
    for (const std::string bytes : {"4", "12", "24"}) {
      SCOPED_TRACE(all_reduce + ", ranks=" + std::to_string(ranks) + ", bytes=" + bytes);
      const Outcome whole = outcome_of(make_run(scenario_of(all_reduce, "0", ranks)));
      const Outcome parts = outcome_of(make_run(scenario_of(all_reduce, bytes, ranks)));
      EXPECT_TRUE(at::equal(parts.result.z.read(), whole.result.z.read()));
      EXPECT_EQ(parts.result.ledger.produced, whole.result.ledger.produced);
      EXPECT_EQ(parts.result.ledger.committed, whole.result.ledger.produced);
      EXPECT_EQ(parts.result.ledger.samples, whole.result.ledger.samples);
      EXPECT_GT(parts.result.ledger.sent, whole.result.ledger.sent);
      expect_accounted(parts.result);
      std::map<std::pair<Rank, Step>, double> losses;
      for (const StepReport& step : whole.steps) losses[{step.rank, step.step}] = step.loss;
      ASSERT_EQ(parts.steps.size(), whole.steps.size());
      for (const StepReport& step : parts.steps)
        EXPECT_EQ(step.loss, (losses[{step.rank, step.step}]));
    }
}

// In a longer ring the order in which an element is added up depends on its slice.
TEST(BucketedRun, ALongerRingGivesTheSameToRounding) {
  const Outcome whole = outcome_of(make_run(scenario_of("ring", "0")));
  const Outcome parts = outcome_of(make_run(scenario_of("ring", "12")));
  const at::Tensor difference = parts.result.z.read() - whole.result.z.read();
  EXPECT_LT(difference.abs().max().item<double>(), 1e-5);
  expect_accounted(parts.result);
}

// By rank and step, from the trace: when the worker was done, and when chunks of the sum left.
struct Times {
  std::map<std::pair<Rank, Step>, std::int64_t> asked, produced;
  std::map<std::pair<Rank, Step>, std::vector<std::int64_t>> sent;
};

Times times_of(const std::string& bucket_bytes) {
  Scenario scenario = scenario_of("ring", bucket_bytes, 3);
  scenario.delay = "";
  scenario.folder = fresh_folder("bucketed-" + bucket_bytes);
  RunConfig config = make_run(scenario);
  config.delay.set_compute([](Rank, Step) { return kComputing; });
  config.trace.folder = scenario.folder + "/trace";
  std::filesystem::create_directories(config.trace.folder);
  config.trace.header.run = 100;
  static_cast<void>(outcome_of(std::move(config)));
  Times times;
  auto trace = MergedTrace::open(scenario.folder + "/trace");
  EXPECT_TRUE(trace.ok());
  if (!trace) return times;
  while (const TraceRecord* record = trace->next()) {
    const std::pair<Rank, Step> key{record->rank, record->step};
    if (record->kind == EventKind::asked) times.asked[key] = record->time_ns;
    if (record->kind == EventKind::produced) times.produced[key] = record->time_ns;
    if (record->kind == EventKind::sent && record->payload == PayloadKind::chunk)
      times.sent[{record->rank, record->operation}].push_back(record->time_ns);
  }
  return times;
}

TEST(BucketedRun, BucketsLeaveBeforeTheBackwardPassEnds) {
  const std::int64_t pass = kComputing.count();
  // 16 parameters in four buckets, the first of which waits for the end of the pass.
  const Times parts = times_of("16");
  ASSERT_EQ(parts.produced.size(), 60U);
  for (const auto& [key, produced] : parts.produced) {
    SCOPED_TRACE("rank " + std::to_string(key.first) + ", step " + std::to_string(key.second));
    ASSERT_EQ(parts.sent.count(key), 1U);
    const std::vector<std::int64_t>& sent = parts.sent.at(key);
    EXPECT_EQ(produced - parts.asked.at(key), pass);
    // The last quarter is complete half-way: the forward pass takes a third of the time.
    EXPECT_EQ(sent.front() - parts.asked.at(key), pass / 2);
    const auto early = std::count_if(sent.begin(), sent.end(),
                                     [end = produced](std::int64_t time) { return time < end; });
    EXPECT_EQ(early, static_cast<std::ptrdiff_t>(sent.size() / 4 * 3));
  }
  const Times whole = times_of("0");
  ASSERT_EQ(whole.produced.size(), 60U);
  for (const auto& [key, produced] : whole.produced)
    EXPECT_GE(whole.sent.at(key).front(), produced) << "nothing is known before";
}

TEST(BucketedRun, SameSeedSameTrace) {
  for (const std::string all_reduce : {"ring", "direct", "auto"}) {
    const auto once = [&] {
      RunConfig config = make_run(scenario_of(all_reduce, "12"));
      config.deaths = {{2, std::chrono::milliseconds(120)}};
      return outcome_of(std::move(config)).result;
    };
    const RunResult first = once(), second = once();
    EXPECT_EQ(first.lost, std::vector<Rank>{2});
    EXPECT_EQ(first.trace_hash, second.trace_hash);
    EXPECT_TRUE(at::equal(first.z.read(), second.z.read()));
    expect_accounted(first);
  }
}

// At whatever moment of an open round a rank dies, the others do it again: with the same members
// and steps as whole gradients, the same bits.
TEST(BucketedRun, ARoundIsDoneAgainWhereARankDiesAmidIt) {
  std::vector<std::int64_t> sent;
  for (int ms = 0; ms < 30; ms += 2) {
    SCOPED_TRACE("after " + std::to_string(ms) + " ms");
    const auto run = [&](const std::string& bytes) {
      Scenario scenario = scenario_of("direct", bytes, 4);
      scenario.delay = "";
      RunConfig config = make_run(scenario);
      config.delay.set_compute([](Rank rank, Step) { return kComputing + rank * kComputing / 10; });
      // In step 5, of 39 ms each.
      config.deaths = {
          {1, std::chrono::milliseconds(5 * 39 + ms) + std::chrono::microseconds(500)}};
      return outcome_of(std::move(config)).result;
    };
    const RunResult parts = run("16"), whole = run("0");
    EXPECT_EQ(parts.lost, std::vector<Rank>{1});
    expect_accounted(parts);
    EXPECT_EQ(parts.steps, whole.steps);
    EXPECT_TRUE(at::equal(parts.z.read(), whole.z.read()));
    sent.push_back(parts.ledger.sent + parts.ledger.sent_before);
  }
  EXPECT_GT(sent.back(), sent.front()) << "no bucket was open: nothing was done again";
}

// A worker whose parts are known at once, and the rest much later.
TEST(BucketedRun, ResumesFromACheckpointAmidAnOpenRound) {
  int open = 0;
  for (const std::string all_reduce : {"ring", "direct", "auto"}) {
    SCOPED_TRACE(all_reduce);
    Scenario scenario = scenario_of(all_reduce, "12");
    scenario.steps = 40;
    scenario.folder = fresh_folder("bucketed-resume-" + all_reduce);
    const RunResult straight = outcome_of(make_run(scenario)).result;
    for (int epoch = 1; epoch < 4; ++epoch) {
      auto checkpoint = read_checkpoint(scenario.folder + "/epoch-000" + std::to_string(epoch));
      ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
      for (const StateDict& rank : checkpoint->ranks) {
        const StateDict reduction = rank.under("role").under("reduction");
        open += *reduction.integer("given") == 0 && *reduction.integer("open") < 6;
      }
      RunConfig again = make_run(scenario);
      again.resume = std::move(*checkpoint);
      const RunResult resumed = outcome_of(std::move(again)).result;
      EXPECT_TRUE(at::equal(straight.z.read(), resumed.z.read()));
      EXPECT_EQ(resumed.ledger.produced, straight.ledger.produced);
      EXPECT_EQ(resumed.ledger.committed, straight.ledger.committed);
      expect_accounted(resumed);
    }
  }
  EXPECT_GT(open, 0) << "no checkpoint was amid an open round";
}

// The checks of the simulator see the gradient that was handed over, not its first part.
TEST(BucketedRun, WatchersSeeWholeGradients) {
  Scenario scenario = scenario_of("ring", "12", 2);
  scenario.steps = 3;
  std::vector<std::int64_t> sizes;
  RunConfig config = make_run(scenario);
  for (auto& compute : config.computes)
    compute = watched_compute(
        compute, [&](Step, const FrozenTensor& gradient) { sizes.push_back(gradient.numel()); });
  static_cast<void>(outcome_of(std::move(config)));
  EXPECT_EQ(sizes, std::vector<std::int64_t>(6, 16));
}

}  // namespace bucketed_run_test
}  // namespace grapevine
