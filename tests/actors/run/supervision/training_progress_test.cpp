// How far the ranks are, against a list of their reports.
#include "actors/run/supervision/training_progress.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "messages/random.hpp"

namespace grapevine {
namespace training_progress_test {

constexpr std::int32_t kWorkers = 4;

StepReport report_of(Rank rank, Step step) {
  StepReport report;
  report.rank = rank;
  report.step = step;
  report.epochs_done = 0.25 * static_cast<double>(step + 1);
  report.samples = 8 + rank;
  return report;
}

TEST(TrainingProgress, TheSlowestRemainingWorkerCounts) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Rng rng(seed);
    RunMembers members(kWorkers + 1, 1);
    TrainingProgress progress;
    std::vector<Step> steps(kWorkers, -1);  // reported; -1: none
    for (int event = 0; event < 60; ++event) {
      const auto rank = static_cast<Rank>(rng() % kWorkers);
      if (members.is_lost(rank)) continue;
      if (rng() % 30 == 0 && members.lost().size() < kWorkers - 1) {
        members.lose(rank);
        progress.lose(rank);
      } else {
        progress.add(report_of(rank, ++steps[static_cast<std::size_t>(rank)]));
      }
      Step slowest = 1000;
      for (Rank one = 0; one < kWorkers; ++one)
        if (!members.is_lost(one))
          slowest = std::min(slowest, steps[static_cast<std::size_t>(one)]);
      const auto epochs = progress.slowest_epochs(members);
      ASSERT_EQ(epochs.has_value(), slowest >= 0);
      EXPECT_EQ(epochs.value_or(0), 0.25 * static_cast<double>(slowest + 1));
    }
    // Of a lost rank, too: the ledger counts its contributions.
    for (Rank rank = 0; rank < kWorkers; ++rank)
      EXPECT_EQ(progress.samples_of(rank),
                (8 + rank) * (steps[static_cast<std::size_t>(rank)] + 1));
  }
}

TEST(TrainingProgress, ALostRankCountsAsFinished) {
  const RunMembers members(3);
  TrainingProgress progress;
  progress.finish(0);
  progress.lose(1);
  progress.finish(0);
  EXPECT_FALSE(progress.all_finished(members));
  progress.finish(2);
  EXPECT_TRUE(progress.all_finished(members));
}

TEST(TrainingProgress, NamesTheLastStepOfEachWorker) {
  TrainingProgress progress;
  EXPECT_EQ(progress.last_steps(2), "none has finished a step");
  progress.add(report_of(1, 6));
  EXPECT_EQ(progress.last_steps(2), "last steps by rank: 0:none, 1:6");
}

}  // namespace training_progress_test
}  // namespace grapevine
