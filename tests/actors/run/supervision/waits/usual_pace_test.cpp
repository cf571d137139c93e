// The usual pace: what recurs is usual, what is single is not.
#include "actors/run/supervision/waits/usual_pace.hpp"

#include <gtest/gtest.h>

#include "messages/random.hpp"

namespace grapevine {
namespace usual_pace_test {

constexpr Duration kSecond = std::chrono::seconds(1);

TEST(UsualPace, IsNotKnownBeforeTheFirstStep) {
  UsualPace pace;
  EXPECT_FALSE(pace.of(0));
  EXPECT_FALSE(pace.slowest());
  pace.add(1, kSecond);
  EXPECT_FALSE(pace.of(0));
  EXPECT_EQ(pace.of(1), kSecond);
  EXPECT_EQ(pace.slowest(), kSecond);
}

// The pace lies between the median and the longest step, and single outliers leave it as it was.
TEST(UsualPace, TwoOutliersDoNotChangeIt) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Rng rng(seed);
    UsualPace calm, disturbed;
    for (int step = 0; step < 200; ++step) {
      const Duration length = kSecond + std::chrono::milliseconds(rng() % 1000);
      calm.add(0, length);
      disturbed.add(0, step == 150 || step == 170 ? 1000 * kSecond : length);
    }
    EXPECT_GE(*calm.of(0), kSecond);
    EXPECT_LE(*calm.of(0), 2 * kSecond);
    EXPECT_LE(*disturbed.of(0), 2 * kSecond);
  }
}

TEST(UsualPace, APauseThatRecursIsUsualHoweverRare) {
  UsualPace pace;
  for (int epoch = 1; epoch <= 3; ++epoch) {
    for (int step = 0; step < 500; ++step) pace.add(0, kSecond);
    EXPECT_EQ(*pace.of(0), kSecond);
    pace.add(0, 60 * kSecond);
  }
  for (int step = 0; step < 500; ++step) pace.add(0, kSecond);
  EXPECT_EQ(*pace.of(0), 30 * kSecond);
}

TEST(UsualPace, APaceThatChangesIsLearned) {
  UsualPace pace;
  for (int step = 0; step < 500; ++step) pace.add(0, kSecond);
  for (int step = 0; step < 64; ++step) pace.add(0, 20 * kSecond);
  EXPECT_EQ(*pace.of(0), 20 * kSecond);
  pace.add(1, 3 * kSecond);
  EXPECT_EQ(*pace.slowest(), 20 * kSecond);
}

}  // namespace usual_pace_test
}  // namespace grapevine
