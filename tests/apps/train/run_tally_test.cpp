// What the progress of a run shows.
#include "apps/train/run_tally.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

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
    tally.on_step(report);
    EXPECT_EQ(shown.step, step);
    EXPECT_EQ(shown.steps, std::max<std::int64_t>(6, step));
    EXPECT_EQ(shown.samples, 4 * step);
  }
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

}  // namespace run_tally_test
}  // namespace grapevine
