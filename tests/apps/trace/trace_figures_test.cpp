#include "apps/trace/trace_figures.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <sstream>

#include "apps/trace/figures_report.hpp"
#include "tests/apps/trace/trace_folder.hpp"

namespace grapevine {
namespace trace_figures_test {

using testing_apps::record_of;
using testing_apps::TraceFolder;

TraceRecord applied(Rank rank, Rank from, std::int64_t staleness) {
  TraceRecord record = record_of(EventKind::applied, 0, rank, 0);
  record.peer = from;
  record.staleness = staleness;
  return record;
}

TEST(TraceFigures, StalenessIsExact) {
  constexpr std::uint64_t kSeed = 5;
  std::mt19937_64 rng(kSeed);
  std::geometric_distribution<std::int64_t> draw(0.05);
  std::vector<std::int64_t> values;
  TraceFigures figures(4);
  for (int i = 0; i < 3001; ++i) {
    values.push_back(draw(rng));
    figures.add(applied(i % 4, -1, values.back()));
  }
  double sum = 0;
  for (const std::int64_t value : values) sum += static_cast<double>(value);
  std::sort(values.begin(), values.end());
  const StalenessFigures all = figures_of(figures.staleness());
  EXPECT_DOUBLE_EQ(all.mean, sum / 3001) << "seed " << kSeed;
  EXPECT_EQ(all.p50, values[1500]);
  EXPECT_EQ(all.p99, values[2970]) << "nearest rank: 0.99 * 3001 = 2970.99, the 2971st";
  EXPECT_EQ(all.max, values.back());
  EXPECT_EQ(figures.applied(), 3001);
}

// Nearest rank: half of the values reach the lower of two.
TEST(TraceFigures, TheMedianOfTwoIsTheLower) {
  EXPECT_EQ(figures_of({{3, 1}, {9, 1}}).p50, 3);
  EXPECT_EQ(figures_of({{0, 99}, {9, 1}}).p99, 0);
  EXPECT_EQ(figures_of({{0, 98}, {9, 2}}).p99, 9);
}

// --trace-limit: the gradient was produced in a file that is gone.
TEST(TraceFigures, NoContributionIsPendingTwice) {
  TraceFigures figures(2);
  figures.add(record_of(EventKind::committed, 0, 0, 0));
  figures.add(record_of(EventKind::produced, 0, 1, 0));
  EXPECT_EQ(figures.contributions().pending, 1) << "that of rank 1";
}

TEST(TraceFigures, NothingAppliedIsAllZero) {
  const StalenessFigures none = figures_of({});
  EXPECT_EQ(none.mean, 0);
  EXPECT_EQ(none.max, 0);
}

TEST(TraceFigures, EachContributionIsInOnePlace) {
  TraceFigures figures(3);
  for (Rank rank = 0; rank < 3; ++rank)
    for (Step step = 0; step < 5; ++step)
      figures.add(record_of(EventKind::produced, 0, rank, step));
  for (Step step = 0; step < 4; ++step) figures.add(record_of(EventKind::committed, 0, 0, step));
  figures.add(record_of(EventKind::dropped, 0, 1, 0));
  figures.add(record_of(EventKind::committed, 0, 2, 0));
  TraceRecord view = record_of(EventKind::view, 0, 0, 0);
  view.peer = 2;
  figures.add(view);
  const ContributionFigures c = figures.contributions();
  EXPECT_EQ(c.produced, 15);
  EXPECT_EQ(c.applied, 5);
  EXPECT_EQ(c.dropped, 1);
  EXPECT_EQ(c.pending, 1 + 4) << "of ranks 0 and 1";
  EXPECT_EQ(c.destroyed, 4) << "of rank 2, which is lost";
  EXPECT_EQ(c.produced, c.applied + c.pending + c.dropped + c.destroyed);
}

TEST(TraceFigures, EdgesHaveWhatTheirMessagesHad) {
  TraceFigures figures(3);
  for (std::uint64_t i = 1; i <= 100; ++i) {
    const auto at = static_cast<std::int64_t>(1000 * i);
    TraceRecord sent = record_of(EventKind::sent, at, 0, 0);
    sent.peer = i % 4 == 0 ? 2 : 1;
    sent.sequence = i;
    sent.bytes = 10;
    sent.payload = i % 4 == 0 ? PayloadKind::leave : PayloadKind::share;
    figures.add(sent);
    TraceRecord received = record_of(EventKind::received, at + 50, sent.peer, 0);
    received.peer = 0;
    received.sequence = i;
    figures.add(received);
  }
  figures.add(applied(1, 0, 2));
  figures.add(applied(1, 0, 5));
  figures.add(applied(1, -1, 100));  // of no message
  const auto edges = figures.edges();
  ASSERT_EQ(edges.size(), 2U);
  EXPECT_EQ(edges[0].to, 1);
  EXPECT_EQ(edges[0].messages, 75);
  EXPECT_EQ(edges[0].bytes, 750U);
  EXPECT_EQ(edges[0].applied, 2);
  EXPECT_EQ(edges[0].staleness_sum, 7);
  EXPECT_EQ(edges[0].latency_ns.count(), 75U);
  EXPECT_EQ(edges[0].latency_ns.quantile(0.99), 50);
  EXPECT_EQ(edges[1].messages, 25);
  EXPECT_EQ(figures.messages(), 100);
  EXPECT_EQ(figures.bytes(), 1000U);
  const auto kinds = figures.kinds();
  ASSERT_EQ(kinds.size(), 2U);
  EXPECT_EQ(kinds[0].first, PayloadKind::share);
  EXPECT_EQ(kinds[0].second.messages, 75);
  EXPECT_EQ(kinds[1].second.bytes, 250U);
}

TEST(TraceFigures, ARunBetweenIsNoLatency) {
  TraceFigures figures(2);
  for (const std::int64_t sent : {100, 5000}) {
    TraceRecord message = record_of(EventKind::sent, sent, 0, 0);
    message.peer = 1;
    message.sequence = static_cast<std::uint64_t>(sent);
    figures.add(message);
    figures.add(record_of(EventKind::resumed, 4000, 1, 0));
    message = record_of(EventKind::received, sent == 100 ? 4001 : 5010, 1, 0);
    message.peer = 0;
    message.sequence = static_cast<std::uint64_t>(sent);
    figures.add(message);
  }
  ASSERT_EQ(figures.edges()[0].latency_ns.count(), 1U);
  EXPECT_EQ(figures.edges()[0].latency_ns.quantile(1), 10);
}

// The first gap is 4 s, the second 10 s; each rank records that it is resumed.
TEST(TraceFigures, ThePausesOfARunAreNoTimeOfTraining) {
  constexpr std::int64_t kSecond = 1'000'000'000;
  TraceFigures figures(2);
  figures.add(record_of(EventKind::step_done, 3 * kSecond, 0, 0));
  EXPECT_EQ(figures.paused_ns(), 0);
  for (const std::int64_t s : {7, 20}) {
    for (Rank rank = 0; rank < 2; ++rank)
      figures.add(record_of(EventKind::resumed, s * kSecond, rank, 1));
    figures.add(record_of(EventKind::step_done, (s + 3) * kSecond, 0, 1));
  }
  EXPECT_EQ(figures.trained_ns(), 9 * kSecond);
  EXPECT_EQ(figures.paused_ns(), 14 * kSecond);
}

TEST(TrainingClock, GivesTheTimeOfAnyMomentOnceAllRecordsAreThere) {
  TrainingClock clock;
  for (const auto& [kind, ns] : std::vector<std::pair<EventKind, std::int64_t>>{
           {EventKind::step_done, 30}, {EventKind::resumed, 70}, {EventKind::step_done, 80}})
    clock.of(record_of(kind, ns, 0, 0));
  EXPECT_EQ(clock.at(20), 20);
  EXPECT_EQ(clock.at(30), 30);
  EXPECT_EQ(clock.at(50), 30) << "in the pause";
  EXPECT_EQ(clock.at(75), 35);
}

// ---- for people ----

std::string printed(const TraceFolder& folder, bool unicode) {
  folder.write();
  auto trace = MergedTrace::open(folder.path());
  EXPECT_TRUE(trace.ok()) << trace.error().message;
  TraceFigures figures(trace->ranks());
  while (const TraceRecord* record = trace->next()) figures.add(*record);
  TerminalStyle style;
  style.unicode = unicode;
  std::ostringstream out;
  print_figures(*trace, figures, style, out);
  return out.str();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(TraceFigures, HistogramIsDrawnInEighths) {
  TraceFolder folder(2);
  for (int i = 0; i < 80; ++i) folder.add(EventKind::applied, i, 0, i).staleness = i < 79 ? 0 : 1;
  const std::string text = printed(folder, true);
  EXPECT_TRUE(has(text, "0  79   98.8%  ████████████████████████████████████████\n")) << text;
  EXPECT_TRUE(has(text, "1   1    1.2%  ▌\n")) << "40 columns / 79: four eighths\n" << text;
  const std::string plain = printed(folder, false);
  EXPECT_TRUE(has(plain, "0  79   98.8%  ########################################\n")) << plain;
}

TEST(TraceFigures, ManyValuesShareTheLinesOfTheHistogram) {
  TraceFolder folder(1);
  for (int i = 0; i < 1000; ++i) folder.add(EventKind::applied, i, 0, i).staleness = i;
  const std::string text = printed(folder, false);
  EXPECT_TRUE(has(text, "\n   0-83  84    8.4%")) << text;
  EXPECT_TRUE(has(text, "\n924-999  76    7.6%")) << text;
}

TEST(TraceFigures, TablesAreLimitedAndSayHowMuchIsLeftOut) {
  constexpr Rank kRanks = 70;
  TraceFolder folder(kRanks);
  for (Rank rank = 0; rank < kRanks; ++rank)
    folder.message(rank, 0, 10, (rank + 1) % kRanks, 0, 20, PayloadKind::share, 0,
                   rank == 40 ? 5000 : 100);
  const std::string text = printed(folder, false);
  EXPECT_TRUE(has(text, "and 6 more ranks")) << text;
  EXPECT_TRUE(has(text, "and 54 more edges with 5.4 kB")) << text;
  const std::string edges = text.substr(text.find("Edges"));
  EXPECT_TRUE(has(edges.substr(0, edges.find("5.0 kB")), "40")) << "most bytes first\n" << edges;
  EXPECT_EQ(edges.find("100 B") > edges.find("5.0 kB"), true);
}

}  // namespace trace_figures_test
}  // namespace grapevine
