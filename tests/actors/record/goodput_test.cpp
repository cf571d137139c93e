#include "actors/record/goodput.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace grapevine {
namespace goodput_test {

Ledger ledger(std::int64_t produced, std::int64_t applied) {
  Ledger ledger;
  ledger.produced = produced;
  ledger.committed = applied;
  return ledger;
}

void take_steps(Goodput& goodput, Rank rank, int steps, double seconds) {
  for (int step = 0; step < steps; ++step) goodput.add(rank, 32, seconds);
}

TEST(Goodput, IsNotKnownWithoutStepsOrContributions) {
  Goodput goodput;
  EXPECT_TRUE(std::isnan(goodput.ratio(ledger(1, 1), 1)));
  goodput.add(0, 32, 0);
  EXPECT_TRUE(std::isnan(goodput.ratio(ledger(1, 1), 1))) << "no time has passed";
  goodput.add(0, 32, 1);
  EXPECT_TRUE(std::isnan(goodput.ratio(ledger(0, 0), 1)));
  EXPECT_GT(goodput.ratio(ledger(1, 1), 1), 0);
}

TEST(Goodput, IsOneAtASteadyRateAndAShareWherePartIsLost) {
  Goodput goodput;
  for (const Rank rank : {0, 1}) take_steps(goodput, rank, 100, 0.5);
  EXPECT_NEAR(goodput.ratio(ledger(200, 200), 2), 1, 1e-12);
  EXPECT_NEAR(goodput.ratio(ledger(200, 150), 2), 0.75, 1e-12) << "a quarter was dropped";
  EXPECT_NEAR(goodput.ratio(ledger(200, 200), 4), 0.5, 1e-12) << "two more ranks take no steps";
}

// 20 steps of 1 s, and 20 of 3 s: 40 steps in 80 s, where 80 were possible.
TEST(Goodput, TheBestRateIsThatOfTwentySteps) {
  Goodput goodput;
  take_steps(goodput, 0, 20, 3);
  take_steps(goodput, 0, 20, 1);
  EXPECT_NEAR(goodput.ratio(ledger(40, 40), 1), 0.5, 1e-12);
  goodput.add(0, 32, 0.001);  // a single fast step is no rate
  EXPECT_NEAR(goodput.ratio(ledger(41, 41), 1), 41.0 / 80.001, 1e-12);
}

// A worker of half the rate, in the same time.
TEST(Goodput, ASlowWorkerLowersIt) {
  Goodput goodput;
  take_steps(goodput, 0, 80, 1);
  take_steps(goodput, 1, 40, 2);
  EXPECT_NEAR(goodput.ratio(ledger(120, 120), 2), 0.75, 1e-12);
}

TEST(Goodput, WithFewStepsTheBestRateIsThatOfAllOfAWorker) {
  Goodput goodput;
  take_steps(goodput, 0, 4, 1);
  take_steps(goodput, 1, 2, 2);
  EXPECT_NEAR(goodput.ratio(ledger(6, 6), 2), 0.75, 1e-12);
}

TEST(Goodput, LeavesOutTimesThatAreNone) {
  Goodput goodput;
  take_steps(goodput, 0, 40, 1);
  for (const double seconds : {std::nan(""), -1.0, std::numeric_limits<double>::infinity()})
    goodput.add(0, 32, seconds);
  EXPECT_NEAR(goodput.ratio(ledger(40, 40), 1), 1, 1e-12);
}

}  // namespace goodput_test
}  // namespace grapevine
