// The trace of a run tells what the run itself has counted, and what theory says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "messages/trace/merged_trace.hpp"
#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace virtual_run_test {

// A run that leaves its trace in the scenario's folder.
RunConfig traced(const Scenario& scenario, std::int32_t part = 0) {
  RunConfig run = make_run(scenario);
  run.trace.folder = scenario.folder + "/trace";
  std::filesystem::create_directories(run.trace.folder);
  run.trace.header.part = part;
  run.trace.header.run = 100 + static_cast<std::uint64_t>(part);
  return run;
}

struct Figures {
  Ledger ledger;
  std::vector<TraceRecord> records;

  explicit Figures(const std::string& folder) {
    auto trace = MergedTrace::open(folder);
    EXPECT_TRUE(trace.ok()) << trace.error().message;
    if (!trace) return;
    while (const TraceRecord* record = trace->next()) {
      records.push_back(*record);
      Event event;
      event.kind = record->kind;
      event.staleness = record->staleness;
      event.bytes = record->bytes;
      ledger.count(event);
    }
    EXPECT_EQ(trace->missing(), std::vector<std::string>{});
  }
};

RunResult run_traced(const Scenario& scenario) {
  RunResult result = run_virtual(traced(scenario), std::make_shared<Quiet>());
  EXPECT_FALSE(result.error) << result.error->message;
  return result;
}

void expect_same(const Ledger& trace, const Ledger& run) {
  EXPECT_EQ(trace.produced, run.produced);
  EXPECT_EQ(trace.committed, run.committed);
  EXPECT_EQ(trace.dropped, run.dropped);
  EXPECT_EQ(trace.staleness, run.staleness);
  EXPECT_EQ(trace.contributed, run.contributed);
  EXPECT_EQ(trace.sent, run.sent + run.sent_before);
}

// Whatever a message causes comes after it, and each gradient and each wait has both its ends.
void expect_order(const std::vector<TraceRecord>& records) {
  using Name = std::tuple<Rank, std::uint64_t>;
  std::set<Name> sent, received;
  std::map<Rank, bool> waits;
  std::map<Rank, Step> asked;
  for (const TraceRecord& r : records) {
    switch (r.kind) {
      case EventKind::sent:
        EXPECT_TRUE(sent.insert({r.rank, r.sequence}).second);
        EXPECT_NE(r.payload, PayloadKind::none);
        break;
      case EventKind::received:
        EXPECT_EQ(sent.count({r.peer, r.sequence}), 1U) << "received before it was sent";
        received.insert({r.peer, r.sequence});
        break;
      case EventKind::wait_begin:
        EXPECT_FALSE(std::exchange(waits[r.rank], true));
        break;
      case EventKind::wait_end:
        EXPECT_TRUE(std::exchange(waits[r.rank], false));
        if (r.peer >= 0) {
          EXPECT_EQ(received.count({r.peer, r.sequence}), 1U) << "released by nothing";
        }
        break;
      case EventKind::asked:
        asked[r.rank] = r.step;
        break;
      case EventKind::produced:
        ASSERT_EQ(asked.count(r.rank), 1U);
        EXPECT_EQ(asked[r.rank], r.step);
        break;
      default:
        break;
    }
  }
}

TEST(TracedRun, SaysWhatTheRunHasCounted) {
  for (const std::string& preset : kPresets) {
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    scenario.folder = fresh_folder("traced-" + preset);
    const RunResult result = run_traced(scenario);
    const Figures figures(scenario.folder);
    expect_same(figures.ledger, result.ledger);
    expect_order(figures.records);
    EXPECT_EQ(figures.records.size(), result.trace_records);
    const auto of_ranks = std::max_element(result.steps.begin(), result.steps.end());
    ASSERT_NE(of_ranks, result.steps.end());
    EXPECT_GE(*of_ranks, scenario.steps);
  }
}

