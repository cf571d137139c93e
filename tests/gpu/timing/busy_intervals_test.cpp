#include "gpu/timing/busy_intervals.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

namespace grapevine {
namespace busy_intervals_test {

constexpr int kCells = 200;

int draw(std::mt19937_64& rng, int from, int to) {
  return std::uniform_int_distribution<int>(from, to)(rng);
}

// Against a row of cells, each a second long.
TEST(BusyIntervals, TheTotalIsThatOfTheUnion) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 rng(seed);
    BusyIntervals intervals;
    std::array<bool, kCells> busy{};
    int forgotten = 0;
    for (int i = 0; i < 60; ++i) {
      const int begin = draw(rng, forgotten, kCells - 1);
      const int end = draw(rng, begin, std::min(kCells, begin + draw(rng, 0, 30)));
      intervals.add(begin, end);
      std::fill(busy.begin() + begin, busy.begin() + end, true);
      ASSERT_EQ(intervals.total(), std::count(busy.begin(), busy.end(), true)) << "interval " << i;
      if (draw(rng, 0, 5) > 0) continue;
      forgotten = draw(rng, forgotten, std::min(kCells - 1, forgotten + 20));
      intervals.forget_before(forgotten);
      ASSERT_EQ(intervals.total(), std::count(busy.begin(), busy.end(), true));
    }
  }
}

TEST(BusyIntervals, NothingIsAddedByEmptyAndUnknownOnes) {
  BusyIntervals intervals;
  const double unknown = std::numeric_limits<double>::quiet_NaN();
  intervals.add(2, 2);
  intervals.add(3, 2);
  intervals.add(unknown, 2);
  intervals.add(2, unknown);
  EXPECT_EQ(intervals.total(), 0);
  intervals.add(-1, 2);
  EXPECT_EQ(intervals.total(), 3);
}

// What a late interval has before that time may have been counted.
TEST(BusyIntervals, WhatIsForgottenIsNotCountedTwice) {
  BusyIntervals intervals;
  intervals.add(0, 4);
  intervals.forget_before(6);
  intervals.add(3, 8);
  EXPECT_EQ(intervals.total(), 6);
}

}  // namespace busy_intervals_test
}  // namespace grapevine
