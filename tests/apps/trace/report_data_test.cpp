// What the report gathers from a trace and from metrics.csv, against sums over all records and
// rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "apps/trace/report/page_curves.hpp"
#include "apps/trace/report/report_page.hpp"
#include "apps/trace/report/run_facts.hpp"
#include "tests/apps/trace/trace_folder.hpp"

namespace grapevine {
namespace report_data_test {

using nlohmann::ordered_json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing_apps::record_of;

class ReportFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              ("grapevine_report_data_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string write(const char* name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return (folder_ / name).string();
  }
  std::filesystem::path folder_;
};

// ---- HeatMap

TEST(HeatMap, KeepsSumsWhileItsBinsMerge) {
  for (const std::int32_t ranks : {1, 7, 256, 257, 1000}) {
    std::mt19937_64 random(static_cast<std::uint64_t>(ranks));
    HeatMap map(ranks);
    double staleness = 0;
    std::int64_t waited_ns = 0;
    std::uint64_t applied = 0;
    std::int64_t time_ns = 0;
    for (int i = 0; i < 20'000; ++i) {
      const auto rank = static_cast<Rank>(random() % static_cast<std::uint64_t>(ranks));
      time_ns += static_cast<std::int64_t>(random() % 3'000'000);
      const auto value = static_cast<std::int64_t>(random() % 9) - 2;
      map.add_applied(rank, time_ns, value);
      staleness += static_cast<double>(value);
      ++applied;
      const auto wait_ns = static_cast<std::int64_t>(random() % 50'000'000);
      map.add_wait(rank, std::max<std::int64_t>(0, time_ns - wait_ns), time_ns);
      waited_ns += std::min(wait_ns, time_ns);
    }
    HeatMap::Cell all;
    for (std::size_t row = 0; row < map.rows(); ++row)
      for (std::size_t bin = 0; bin < map.bins(); ++bin) {
        all.staleness += map.cell(row, bin).staleness;
        all.applied += map.cell(row, bin).applied;
        all.waited_ns += map.cell(row, bin).waited_ns;
      }
    EXPECT_EQ(all.staleness, staleness) << ranks;
    EXPECT_EQ(all.applied, applied) << ranks;
    EXPECT_EQ(all.waited_ns, waited_ns) << ranks;
    EXPECT_LE(map.rows(), HeatMap::kMostRows);
    EXPECT_GT(map.bins(), HeatMap::kMostBins / 2);
    EXPECT_LE(map.bins(), HeatMap::kMostBins);
    EXPECT_GE(static_cast<std::int64_t>(map.bins()) * map.bin_width_ns(), time_ns);
  }
}

TEST(HeatMap, PutsAWaitWhereItWas) {
  HeatMap map(2);
  const std::int64_t width = HeatMap::kFirstWidthNs;
  map.add_wait(1, width / 2, 3 * width + width / 4);
  ASSERT_EQ(map.bin_width_ns(), width);
  EXPECT_EQ(map.cell(1, 0).waited_ns, width / 2);
  EXPECT_EQ(map.cell(1, 1).waited_ns, width);
  EXPECT_EQ(map.cell(1, 2).waited_ns, width);
  EXPECT_EQ(map.cell(1, 3).waited_ns, width / 4);
  EXPECT_EQ(map.cell(0, 1).waited_ns, 0);
}

TEST(HeatMap, LeavesOutRanksThatTheRunDoesNotHave) {
  HeatMap map(2);
  map.add_applied(2, 5, 1);
  map.add_applied(-1, 5, 1);
  map.add_wait(7, 0, 100);
  EXPECT_EQ(map.bins(), 0u);
}

// ---- SlowSteps

TEST(SlowSteps, AreTheSlowestOfAllRanks) {
  std::mt19937_64 random(3);
  SlowSteps slow(5, 12);
  std::vector<std::int64_t> durations, clocks(5);
  for (Step step = 0; step < 300; ++step)
    for (Rank rank = 0; rank < 5; ++rank) {
      auto& clock = clocks[static_cast<std::size_t>(rank)];
      const std::int64_t begin = clock;
      const auto compute = static_cast<std::int64_t>(random() % 1'000'000) + 1;
      TraceRecord produced = record_of(EventKind::produced, clock += compute, rank, step);
      produced.duration_ns = compute;
      slow.add(produced);
      clock += static_cast<std::int64_t>(random() % 1'000'000);
      slow.add(record_of(EventKind::step_done, clock, rank, step));
      durations.push_back(clock - begin);
    }
  slow.finish(1'000'000'000'000);
  std::sort(durations.rbegin(), durations.rend());
  ASSERT_EQ(slow.slowest().size(), 12u);
  for (std::size_t i = 0; i < 12; ++i) {
    const StepLane& lane = slow.slowest()[i];
    EXPECT_EQ(lane.duration_ns(), durations[i]);
    EXPECT_TRUE(lane.finished);
    ASSERT_EQ(lane.segments.size(), 1u);
    EXPECT_EQ(lane.segments[0].begin_ns, lane.begin_ns);
  }
}

TEST(SlowSteps, ThereIsNoneAfterTheLast) {
  SlowSteps slow(2, 4);
  for (const Rank rank : {0, 1}) {
    slow.add(record_of(EventKind::asked, 10, rank, 0));
    slow.add(record_of(EventKind::step_done, 20, rank, 0));
  }
  slow.add(record_of(EventKind::asked, 20, 1, 1));
  for (const Rank rank : {0, 1}) slow.add(record_of(EventKind::wait_begin, 30, rank, 0));
  slow.finish(1000);
  ASSERT_EQ(slow.slowest().size(), 3u);
  EXPECT_EQ(slow.slowest()[0].rank, 1) << "it has asked for the gradient of step 1";
  EXPECT_EQ(slow.slowest()[1].duration_ns(), 10);
}

TEST(SlowSteps, TheAbsenceOfARankIsInNoStep) {
  SlowSteps slow(2, 4);
  slow.add(record_of(EventKind::asked, 0, 1, 0));
  TraceRecord view = record_of(EventKind::view, 50, 0, 0);
  view.peer = 1;
  slow.add(view);
  view = record_of(EventKind::view, 1000, 1, 0);
  view.peer = 1;
  slow.add(view);
  slow.add(record_of(EventKind::step_done, 1010, 1, 0));
  ASSERT_EQ(slow.slowest().size(), 1u);
  EXPECT_EQ(slow.slowest()[0].duration_ns(), 10);
}

TEST(SlowSteps, AWaitThatOutlivesItsStepBelongsToBoth) {
  SlowSteps slow(1, 4);
  TraceRecord begin = record_of(EventKind::wait_begin, 10, 0, 0);
  slow.add(begin);
  slow.add(record_of(EventKind::step_done, 40, 0, 0));
  TraceRecord end = record_of(EventKind::wait_end, 100, 0, 1);
  end.peer = 6;
  slow.add(end);
  slow.add(record_of(EventKind::step_done, 130, 0, 1));
  ASSERT_EQ(slow.slowest().size(), 2u);
  const StepLane& second = slow.slowest()[0];
  EXPECT_EQ(second.step, 1);
  ASSERT_EQ(second.segments.size(), 1u);
  EXPECT_EQ(second.segments[0].begin_ns, 40);
  EXPECT_EQ(second.segments[0].end_ns, 100);
  EXPECT_EQ(second.segments[0].peer, 6);
  ASSERT_EQ(slow.slowest()[1].segments.size(), 1u);
  EXPECT_EQ(slow.slowest()[1].segments[0].end_ns, 40);
}

TEST(SlowSteps, AStepThatTheTraceCutsOffIsNotEnded) {
  SlowSteps slow(2, 4);
  for (Rank rank = 0; rank < 2; ++rank) slow.add(record_of(EventKind::step_done, 10, rank, 0));
  slow.add(record_of(EventKind::wait_begin, 20, 1, 1));
  slow.finish(5000);
  ASSERT_FALSE(slow.slowest().empty());
  const StepLane& lane = slow.slowest()[0];
  EXPECT_EQ(lane.rank, 1);
  EXPECT_EQ(lane.step, 1);
  EXPECT_FALSE(lane.finished);
  EXPECT_EQ(lane.begin_ns, 10);
  EXPECT_EQ(lane.end_ns, 5000);
}

TEST(SlowSteps, WithoutTheStepBeforeBeginsWithItsFirstRecord) {
  SlowSteps slow(1, 4);
  slow.add(record_of(EventKind::step_done, 1000, 0, 10));
  TraceRecord produced = record_of(EventKind::produced, 90'000, 0, 20);
  produced.duration_ns = 5000;
  slow.add(produced);
  slow.add(record_of(EventKind::step_done, 91'000, 0, 20));
  EXPECT_EQ(slow.slowest()[0].begin_ns, 85'000);
}

TEST(SlowSteps, TheTimeBetweenTwoRunsIsInNoStep) {
  SlowSteps slow(1, 4);
  slow.add(record_of(EventKind::step_done, 10, 0, 0));
  TraceRecord data = record_of(EventKind::data_wait, 18, 0, 1);
  data.duration_ns = 5;
  slow.add(data);
  slow.add(record_of(EventKind::wait_begin, 20, 0, 1));
  slow.add(record_of(EventKind::resumed, 90'000, 0, 1));
  slow.add(record_of(EventKind::wait_end, 90'050, 0, 1));
  slow.add(record_of(EventKind::step_done, 90'060, 0, 1));
  const StepLane& lane = slow.slowest()[0];
  EXPECT_EQ(lane.step, 1);
  EXPECT_EQ(lane.duration_ns(), 60);
  ASSERT_EQ(lane.segments.size(), 1u);
  EXPECT_EQ(lane.segments[0].begin_ns, 90'000);
  EXPECT_EQ(lane.segments[0].end_ns, 90'050);
}

TEST(SlowSteps, AStepEndsWithTheLossOfItsRank) {
  SlowSteps slow(2, 4);
  for (Rank rank = 0; rank < 2; ++rank) slow.add(record_of(EventKind::step_done, 10, rank, 0));
  slow.add(record_of(EventKind::wait_begin, 20, 1, 1));
  TraceRecord lost = record_of(EventKind::view, 500, 0, 1);
  lost.peer = 1;
  slow.add(lost);
  slow.add(record_of(EventKind::step_done, 9000, 0, 1));
  slow.finish(9000);
  ASSERT_EQ(slow.slowest().size(), 4u);
  const StepLane& lane = slow.slowest()[1];  // behind that of rank 0
  EXPECT_EQ(lane.rank, 1);
  EXPECT_FALSE(lane.finished);
  EXPECT_EQ(lane.end_ns, 500);
}

TEST(SlowSteps, KeepABoundedNumberOfSegments) {
  SlowSteps slow(1, 4);
  for (int i = 0; i < 1000; ++i) {
    slow.add(record_of(EventKind::wait_begin, 10 * i, 0, 0));
    slow.add(record_of(EventKind::wait_end, 10 * i + 5, 0, 0));
  }
  slow.add(record_of(EventKind::step_done, 20'000, 0, 0));
  EXPECT_EQ(slow.slowest()[0].segments.size(), SlowSteps::kMostSegments);
  EXPECT_EQ(slow.slowest()[0].left_out, 1000 - SlowSteps::kMostSegments);
}

// ---- ReportCollector

TEST(ReportCollector, CountsAWaitThatTheTraceCutsOff) {
  ReportCollector collector(2);
  collector.add(record_of(EventKind::wait_begin, 1'000'000, 0, 0));
  collector.add(record_of(EventKind::step_done, 900'000'000, 1, 0));
  collector.finish();
  EXPECT_EQ(collector.ranks()[0].waited_ns, 899'000'000);
  EXPECT_EQ(collector.ranks()[1].waited_ns, 0);
  EXPECT_EQ(collector.records(), 2u);
}

TEST(ReportCollector, TheTimeBetweenTwoRunsIsNoWait) {
  ReportCollector collector(1);
  collector.add(record_of(EventKind::wait_begin, 1'000'000, 0, 0));
  collector.add(record_of(EventKind::resumed, 900'000'000, 0, 0));
  collector.add(record_of(EventKind::wait_end, 907'000'000, 0, 0));
  collector.finish();
  EXPECT_EQ(collector.ranks()[0].waited_ns, 7'000'000);
  EXPECT_EQ(collector.last_ns(), 8'000'000) << "the columns of the heat map are of training";
  EXPECT_EQ(collector.clock().paused_ns(), 899'000'000);
}

TEST(ReportCollector, AWaitEndsWithTheLossOfItsRank) {
  ReportCollector collector(3);
  collector.add(record_of(EventKind::wait_begin, 1'000'000, 1, 0));
  // Its last record: until when it has waited after that is unknown.
  collector.add(record_of(EventKind::received, 34'000'000, 1, 0));
  for (const Rank rank : {0, 2}) {
    TraceRecord lost = record_of(EventKind::view, 40'000'000 + rank, rank, 0);
    lost.peer = 1;
    collector.add(lost);
  }
  // It takes part again, and waits until the end.
  TraceRecord back = record_of(EventKind::view, 800'000'000, 1, 5);
  back.peer = 1;
  collector.add(back);
  collector.add(record_of(EventKind::wait_begin, 880'000'000, 1, 5));
  collector.add(record_of(EventKind::step_done, 900'000'000, 0, 9));
  collector.finish();
  EXPECT_EQ(collector.ranks()[1].waited_ns, 33'000'000 + 20'000'000);
}

// ---- histogram_bars

TEST(HistogramBars, HaveEachUpdateOnceAndDoNotOverlap) {
  std::mt19937_64 random(11);
  for (const std::int64_t reach : {1, 5, 39, 40, 41, 300, 100'000}) {
    ordered_json histogram = ordered_json::object();
    double all = 0;
    for (int i = 0; i < 300; ++i) {
      const auto value =
          static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(reach)) - 1;
      const int count = value < 10 ? 1000 : 1;
      histogram[std::to_string(value)] = count;
    }
    for (const auto& [key, count] : histogram.items()) all += count.get<double>();
    const ordered_json bars = histogram_bars(histogram);
    ASSERT_FALSE(bars.empty());
    EXPECT_LE(bars.size(), 40u) << reach;
    double sum = 0;
    for (std::size_t i = 0; i < bars.size(); ++i) {
      sum += bars[i][2].get<double>();
      EXPECT_LE(bars[i][0], bars[i][1]) << reach;
      const std::int64_t next =
          i == 0 ? bars[0][0].get<std::int64_t>() : bars[i - 1][1].get<std::int64_t>() + 1;
      EXPECT_EQ(bars[i][0].get<std::int64_t>(), next) << reach;
      EXPECT_TRUE(reach > 40 || bars[i][0] == bars[i][1]) << reach;
    }
    EXPECT_EQ(sum, all) << reach;
  }
}

TEST(HistogramBars, TakeWhatIsNoNumberForNothing) {
  EXPECT_TRUE(histogram_bars(nullptr).empty());
  EXPECT_TRUE(histogram_bars({{"x", 3}, {"", 1}, {"1", nullptr}}).empty());
  EXPECT_EQ(histogram_bars({{"-2", 3}}).dump(), "[[-2,-2,3.0]]");
}

// ---- PageCurves

constexpr char kHeader[] =
    "rank,epoch,step,time_s,batch_time_s,exchange_time_s,data_time_s,loss,top1,top5,lr,staleness,"
    "val_loss,val_top1,val_top5\n";

TEST_F(ReportFiles, CurvesAreMeansOverRanks) {
  std::string rows = kHeader;
  for (int step = 0; step < 20; ++step)
    for (int rank = 0; rank < 4; ++rank)
      rows += std::to_string(rank) + ",0," + std::to_string(step) + ',' +
              std::to_string(0.5 * (step + 1)) + ",,,," + std::to_string(10 * step + rank) +
              ",0.25,1,0.1,0,,,\n";
  rows += "0,1,19,,,,,,,,,,3.5,0.75,1\n";
  const PageCurves curves = read_page_curves(write("metrics.csv", rows));
  EXPECT_EQ(curves.problem, "");
  EXPECT_EQ(curves.rows, 80u);
  ASSERT_EQ(curves.by_step.size(), 20u);
  for (std::size_t i = 0; i < 20; ++i) {
    const PagePoint& point = curves.by_step[i];
    EXPECT_DOUBLE_EQ(point.step, static_cast<double>(i));
    EXPECT_DOUBLE_EQ(point.loss, 10.0 * static_cast<double>(i) + 1.5);
    EXPECT_DOUBLE_EQ(point.highest_loss - point.lowest_loss, 3);
    EXPECT_DOUBLE_EQ(point.top1, 0.25);
  }
  ASSERT_EQ(curves.validations.size(), 1u);
  EXPECT_DOUBLE_EQ(curves.validations[0].time_s, 10);
  EXPECT_DOUBLE_EQ(curves.validations[0].loss, 3.5);
}

TEST_F(ReportFiles, CurvesOfALongRunAreBounded) {
  std::string rows = kHeader;
  double sum = 0;
  for (int step = 0; step < 20'000; ++step) {
    rows += "0,0," + std::to_string(step) + ',' + std::to_string(0.01 * step) + ",,,," +
            std::to_string(step % 7) + ",,,,,,,\n0,0," + std::to_string(step) + ",,,,,,,,,,1,1,1\n";
    sum += step % 7;
  }
  const PageCurves curves = read_page_curves(write("metrics.csv", rows));
  EXPECT_EQ(curves.by_step.size(), PageCurves::kMostPoints);
  EXPECT_LE(curves.validations.size(), PageCurves::kMostPoints);
  double weighted = 0;
  for (const PagePoint& point : curves.by_time) {
    weighted += point.loss * static_cast<double>(point.rows);
    EXPECT_TRUE(std::isnan(point.top1));
  }
  EXPECT_NEAR(weighted, sum, 1e-6 * sum);
}

TEST_F(ReportFiles, CurvesLeaveOutWhatIsDamaged) {
  const PageCurves curves = read_page_curves(
      write("metrics.csv", std::string(kHeader) + "0,0,0,0.1,,,,2.5,,,,,,,\n" + "garbage\n" +
                               "0,0,x,0.1,,,,2.5,,,,,,,\n" + "0,0,1,0.2,,,,nan,,,,,,,\n" +
                               "0,0,2,0.3,,,,1.5,,"));  // cut off: no newline
  EXPECT_EQ(curves.rows, 2u);
  EXPECT_EQ(curves.damaged_rows, 2u);
  ASSERT_EQ(curves.by_step.size(), 2u);
  EXPECT_DOUBLE_EQ(curves.by_step[0].loss, 2.5);
  EXPECT_TRUE(std::isnan(curves.by_step[1].loss));
}

// A row of a validation has a time too, and no loss of a step.
TEST_F(ReportFiles, AValidationIsNoStepOfTheCurves) {
  const PageCurves curves = read_page_curves(
      write("metrics.csv", std::string(kHeader) + "0,0,0,0.05,,,,2.5,,,,,,,\n" +
                               "0,0,1,0.2,,,,2,,,,,,,\n" + "0,0,1,0.7,,,,,,,,,1,0.5,1\n"));
  EXPECT_EQ(curves.rows, 2u);
  EXPECT_EQ(curves.by_time.size(), 2u);
  EXPECT_EQ(curves.by_time.back().time_s, 0.2);
  ASSERT_EQ(curves.validations.size(), 1u);
  EXPECT_EQ(curves.validations[0].time_s, 0.7) << "when the last rank had ended the epoch";
}

TEST_F(ReportFiles, CurvesSayWhyThereAreNone) {
  EXPECT_THAT(read_page_curves((folder_ / "none.csv").string()).problem, HasSubstr("none.csv"));
  EXPECT_THAT(read_page_curves(write("metrics.csv", "rank,step\n0,1\n")).problem,
              HasSubstr("has no column"));
  EXPECT_THAT(read_page_curves(write("metrics.csv", "")).problem, HasSubstr("has no column"));
  EXPECT_EQ(read_page_curves(write("metrics.csv", kHeader)).problem, "");
}

// ---- RunFacts

TEST_F(ReportFiles, FactsAreThoseOfTheSummary) {
  write("summary.json", R"({"algorithm": "gem", "seed": 4, "final_loss": null})");
  write("job.toml", "algorithm = 'sgp'\n");
  const RunFacts facts = read_run_facts(folder_.string());
  EXPECT_TRUE(facts.ended);
  EXPECT_EQ(facts.values["algorithm"], "gem");
  EXPECT_THAT(facts.missing, IsEmpty());
}

TEST_F(ReportFiles, FactsOfAKilledRunAreThoseOfTheJob) {
  write("job.toml", "algorithm = 'sgp'\nseed = 7\n[wiring]\nexchange = 'gossip'\npeers = 1\n");
  for (const char* summary : {"", "{\"algorithm\": ", "[]"}) {
    if (*summary != '\0') write("summary.json", summary);
    const RunFacts facts = read_run_facts(folder_.string());
    EXPECT_FALSE(facts.ended);
    EXPECT_EQ(facts.values["algorithm"], "sgp");
    EXPECT_EQ(facts.values["seed"], 7);
    EXPECT_EQ(facts.values["wiring"]["exchange"], "gossip");
    ASSERT_EQ(facts.missing.size(), 1u);
    EXPECT_THAT(facts.missing[0], HasSubstr("summary.json"));
  }
  write("job.toml", "algorithm = ");
  EXPECT_EQ(read_run_facts(folder_.string()).missing.size(), 2u);
}

// ---- json_for_script

TEST(JsonForScript, CannotEndItsElementAndReadsBack) {
  const std::string hostile = "</script><!--<script>&amp;\xe2\x80\xa8\"\\]]>";
  const std::string json = json_for_script({{hostile, hostile}});
  for (const char* part : {"<", ">", "&", "\xe2"}) EXPECT_THAT(json, Not(HasSubstr(part)));
  EXPECT_EQ(ordered_json::parse(json)[hostile], hostile);
  EXPECT_NO_THROW(json_for_script({{"name", "not UTF-8: \xff\xfe"}}));
}

}  // namespace report_data_test
}  // namespace grapevine