// The staleness of all applied updates but those of a run's first and last steps.
std::set<std::int64_t> steady_staleness(const Figures& figures, Step from, Step to) {
  std::set<std::int64_t> seen;
  for (const TraceRecord& r : figures.records)
    if (r.kind == EventKind::applied && r.step >= from && r.step < to) seen.insert(r.staleness);
  return seen;
}

TEST(TracedRun, SynchronousUpdatesAreNeverStale) {
  for (const char* preset : {"ar", "sgp", "d-psgd", "topk", "gtopk", "local-sgd"}) {
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    scenario.folder = fresh_folder(std::string("theory-") + preset);
    run_traced(scenario);
    EXPECT_EQ(steady_staleness(Figures(scenario.folder), 0, scenario.steps + 1),
              std::set<std::int64_t>{0});
  }
}

// OSGP applies a share one step after it was sent, and tau skipped steps later at most.
TEST(TracedRun, OverlappedGossipIsOneStepStale) {
  Scenario scenario;
  scenario.preset = "osgp";
  scenario.delay = "";
  for (const Step tau : {0, 1, 3}) {
    SCOPED_TRACE(tau);
    scenario.set = {{"staleness", std::to_string(tau)}};
    scenario.folder = fresh_folder("theory-osgp-" + std::to_string(tau));
    run_traced(scenario);
    const auto seen = steady_staleness(Figures(scenario.folder), tau + 2, scenario.steps);
    ASSERT_FALSE(seen.empty());
    EXPECT_GE(*seen.begin(), 0);
    EXPECT_LE(*seen.rbegin(), 1 + tau);
  }
}

// n clients of equal speed keep a server busy: between the gradient of one and its commit, each of
// the others has committed once.
TEST(TracedRun, ASaturatedServerIsStaleByItsOtherClients) {
  for (const std::int32_t n : {2, 5, 8}) {
    SCOPED_TRACE(n);
    Scenario scenario;
    scenario.preset = "downpour";
    scenario.ranks = n;
    scenario.set = {{"local_steps", "1"}, {"servers", "1"}};
    scenario.delay = "";
    for (Rank r = 0; r < n; ++r)
      scenario.delay += (r > 0 ? ",rank=" : "rank=") + std::to_string(r) + ":10ms";
    scenario.folder = fresh_folder("theory-downpour-" + std::to_string(n));
    run_traced(scenario);
    // Of a server the step is its version.
    EXPECT_EQ(steady_staleness(Figures(scenario.folder), 2 * n, n * (scenario.steps - 2)),
              std::set<std::int64_t>{n - 1});
  }
}

// Rank 1 takes three times as long: rank 0 has begun two rounds since, alone, and the third has it.
TEST(TracedRun, APartialSumIsStaleByTheRoundsThatWentOn) {
  Scenario scenario;
  scenario.preset = "eager-solo";
  scenario.ranks = 2;
  scenario.steps = 30;
  scenario.delay = "rank=0:10ms,rank=1:30500us";
  scenario.folder = fresh_folder("theory-eager");
  run_traced(scenario);
  const Figures figures(scenario.folder);
  std::map<Rank, std::set<std::int64_t>> seen;
  for (const TraceRecord& r : figures.records)
    if (r.kind == EventKind::applied && r.step >= 6 && r.time_ns < 250'000'000)
      seen[r.rank].insert(r.staleness);
  EXPECT_EQ(seen[0], std::set<std::int64_t>{0});
  ASSERT_FALSE(seen[1].empty());
  for (const std::int64_t age : seen[1]) EXPECT_TRUE(age == 2 || age == 3) << age;
}

