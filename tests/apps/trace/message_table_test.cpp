#include "apps/trace/message_table.hpp"

#include <gtest/gtest.h>

namespace grapevine {
namespace message_table_test {

TraceRecord record(EventKind kind, Rank rank, Rank peer, std::uint64_t sequence,
                   std::int64_t time_ns) {
  TraceRecord record;
  record.kind = kind;
  record.rank = rank;
  record.peer = peer;
  record.sequence = sequence;
  record.time_ns = time_ns;
  record.payload = PayloadKind::share;
  return record;
}

TEST(MessageTable, JoinsSendingAndReceipt) {
  MessageTable table(0);
  table.sent(record(EventKind::sent, 0, 1, 1, 100));
  table.sent(record(EventKind::sent, 0, 2, 2, 110));
  table.sent(record(EventKind::sent, 1, 0, 1, 120));
  const auto message = table.received(record(EventKind::received, 1, 0, 1, 150));
  ASSERT_TRUE(message);
  EXPECT_EQ(message->latency_ns(), 50);
  EXPECT_EQ(message->payload, PayloadKind::share);
  EXPECT_FALSE(table.received(record(EventKind::received, 1, 0, 2, 160))) << "went to rank 2";
  EXPECT_EQ(table.received(record(EventKind::received, 0, 1, 1, 160))->latency_ns(), 40);
}

TEST(MessageTable, AReceiptPassesMessagesThatWereLost) {
  MessageTable table(0);
  for (std::uint64_t i = 1; i <= 3; ++i) table.sent(record(EventKind::sent, 0, 1, i, 0));
  EXPECT_TRUE(table.received(record(EventKind::received, 1, 0, 3, 9)));
  EXPECT_FALSE(table.received(record(EventKind::received, 1, 0, 1, 9)));
}

TEST(MessageTable, KeepsTheNewestReceipts) {
  constexpr std::uint64_t kMessages = 1000, kKept = 10;
  MessageTable table(kKept);
  for (std::uint64_t i = 1; i <= kMessages; ++i) {
    table.sent(record(EventKind::sent, 0, 1, i, static_cast<std::int64_t>(i)));
    ASSERT_TRUE(table.received(record(EventKind::received, 1, 0, i, 2000)));
  }
  for (std::uint64_t i = 1; i <= kMessages; ++i) {
    const auto found = table.applied(record(EventKind::applied, 1, 0, i, 3000));
    EXPECT_EQ(found.has_value(), i > kMessages - kKept) << i;
    if (found) {
      EXPECT_EQ(found->latency_ns(), 2000 - static_cast<std::int64_t>(i));
    }
  }
  EXPECT_FALSE(table.applied(record(EventKind::applied, 1, 0, 0, 3000))) << "names no message";
  EXPECT_FALSE(table.applied(record(EventKind::applied, 1, 3, 1, 3000))) << "of no link";
}

// A receiver without a trace must not fill the memory.
TEST(MessageTable, ForgetsMessagesThatNobodyReceives) {
  MessageTable table(0);
  constexpr std::uint64_t kMessages = 1 << 18;
  for (std::uint64_t i = 1; i <= kMessages; ++i) table.sent(record(EventKind::sent, 0, 1, i, 0));
  EXPECT_FALSE(table.received(record(EventKind::received, 1, 0, 1, 9)));
  EXPECT_TRUE(table.received(record(EventKind::received, 1, 0, kMessages, 9)));
}

}  // namespace message_table_test
}  // namespace grapevine
