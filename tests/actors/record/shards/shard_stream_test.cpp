// A state in parts is the state, and few parts are on their way.
#include "actors/record/shards/shard_stream.hpp"

#include <gtest/gtest.h>

#include <deque>

#include "messages/random.hpp"

namespace grapevine {
namespace shard_stream_test {

std::vector<char> random_bytes(std::int64_t size, Rng& rng) {
  std::vector<char> bytes(static_cast<std::size_t>(size));
  const std::uint64_t first = rng(), step = rng();
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>((first + i * step) >> 32);
  return bytes;
}

TEST(ShardStream, GivesAllBytesInOrderInsideItsWindow) {
  constexpr std::int64_t kPart = ShardStream::kPart;
  Rng rng(1);
  for (const std::int64_t size : {std::int64_t{1}, kPart - 1, kPart, kPart + 1, 9 * kPart + 5}) {
    SCOPED_TRACE(size);
    const std::vector<char> bytes = random_bytes(size, rng);
    ShardStream stream(7, bytes);
    std::vector<char> arrived;
    std::deque<StateChunk> on_the_way;
    std::int64_t most = 0;
    while (!stream.done()) {
      while (auto part = stream.next()) on_the_way.push_back(*std::move(part));
      ASSERT_FALSE(on_the_way.empty());
      std::int64_t waiting = 0;
      for (const StateChunk& part : on_the_way) waiting += part.data.numel();
      most = std::max(most, waiting);
      // Some of them are stored, of which the newest count is told.
      for (std::size_t take = 1 + rng() % on_the_way.size(); take > 0; --take) {
        const StateChunk part = on_the_way.front();
        on_the_way.pop_front();
        EXPECT_TRUE(is_of_cut(part));
        EXPECT_EQ(cut_of(part), 7);
        EXPECT_EQ(part.total, size);
        EXPECT_EQ(part.offset, static_cast<std::int64_t>(arrived.size()));
        const auto* data = static_cast<const char*>(part.data.raw());
        arrived.insert(arrived.end(), data, data + part.data.numel());
      }
      ASSERT_TRUE(stream.stored(static_cast<std::int64_t>(arrived.size())));
    }
    EXPECT_EQ(arrived, bytes);
    EXPECT_LE(most, ShardStream::kWindow);
    EXPECT_FALSE(stream.next());
  }
}

TEST(ShardStream, BelievesNoCountThatCannotBe) {
  Rng rng(2);
  ShardStream stream(1, random_bytes(3 * ShardStream::kPart, rng));
  EXPECT_FALSE(stream.stored(1)) << "nothing is sent";
  const auto first = stream.next();
  ASSERT_TRUE(first);
  EXPECT_TRUE(stream.stored(first->data.numel()));
  EXPECT_FALSE(stream.stored(first->data.numel())) << "twice";
  EXPECT_FALSE(stream.stored(3 * ShardStream::kPart)) << "more than is sent";
}

}  // namespace shard_stream_test
}  // namespace grapevine