// A run that continues from a checkpoint undoes what came after it, in the trace as in the model.
TEST(TracedRun, AResumedRunIsCountedOnce) {
  for (const std::string preset : {"ar", "sgp", "osgp", "eager-solo", "wagma", "gem", "ad-psgd"}) {
    SCOPED_TRACE(preset);
    Scenario scenario;
    scenario.preset = preset;
    scenario.steps = 40;
    scenario.folder = fresh_folder("traced-resume-" + preset);
    run_traced(scenario);
    auto checkpoint = read_checkpoint(scenario.folder + "/epoch-0002");
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    RunConfig again = traced(scenario, 1);
    again.resume = std::move(*checkpoint);
    const RunResult resumed = run_virtual(std::move(again), std::make_shared<Quiet>());
    ASSERT_FALSE(resumed.error) << resumed.error->message;
    const Figures figures(scenario.folder);
    expect_same(figures.ledger, resumed.ledger);
    std::set<std::tuple<Rank, Step>> produced;
    for (const TraceRecord& r : figures.records)
      if (r.kind == EventKind::committed) produced.insert({r.origin, r.origin_step});
    EXPECT_EQ(static_cast<std::int64_t>(produced.size()), resumed.ledger.committed)
        << "a gradient is counted twice";
  }
}

// With every third step only, both ends of a message are there or none.
TEST(TracedRun, SampledStepsAreWhole) {
  Scenario scenario;
  scenario.folder = fresh_folder("traced-sampled");
  RunConfig run = traced(scenario);
  run.trace.header.sampled = 3;
  ASSERT_FALSE(run_virtual(std::move(run), std::make_shared<Quiet>()).error);
  auto trace = MergedTrace::open(scenario.folder);
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->sampled(), 3);
  std::set<std::tuple<Rank, std::uint64_t>> sent, received;
  while (const TraceRecord* r = trace->next()) {
    if (r->kind == EventKind::sent) sent.insert({r->rank, r->sequence});
    if (r->kind == EventKind::received) received.insert({r->peer, r->sequence});
    if (r->kind == EventKind::step_done) {
      EXPECT_EQ(r->step % 3, 0);
    }
  }
  EXPECT_FALSE(sent.empty());
  EXPECT_EQ(sent, received);
}

// Messages of a stalled link, and of a stalled server, are late in the trace and not lost.
TEST(TracedRun, AStallIsSeenWhereItIs) {
  Scenario scenario;
  scenario.preset = "gem";
  scenario.delay =
      "rank=0:10ms,rank=1:11ms,rank=2:9ms,rank=3:10ms,stall=server:4@10:700ms,"
      "stall=link:1-4@4:400ms,stall=data:2@6:300ms,stall=compute:3@7:200ms";
  scenario.folder = fresh_folder("traced-stall");
  const RunResult result = run_traced(scenario);
  EXPECT_EQ(result.steps, std::vector<Step>(4, scenario.steps));
  const Figures figures(scenario.folder);
  expect_order(figures.records);
  std::map<std::uint64_t, std::int64_t> sent_by_1;
  std::int64_t slowest_link = 0, asked_3 = 0, slowest_3 = 0, data_2 = 0, answered = 0, silence = 0;
  for (const TraceRecord& r : figures.records) {
    if (r.kind == EventKind::sent && r.rank == 1) sent_by_1[r.sequence] = r.time_ns;
    if (r.kind == EventKind::received && r.peer == 1)
      slowest_link = std::max(slowest_link, r.time_ns - sent_by_1[r.sequence]);
    if (r.kind == EventKind::data_wait && r.rank == 2) data_2 = r.duration_ns;
    if (r.kind == EventKind::asked && r.rank == 3) asked_3 = r.time_ns;
    if (r.kind == EventKind::produced && r.rank == 3)
      slowest_3 = std::max(slowest_3, r.time_ns - asked_3);
    if (r.kind == EventKind::sent && r.rank == 4)
      silence = std::max(silence, r.time_ns - std::exchange(answered, r.time_ns));
  }
  EXPECT_EQ(slowest_link, 400'000'000);
  EXPECT_EQ(data_2, 300'000'000);
  EXPECT_EQ(slowest_3, 210'000'000);
  EXPECT_GE(silence, 700'000'000);
}

}  // namespace virtual_run_test
}  // namespace grapevine
