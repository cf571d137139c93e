#include "net/rank_router.hpp"

#include <gtest/gtest.h>

#include <memory>

#include "messages/check.hpp"
#include "tests/conformance/transport_suite.hpp"

namespace grapevine::conformance {
namespace rank_router_test {

// Ranks 0 and 1 live here, 2 and 3 in process 1, 4 in process 2.
Placement three_processes() { return {{0, 0, 1, 1, 2}, {"a", "a", "b"}, 0}; }

std::shared_ptr<RecordingInbox> attach(RankRouter& router, Rank rank) {
  auto inbox = std::make_shared<RecordingInbox>();
  EXPECT_TRUE(router.attach(rank, inbox).ok());
  return inbox;
}

TEST(RankRouter, SortsMessagesByWhereTheyGo) {
  RankRouter router(three_processes());
  const auto first = attach(router, 0);
  const auto second = attach(router, 1);
  router.send(numbered(0, 1, 0));
  router.send(numbered(0, 2, 1));
  router.send(numbered(1, 4, 2));
  EXPECT_EQ(second->message_count(), 1u);
  ASSERT_TRUE(router.has_outgoing());
  const auto outgoing = router.take_outgoing();
  ASSERT_EQ(outgoing.size(), 2u);
  EXPECT_EQ(outgoing[0].process, 1);
  EXPECT_EQ(outgoing[1].process, 2);
  EXPECT_EQ(std::get<EncodedMessage>(outgoing[0].what).header, encode_header(numbered(0, 2, 1)));
  EXPECT_FALSE(router.has_outgoing());
  EXPECT_EQ(router.counters(0).messages_sent, 2u);
}

TEST(RankRouter, AProcessSpeaksForItsOwnRanksAndToLocalOnes) {
  const Placement placement = three_processes();
  EXPECT_TRUE(check_sender(placement, 1, 2, 0).ok());
  EXPECT_TRUE(check_departure(placement, 2, 4).ok());
  for (const Rank wrong : {-1, 0, 4, 5}) {
    const auto sender = check_sender(placement, 1, wrong, 0);
    const auto departure = check_departure(placement, 1, wrong);
    ASSERT_FALSE(sender.ok() || departure.ok()) << wrong;
    EXPECT_EQ(sender.error().code, Errc::protocol);
    EXPECT_EQ(departure.error().code, Errc::protocol);
  }
  EXPECT_FALSE(check_sender(placement, 1, 2, 3).ok());
}

TEST(RankRouter, ADepartureFollowsTheMessagesToEveryProcess) {
  RankRouter router(three_processes());
  attach(router, 0);
  const auto second = attach(router, 1);
  router.send(numbered(0, 2, 0));
  router.detach(0);
  router.detach(0);
  router.send(numbered(0, 2, 1));
  const auto outgoing = router.take_outgoing();
  ASSERT_EQ(outgoing.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<EncodedMessage>(outgoing[0].what));
  for (const std::size_t i : {1, 2}) {
    EXPECT_EQ(std::get<Departure>(outgoing[i].what).rank, 0);
    EXPECT_EQ(outgoing[i].process, static_cast<std::int32_t>(i));
  }
  EXPECT_EQ(second->down_count(0), 1);
  EXPECT_EQ(router.counters(0).messages_dropped, 1u);
}

TEST(RankRouter, WhatArrivesBeforeTheAttachWaitsInOrder) {
  RankRouter router(three_processes());
  router.arrived(numbered(2, 0, 0));
  router.arrived(numbered(2, 0, 1));
  router.rank_left(2);
  router.arrived(numbered(2, 0, 2));
  const auto inbox = attach(router, 0);
  EXPECT_EQ(inbox->messages_from(2).size(), 2u);
  EXPECT_TRUE(counts_up(inbox->messages_from(2)));
  EXPECT_TRUE(inbox->arrivals().back().is_down);
}

TEST(RankRouter, ALostProcessTakesAllItsRanksOnce) {
  RankRouter router(three_processes());
  const auto inbox = attach(router, 0);
  router.rank_left(3);
  EXPECT_TRUE(router.process_left(1, "silent"));
  EXPECT_FALSE(router.process_left(1, "silent")) << "it is reported once";
  for (const Rank rank : {2, 3}) EXPECT_EQ(inbox->down_count(rank), 1) << rank;
  EXPECT_EQ(inbox->down_reason(2), "silent");
  EXPECT_EQ(inbox->down_reason(3), "") << "it had left before";
  EXPECT_EQ(inbox->down_count(4), 0);
  router.send(numbered(0, 2, 0));
  EXPECT_EQ(router.counters(0).messages_dropped, 1u);
  EXPECT_FALSE(router.has_outgoing());
}

TEST(RankRouter, NothingIsDeliveredAfterClose) {
  RankRouter router(three_processes());
  const auto inbox = attach(router, 0);
  const std::weak_ptr<RecordingInbox> watched = attach(router, 1);
  router.close();
  router.arrived(numbered(2, 0, 0));
  router.process_left(2, "silent");
  EXPECT_TRUE(inbox->arrivals().empty());
  EXPECT_TRUE(watched.expired());
}

TEST(RankRouter, RefusesWhoDoesNotLiveHere) {
  RankRouter router(three_processes());
  attach(router, 0);
  for (const Rank rank : {-1, 5, 2, 0}) {
    const Expected<void> attached = router.attach(rank, std::make_shared<RecordingInbox>());
    ASSERT_FALSE(attached.ok());
    EXPECT_NE(attached.error().message.find(std::to_string(rank)), std::string::npos);
  }
  router.detach(0);
  EXPECT_FALSE(router.attach(0, std::make_shared<RecordingInbox>()).ok());
  EXPECT_THROW(router.send(numbered(2, 0, 0)), InvariantBroken);
  EXPECT_THROW(router.counters(2), InvariantBroken);
}

}  // namespace rank_router_test
}  // namespace grapevine::conformance
