// The figures of ranks while a run goes on: they add up, and the last ones are those of the end.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/actors/run/virtual_scenario.hpp"

namespace grapevine {
namespace figures_run_test {

using virtual_run_test::Quiet;
using virtual_run_test::Scenario;

struct Watching : Quiet {
  void on_figures(const RankFigures& figures) override { all[figures.rank].push_back(figures); }

  Ledger sum() const {
    Ledger sum;
    for (const auto& [rank, figures] : all) sum.merge(figures.back().ledger);
    return sum;
  }

  std::map<Rank, std::vector<RankFigures>> all;
};

std::uint64_t bytes_of(const RankFigures& figures) {
  std::uint64_t bytes = 0;
  for (const auto& [receiver, sent] : figures.sent_bytes) bytes += sent;
  return bytes;
}

double waited_by(const RankFigures& figures) {
  double seconds = 0;
  for (const auto& [awaited, time_ns] : figures.waited_ns)
    seconds += 1e-9 * static_cast<double>(time_ns);
  return seconds;
}

double exchange_seconds_of(const Watching& watching, Rank rank) {
  double seconds = 0;
  for (const StepReport& report : watching.steps)
    if (report.rank == rank) seconds += report.exchange_time_s;
  return seconds;
}

Scenario scenario_of(const std::string& preset) {
  Scenario scenario;
  scenario.preset = preset;
  scenario.steps = 200;
  scenario.steps_per_epoch = 100;
  return scenario;
}

class FiguresRun : public testing::TestWithParam<std::string> {};

TEST_P(FiguresRun, TheLastOnesEqualTheFinalLedger) {
  const auto watching = std::make_shared<Watching>();
  const RunResult result = virtual_run_test::run_well(scenario_of(GetParam()), watching);
  const Ledger sum = watching->sum();
  EXPECT_EQ(sum.produced, result.ledger.produced);
  EXPECT_EQ(sum.committed, result.ledger.committed);
  EXPECT_EQ(sum.dropped, result.ledger.dropped);
  EXPECT_EQ(sum.samples, result.ledger.samples);
  EXPECT_EQ(sum.sent, result.ledger.sent);
  EXPECT_EQ(sum.received, result.ledger.received);
  EXPECT_EQ(sum.staleness, result.ledger.staleness);
  EXPECT_EQ(sum.contributed, result.ledger.contributed);
  EXPECT_EQ(sum.bytes_sent, result.ledger.bytes_sent);
  for (const auto& [rank, figures] : watching->all) {
    SCOPED_TRACE(rank);
    EXPECT_EQ(bytes_of(figures.back()), figures.back().ledger.bytes_sent);
    EXPECT_GE(waited_by(figures.back()), exchange_seconds_of(*watching, rank) - 1e-6);
    EXPECT_EQ(figures.back().view, 0);
    EXPECT_EQ(figures.back().sent_bytes.count(rank), 0U) << "nothing to itself";
  }
}

// One a second at most, the last step's, and those of the last report.
TEST_P(FiguresRun, TheyGrowAndComeOnceASecond) {
  const auto watching = std::make_shared<Watching>();
  const RunResult result = virtual_run_test::run_well(scenario_of(GetParam()), watching);
  ASSERT_GT(result.seconds, 2);
  ASSERT_EQ(watching->all.size(), GetParam() == "gem" ? 5U : 4U) << "each rank, servers too";
  for (const auto& [rank, figures] : watching->all) {
    SCOPED_TRACE(rank);
    EXPECT_GE(figures.size(), 3U);
    EXPECT_LE(static_cast<double>(figures.size()), result.seconds + 3);
    for (std::size_t i = 1; i < figures.size(); ++i) {
      EXPECT_GE(figures[i].ledger.produced, figures[i - 1].ledger.produced);
      EXPECT_GE(bytes_of(figures[i]), bytes_of(figures[i - 1]));
      EXPECT_GE(waited_by(figures[i]), waited_by(figures[i - 1]));
    }
  }
}

TEST_P(FiguresRun, AreTheSameForTheSameSeed) {
  const auto first = std::make_shared<Watching>(), second = std::make_shared<Watching>();
  virtual_run_test::run_well(scenario_of(GetParam()), first);
  virtual_run_test::run_well(scenario_of(GetParam()), second);
  ASSERT_EQ(first->all.size(), second->all.size());
  for (const auto& [rank, figures] : first->all) {
    ASSERT_EQ(figures.size(), second->all[rank].size());
    for (std::size_t i = 0; i < figures.size(); ++i) {
      EXPECT_EQ(figures[i].waited_ns, second->all[rank][i].waited_ns);
      EXPECT_EQ(figures[i].sent_bytes, second->all[rank][i].sent_bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, FiguresRun,
                         testing::Values("ar", "sgp", "ad-psgd", "eager-majority", "wagma", "gem"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name)
                             if (c == '-') c = '_';
                           return name;
                         });

// Markers of checkpoints are sent, too.
TEST(FiguresOfARun, CountTheBytesOfCheckpoints) {
  Scenario scenario = scenario_of("sgp");
  scenario.folder = virtual_run_test::fresh_folder("figures_of_checkpoints");
  const auto watching = std::make_shared<Watching>();
  const RunResult result = virtual_run_test::run_well(scenario, watching);
  EXPECT_FALSE(watching->checkpoints.empty());
  std::uint64_t bytes = 0;
  for (const auto& [rank, figures] : watching->all) bytes += bytes_of(figures.back());
  EXPECT_EQ(bytes, result.ledger.bytes_sent);
}

// What a lost rank had sent and applied until its last figures is of the run, too.
TEST(FiguresOfARun, ThoseOfALostRankAreInTheResult) {
  RunConfig config = virtual_run_test::make_run(scenario_of("sgp"));
  config.deaths = {{2, std::chrono::milliseconds(2500)}};
  const auto watching = std::make_shared<Watching>();
  const RunResult result = run_virtual(config, watching);
  ASSERT_FALSE(result.error) << result.error->message;
  ASSERT_EQ(result.lost, std::vector<Rank>{2});
  ASSERT_GT(watching->all[2].back().ledger.bytes_sent, 0U);
  const Ledger sum = watching->sum();
  EXPECT_EQ(sum.bytes_sent, result.ledger.bytes_sent);
  EXPECT_EQ(sum.sent + sum.sent_before, result.ledger.sent + result.ledger.sent_before);
  EXPECT_EQ(sum.staleness, result.ledger.staleness);
}

// Rank 2 is slower by 50 ms a step: the others wait for it, and the figures name it.
TEST(FiguresOfARun, NameTheRankThatTheOthersWaitFor) {
  Scenario scenario = scenario_of("ar");
  scenario.delay = "rank=2:50ms";
  const auto watching = std::make_shared<Watching>();
  virtual_run_test::run_well(scenario, watching);
  ASSERT_EQ(watching->all.size(), 4U);
  for (const Rank rank : {0, 1, 3}) EXPECT_GT(waited_by(watching->all[rank].back()), 9) << rank;
  EXPECT_LT(waited_by(watching->all[2].back()), 1);
  // In a ring rank 3 receives from rank 2.
  EXPECT_GT(watching->all[3].back().waited_ns[2], 9'000'000'000);
}

}  // namespace figures_run_test
}  // namespace grapevine
