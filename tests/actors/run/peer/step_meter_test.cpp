#include "actors/run/peer/step_meter.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

namespace grapevine {
namespace step_meter_test {

constexpr Duration kSecond = std::chrono::seconds(1);

enum class What { begin_step, applied, begin_wait, end_wait, end_step };

struct Row {
  What what;
  int at = 0;                        // s; of `applied`: the staleness
  double length = 0;                 // s: of the wait or step that ends here
  double waited = 0;                 // s: in the step that ends here
  std::optional<double> staleness;   // of that step; nothing: NaN
  std::optional<int> waiting_since;  // s: afterwards
};

TEST(StepMeter, MeasuresStepsWaitsAndStaleness) {
  const std::vector<Row> table = {
      {What::begin_step, 10, 0, 0, {}, {}},
      {What::end_step, 12, 2, 0, {}, {}},  // nothing was applied
      {What::begin_wait, 13, 0, 0, {}, 13},
      {What::applied, 4, 0, 0, {}, 13},
      {What::end_wait, 16, 3, 0, {}, {}},
      {What::applied, 7, 0, 0, {}, {}},
      {What::begin_wait, 17, 0, 0, {}, 17},
      {What::end_wait, 18, 1, 0, {}, {}},
      {What::end_step, 20, 8, 4, 5.5, {}},
      {What::begin_wait, 21, 0, 0, {}, 21},
      {What::end_step, 23, 3, 0, {}, 21},  // the wait continues: it counts where it ends
      {What::begin_wait, 24, 0, 0, {}, 21},
      {What::end_wait, 26, 2, 0, {}, 21},  // of the inner one
      {What::end_wait, 27, 3, 0, {}, {}},
      {What::applied, -1, 0, 0, {}, {}},
      {What::end_step, 30, 7, 5, -1.0, {}},
      {What::begin_step, 40, 0, 0, {}, {}},
      {What::end_step, 41, 1, 0, {}, {}},
  };
  StepMeter meter;
  for (std::size_t i = 0; i < table.size(); ++i) {
    SCOPED_TRACE("row " + std::to_string(i));
    const Row& row = table[i];
    const Timestamp now = row.at * kSecond;
    switch (row.what) {
      case What::begin_step:
        meter.begin_step(now);
        break;
      case What::applied:
        meter.applied(row.at);
        break;
      case What::begin_wait:
        meter.begin_wait(now);
        break;
      case What::end_wait:
        EXPECT_EQ(to_seconds(meter.end_wait(now)), row.length);
        break;
      case What::end_step: {
        const StepMeter::Measures measures = meter.end_step(now);
        EXPECT_EQ(measures.seconds, row.length);
        EXPECT_EQ(measures.waited_seconds, row.waited);
        if (row.staleness)
          EXPECT_EQ(measures.staleness, *row.staleness);
        else
          EXPECT_TRUE(std::isnan(measures.staleness));
      }
    }
    EXPECT_EQ(meter.waiting_since().has_value(), row.waiting_since.has_value());
    if (meter.waiting_since() && row.waiting_since) {
      EXPECT_EQ(*meter.waiting_since(), *row.waiting_since * kSecond);
    }
  }
  EXPECT_EQ(meter.step_seconds(), (std::vector<double>{2, 8, 3, 7, 1}));
}

// The sums of all steps but the first ones, of random lengths and work.
TEST(StepMeter, TheGpuIsBusyForTheShareOfItsWork) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 rng(seed);
    std::uniform_int_distribution<int> length(1, 50), percent(0, 100);
    StepMeter meter;
    Timestamp now = kSecond;
    meter.begin_step(now);
    double worked = 0, all = 0;
    for (std::int64_t step = 0; step < StepMeter::kFirstSteps + 30; ++step) {
      EXPECT_EQ(meter.gpu_busy().has_value(), step > StepMeter::kFirstSteps) << step;
      const int seconds = length(rng);
      const double of_gpu = seconds * percent(rng) / 100.0;
      meter.worked(of_gpu);
      meter.end_step(now += seconds * kSecond);
      if (step < StepMeter::kFirstSteps) continue;
      worked += of_gpu;
      all += seconds;
      ASSERT_NEAR(meter.gpu_busy().value(), worked / all, 1e-12) << step;
    }
  }
}

TEST(StepMeter, TheGpuIsBusyForAllTimeAtMost) {
  StepMeter meter;
  for (std::int64_t step = 0; step < StepMeter::kFirstSteps + 1; ++step) {
    meter.worked(2);
    meter.end_step((step + 1) * kSecond);
  }
  EXPECT_EQ(meter.gpu_busy(), 1.0);
}

// As the first gradient is, and all of them on the CPU.
TEST(StepMeter, UnknownWorkIsUnknownUnlessItIsThatOfTheFirstSteps) {
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  for (const std::int64_t without : {std::int64_t{0}, StepMeter::kFirstSteps}) {
    StepMeter meter;
    for (std::int64_t step = 0; step < StepMeter::kFirstSteps + 5; ++step) {
      meter.worked(step == without ? unknown : 0.5);
      meter.end_step((step + 1) * kSecond);
    }
    if (without == 0)
      EXPECT_EQ(meter.gpu_busy(), 0.5);
    else
      EXPECT_FALSE(meter.gpu_busy().has_value());
  }
}

}  // namespace step_meter_test
}  // namespace grapevine
