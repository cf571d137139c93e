// What the progress of a run shows.
#include "apps/train/run_tally.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace grapevine {
namespace run_tally_test {

// Ranks that train at their own pace may take more steps than were planned.
TEST(RunTally, NoStepIsBeyondTheLast) {
  RunProgress start;
  start.steps = 6;
  RunProgress shown;
  RunTally tally(start, {}, [&shown](const RunProgress& progress) { shown = progress; });
  StepReport report;
  report.samples = 4;
  for (std::int64_t step = 1; step <= 8; ++step) {
    report.step = step - 1;
    tally.on_step(report);
    EXPECT_EQ(shown.step, step);
    EXPECT_EQ(shown.steps, std::max<std::int64_t>(6, step));
    EXPECT_EQ(shown.samples, 4 * step);
  }
}

// Of four places two are vacant, and a rank is lost: the steps are those of the ranks that train.
TEST(RunTally, VacantAndLostPlacesTakeNoSteps) {
  RunProgress start;
  start.steps = 4 * 10;
  RunProgress shown;
  RunTally tally(
      start, {}, [&shown](const RunProgress& progress) { shown = progress; }, 4);
  StepReport report;
  for (report.step = 0; report.step < 10; ++report.step) {
    for (const Rank rank : {0, 1}) {
      if (rank == 1 && report.step >= 4) continue;
      report.rank = rank;
      tally.on_step(report);
    }
    if (report.step == 4) tally.on_rank_lost(1);
    EXPECT_EQ(shown.steps, 10);
    EXPECT_GE(shown.step, report.step);
    EXPECT_LE(shown.step, report.step + 1);
  }
  EXPECT_EQ(shown.step, 10) << "the run is complete";
}

// With three of four ranks each takes more steps: the run is complete after its epochs.
TEST(RunTally, ALossLengthensARunOfEpochs) {
  RunProgress start;
  start.steps = 4 * 30;
  start.epochs = 3;
  RunProgress shown;
  RunTally tally(
      start, {}, [&shown](const RunProgress& progress) { shown = progress; }, 4);
  tally.end_by_epochs();
  StepReport report;
  double epoch = 0;
  for (report.step = 0; epoch < 3 - 1e-9; ++report.step) {
    EXPECT_TRUE(shown.phase.empty()) << "step " << report.step;
    const Rank ranks = report.step < 10 ? 4 : 3;
    epoch += 0.025 * ranks;
    report.epochs_done = epoch;
    for (report.rank = 0; report.rank < ranks; ++report.rank) tally.on_step(report);
    if (report.step == 9) tally.on_rank_lost(3);
  }
  EXPECT_EQ(report.step, 37);
  EXPECT_EQ(shown.step, 37);
  EXPECT_EQ(shown.steps, 37);
  EXPECT_FALSE(shown.phase.empty());
}

// The last validation comes after the last step.
TEST(RunTally, TheLastLineHasTheLastAccuracy) {
  RunProgress shown;
  RunTally tally({}, {}, [&shown](const RunProgress& progress) { shown = progress; });
  tally.on_step({});
  Evaluation evaluation;
  evaluation.top1 = 0.985;
  tally.on_validation(1, evaluation);
  EXPECT_EQ(shown.accuracy, 0.985);
}

TEST(RunTally, SaysHowALossDiverges) {
  std::string said;
  RunTally tally({}, {}, [](const RunProgress&) {});
  tally.tell_validations([&said](const std::string& line) { said = line; });
  for (const auto& [loss, text] : std::vector<std::pair<double, std::string>>{
           {std::numeric_limits<double>::infinity(), "test loss inf\n"},
           {std::numeric_limits<double>::quiet_NaN(), "test loss nan\n"}}) {
    Evaluation evaluation;
    evaluation.top1 = 0.5;
    evaluation.loss = loss;
    tally.on_validation(0, evaluation);
    EXPECT_EQ(said, "epoch 1: test accuracy 0.5000, " + text);
  }
}

Evaluation with_top1(double top1) {
  Evaluation evaluation;
  evaluation.top1 = top1;
  return evaluation;
}

// As if the run had not been interrupted.
TEST(RunTally, CountsTheValidationsBeforeAResume) {
  RunTally tally({}, {}, [](const RunProgress&) {});
  tally.stop_after(3);
  tally.begin_after({{0, with_top1(0.9)}, {1, with_top1(0.7)}, {2, with_top1(0.8)}});
  EXPECT_FALSE(tally.wants_stop());
  tally.on_validation(3, with_top1(0.85));
  EXPECT_TRUE(tally.wants_stop());
}

// A run that had stopped early goes on at least until its next validation.
TEST(RunTally, ABetterValidationEndsTheRowOfTheRunBefore) {
  RunTally tally({}, {}, [](const RunProgress&) {});
  tally.stop_after(2);
  tally.begin_after({{0, with_top1(0.9)}, {1, with_top1(0.7)}, {2, with_top1(0.8)}});
  EXPECT_FALSE(tally.wants_stop());
  tally.on_validation(3, with_top1(0.95));
  EXPECT_FALSE(tally.wants_stop());
  tally.on_validation(4, with_top1(0.9));
  EXPECT_FALSE(tally.wants_stop());
  tally.on_validation(5, with_top1(0.9));
  EXPECT_TRUE(tally.wants_stop());
}

// The final loss is that of the ranks that remain.
TEST(RunTally, ALostRankHasNoPartInTheFinalLoss) {
  RunTally tally({}, {}, [](const RunProgress&) {});
  StepReport report;
  report.logged = true;
  report.loss = 5;
  report.rank = 1;
  tally.on_step(report);
  report.loss = 1;
  report.rank = 0;
  tally.on_step(report);
  EXPECT_EQ(tally.losses().mean(), 3);
  tally.on_rank_lost(1);
  EXPECT_EQ(tally.losses().mean(), 1);
}

}  // namespace run_tally_test
}  // namespace grapevine
