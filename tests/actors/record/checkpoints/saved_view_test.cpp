// The end of a run whose members have changed, from its checkpoint.
#include "actors/record/checkpoints/saved_view.hpp"

#include <gtest/gtest.h>

namespace grapevine {
namespace saved_view_test {

Horizon planned_with(Step steps, bool by_samples) {
  Horizon planned;
  planned.steps_per_epoch = 10;
  planned.steps = steps;
  planned.by_samples = by_samples;
  return planned;
}

// Among four of `ranks` planned ones, from step 20 on.
SavedView view_of_four(const Horizon& present, Step planned_steps) {
  SavedView view;
  view.number = 1;
  view.ranks.members = {0, 1, 2, 3};
  view.first_step = present.first_step;
  view.first_epoch = present.first_epoch;
  view.later_end = present.steps - planned_steps;
  view.by_samples = present.by_samples;
  return view;
}

// With other numbers of members, the same epochs are other numbers of steps.
TEST(SavedView, ARunByEpochsThatContinuesWithStepsEndsAtThese) {
  for (const std::int32_t ranks : {2, 8}) {
    const Horizon planned = planned_with(100, true);
    const Horizon present = planned.among(ranks, 4, 20, 2);
    ASSERT_NE(present.steps, planned.steps);
    const SavedView view = view_of_four(present, planned.steps);
    EXPECT_EQ(horizon_of(view, planned_with(500, false), ranks).steps, 500);
    EXPECT_EQ(horizon_of(view, planned, ranks).steps, present.steps);
  }
}

TEST(SavedView, ARunByStepsKeepsItsLaterEnd) {
  const Horizon planned = planned_with(100, false);
  Horizon present = planned.among(8, 4, 20, 2);
  present.steps += 7;
  const SavedView view = view_of_four(present, planned.steps);
  EXPECT_EQ(view.later_end, present.steps - 100);
  EXPECT_EQ(horizon_of(view, planned, 8).steps, present.steps);
  EXPECT_EQ(horizon_of(view, planned_with(500, false), 8).steps, present.steps + 400);
}

}  // namespace saved_view_test
}  // namespace grapevine
