#include "apps/trace/wait_tracker.hpp"

#include <gtest/gtest.h>

#include "tests/apps/trace/trace_folder.hpp"

namespace grapevine {
namespace wait_tracker_test {

using testing_apps::record_of;

TraceRecord with_peer(TraceRecord record, Rank peer, std::uint64_t sequence = 0,
                      PayloadKind payload = PayloadKind::none) {
  record.peer = peer;
  record.sequence = sequence;
  record.payload = payload;
  return record;
}

TEST(WaitTracker, TellsHowLongAndWhichMessageEndedIt) {
  WaitTracker waits(2);
  EXPECT_FALSE(waits.add(with_peer(record_of(EventKind::wait_begin, 10, 1, 4), 0)));
  EXPECT_FALSE(
      waits.add(with_peer(record_of(EventKind::received, 30, 1, 4), 0, 7, PayloadKind::share)));
  const auto wait = waits.add(with_peer(record_of(EventKind::wait_end, 31, 1, 4), 0, 7));
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->rank, 1);
  EXPECT_EQ(wait->step, 4);
  EXPECT_EQ(wait->begin_ns, 10);
  EXPECT_EQ(wait->duration_ns(), 21);
  EXPECT_EQ(wait->awaited, 0);
  EXPECT_EQ(wait->released_by, 0);
  EXPECT_EQ(wait->sequence, 7U);
  EXPECT_EQ(wait->payload, PayloadKind::share);
}

TEST(WaitTracker, AnEndWithoutBeginIsNoWait) {
  WaitTracker waits(1);
  EXPECT_FALSE(waits.add(record_of(EventKind::wait_end, 31, 0, 4)));
}

TEST(WaitTracker, ATimerHasNoMessage) {
  WaitTracker waits(1);
  waits.add(with_peer(record_of(EventKind::received, 5, 0, 0), 3, 9, PayloadKind::chunk));
  waits.add(record_of(EventKind::wait_begin, 10, 0, 0));
  const auto wait = waits.add(record_of(EventKind::wait_end, 12, 0, 0));
  ASSERT_TRUE(wait);
  EXPECT_EQ(wait->released_by, -1);
  EXPECT_EQ(wait->payload, PayloadKind::none);
}

TEST(WaitTracker, TheOuterOfTwoWaitsCounts) {
  WaitTracker waits(1);
  waits.add(record_of(EventKind::wait_begin, 10, 0, 0));
  waits.add(record_of(EventKind::wait_begin, 20, 0, 0));
  EXPECT_EQ(waits.add(record_of(EventKind::wait_end, 30, 0, 0))->duration_ns(), 20);
  EXPECT_FALSE(waits.add(record_of(EventKind::wait_end, 40, 0, 0)));
}

TEST(WaitTracker, TheTimeBetweenTwoRunsIsNoWait) {
  WaitTracker waits(1);
  waits.add(record_of(EventKind::wait_begin, 10, 0, 0));
  waits.add(record_of(EventKind::resumed, 1000, 0, 0));
  EXPECT_EQ(waits.add(record_of(EventKind::wait_end, 1007, 0, 0))->duration_ns(), 7);
}

// Rank 1 waits when it dies; rank 0 notices much later, and rank 1 takes part again.
TEST(WaitTracker, AWaitOfALostRankEndsAtItsLastRecord) {
  WaitTracker waits(2);
  waits.add(record_of(EventKind::wait_begin, 10, 1, 0));
  waits.add(with_peer(record_of(EventKind::received, 30, 1, 0), 0, 1, PayloadKind::share));
  const auto cut = waits.add(with_peer(record_of(EventKind::view, 7000, 0, 0), 1));
  ASSERT_TRUE(cut);
  EXPECT_EQ(cut->rank, 1);
  EXPECT_EQ(cut->duration_ns(), 20);
  waits.add(record_of(EventKind::wait_begin, 7040, 1, 0));
  EXPECT_FALSE(waits.add(with_peer(record_of(EventKind::view, 8000, 1, 0), 1)));
  EXPECT_FALSE(waits.add(record_of(EventKind::wait_end, 8007, 1, 0))) << "of its earlier life";
}

}  // namespace wait_tracker_test
}  // namespace grapevine
