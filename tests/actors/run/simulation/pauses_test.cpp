#include <gtest/gtest.h>

#include "actors/run/delay.hpp"

namespace grapevine {
namespace pauses_test {

using std::chrono::milliseconds;

TEST(DelayModel, WorkThatAPauseInterruptsEndsLaterByTheRestOfThePause) {
  DelayModel delay;
  delay.add(RankPause{1, milliseconds(100), milliseconds(50)});
  const auto work = [&](Rank rank, int begin, int length) {
    return delay.with_pauses(rank, milliseconds(begin), milliseconds(length));
  };
  EXPECT_EQ(work(0, 90, 20), milliseconds(20)) << "another rank";
  EXPECT_EQ(work(1, 0, 50), milliseconds(50)) << "before";
  EXPECT_EQ(work(1, 90, 20), milliseconds(70)) << "begins before it";
  EXPECT_EQ(work(1, 120, 20), milliseconds(50)) << "begins inside: 30 ms of it are left";
  EXPECT_EQ(work(1, 150, 20), milliseconds(20)) << "after";
}

TEST(DelayModel, APauseMayPushWorkIntoTheNext) {
  DelayModel delay;
  delay.add(RankPause{0, milliseconds(200), milliseconds(10)});
  delay.add(RankPause{0, milliseconds(100), milliseconds(90)});
  EXPECT_EQ(delay.with_pauses(0, milliseconds(95), milliseconds(20)), milliseconds(120));
}

TEST(DelayModel, PausesThatOverlapCountOnce) {
  DelayModel delay;
  for (int i = 0; i < 2; ++i) delay.add(RankPause{0, milliseconds(100), milliseconds(50)});
  EXPECT_EQ(delay.with_pauses(0, milliseconds(90), milliseconds(20)), milliseconds(70));
  delay.add(RankPause{0, milliseconds(120), milliseconds(60)});
  delay.add(RankPause{0, milliseconds(130), milliseconds(10)});
  EXPECT_EQ(delay.with_pauses(0, milliseconds(90), milliseconds(20)), milliseconds(100));
  EXPECT_EQ(delay.with_pauses(0, milliseconds(160), milliseconds(20)), milliseconds(40));
}

TEST(DelayModel, TheTimeOfComputingIsInTheDelay) {
  DelayModel delay;
  delay.set_compute([](Rank rank, Step step) { return milliseconds(10 * rank + step); });
  delay.add([](Rank, Step) { return milliseconds(1); });
  EXPECT_EQ(delay(2, 3), milliseconds(24));
  EXPECT_EQ(delay.of_compute(2, 3), milliseconds(23));
  EXPECT_EQ(DelayModel().of_compute(2, 3), milliseconds(0));
}

}  // namespace pauses_test
}  // namespace grapevine
