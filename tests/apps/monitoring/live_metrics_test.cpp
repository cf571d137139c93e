// The metrics that come from the figures of ranks, as the endpoint serves them.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "apps/monitoring/metrics_endpoint.hpp"
#include "tests/apps/monitoring/scrape.hpp"

namespace grapevine {
namespace live_metrics_test {

std::unique_ptr<MetricsEndpoint> make_endpoint(std::int64_t workers, std::int64_t ranks) {
  auto endpoint = MetricsEndpoint::create(
      {"127.0.0.1", 0, ""}, {"sgp", "lenet", "glyphs", "inproc", "1.2.3", workers, ranks});
  EXPECT_TRUE(endpoint.ok()) << endpoint.error().message;
  return *std::move(endpoint);
}

void expect_line(const std::string& text, const std::string& line) {
  EXPECT_NE(text.find("\n" + line + "\n"), std::string::npos) << line << "\nin\n" << text;
}

RankFigures figures(Rank rank, std::int64_t produced, std::int64_t applied, std::int64_t dropped) {
  RankFigures figures;
  figures.rank = rank;
  figures.ledger.produced = produced;
  figures.ledger.committed = applied;
  figures.ledger.dropped = dropped;
  return figures;
}

TEST(LiveMetrics, ContributionsAreSummedOverRanks) {
  const auto endpoint = make_endpoint(2, 2);
  endpoint->on_figures(figures(0, 10, 7, 1));
  endpoint->on_figures(figures(1, 20, 15, 0));
  endpoint->on_figures(figures(0, 12, 10, 1));  // in place of the first
  const std::string text = scrape(*endpoint);
  expect_line(text, "grapevine_contributions_total{state=\"produced\"} 32");
  expect_line(text, "grapevine_contributions_total{state=\"applied\"} 25");
  expect_line(text, "grapevine_contributions_total{state=\"dropped\"} 1");
  expect_line(text, "grapevine_contributions_total{state=\"destroyed\"} 0");
  expect_line(text, "grapevine_contributions{state=\"pending\"} 6");
}

TEST(LiveMetrics, WhatALostRankHadNotAppliedIsDestroyed) {
  const auto endpoint = make_endpoint(2, 2);
  endpoint->on_figures(figures(0, 10, 7, 1));
  endpoint->on_figures(figures(1, 20, 15, 0));
  endpoint->on_rank_lost(1);
  endpoint->on_rank_lost(1);
  endpoint->on_figures(figures(1, 100, 0, 0));  // too late
  const std::string text = scrape(*endpoint);
  expect_line(text, "grapevine_contributions_total{state=\"destroyed\"} 5");
  expect_line(text, "grapevine_contributions_total{state=\"produced\"} 30");
  expect_line(text, "grapevine_contributions{state=\"pending\"} 2");
  expect_line(text, "grapevine_lost_ranks 1");
}

TEST(LiveMetrics, StalenessIsAHistogramOfAllRanks) {
  const auto endpoint = make_endpoint(2, 2);
  RankFigures zero = figures(0, 1, 1, 0), one = figures(1, 1, 1, 0);
  zero.ledger.staleness = {{0, 4}, {5, 1}};
  one.ledger.staleness = {{2, 2}, {5000, 1}};
  endpoint->on_figures(zero);
  endpoint->on_figures(one);
  zero.ledger.staleness[5] = 3;
  endpoint->on_figures(zero);
  const std::string text = scrape(*endpoint);
  expect_line(text, "grapevine_update_staleness_bucket{le=\"0\"} 4");
  expect_line(text, "grapevine_update_staleness_bucket{le=\"1\"} 4");
  expect_line(text, "grapevine_update_staleness_bucket{le=\"2\"} 6");
  expect_line(text, "grapevine_update_staleness_bucket{le=\"4\"} 6");
  expect_line(text, "grapevine_update_staleness_bucket{le=\"6\"} 9");
  expect_line(text, "grapevine_update_staleness_bucket{le=\"1024\"} 9");
  expect_line(text, "grapevine_update_staleness_bucket{le=\"+Inf\"} 10");
  expect_line(text, "grapevine_update_staleness_count 10");
  expect_line(text, "grapevine_update_staleness_sum 5019");
}

TEST(LiveMetrics, PairsOfRanksHaveLabels) {
  const auto endpoint = make_endpoint(2, kMostRanksWithPairs);
  RankFigures rank = figures(1, 1, 1, 0);
  rank.view = 3;
  rank.waited_ns = {{RankFigures::kNobody, 250'000'000}, {0, 1'500'000'000}};
  rank.sent_bytes = {{0, 4096}, {2, 8}};
  endpoint->on_figures(rank);
  rank.sent_bytes[2] = 16;
  endpoint->on_figures(rank);
  const std::string text = scrape(*endpoint);
  expect_line(text, "grapevine_wait_seconds_total{awaited=\"none\",rank=\"1\"} 0.25");
  expect_line(text, "grapevine_wait_seconds_total{awaited=\"0\",rank=\"1\"} 1.5");
  expect_line(text, "grapevine_sent_bytes_total{from=\"1\",to=\"0\"} 4096");
  expect_line(text, "grapevine_sent_bytes_total{from=\"1\",to=\"2\"} 16");
  expect_line(text, "grapevine_view_number{rank=\"1\"} 3");
}

TEST(LiveMetrics, ManyRanksHaveOneSeriesEach) {
  const auto endpoint = make_endpoint(2, kMostRanksWithPairs + 1);
  RankFigures rank = figures(1, 1, 1, 0);
  rank.waited_ns = {{RankFigures::kNobody, 250'000'000}, {0, 1'500'000'000}};
  rank.sent_bytes = {{0, 4096}, {2, 8}};
  endpoint->on_figures(rank);
  const std::string text = scrape(*endpoint);
  expect_line(text, "grapevine_wait_seconds_total{awaited=\"all\",rank=\"1\"} 1.75");
  expect_line(text, "grapevine_sent_bytes_total{from=\"1\",to=\"all\"} 4104");
}

TEST(LiveMetrics, GoodputIsThereOnceItIsKnown) {
  const auto endpoint = make_endpoint(2, 2);
  endpoint->on_figures(figures(0, 0, 0, 0));
  EXPECT_EQ(scrape(*endpoint).find("\ngrapevine_goodput_ratio "), std::string::npos);
  StepReport report;
  report.samples = 32;
  report.batch_time_s = 0.5;
  for (report.step = 0; report.step < 40; ++report.step) endpoint->on_step(report);
  endpoint->on_figures(figures(0, 40, 40, 0));
  expect_line(scrape(*endpoint), "grapevine_goodput_ratio 0.5");  // the other worker takes no step
}

}  // namespace live_metrics_test
}  // namespace grapevine
