// A state in parts is the state, and few parts are on their way.
#include "actors/record/state_stream.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "messages/random.hpp"

namespace grapevine {
namespace state_stream_test {

constexpr std::size_t kWindow = StateStream::kWindow;

// Of different lengths.
StateStream::Parts random_parts(std::size_t count, Rng& rng) {
  std::vector<FrozenTensor> parts;
  for (std::size_t i = 0; i < count; ++i) {
    at::Tensor part = at::empty({static_cast<std::int64_t>(1 + rng() % 9)}, at::kByte);
    for (std::int64_t at = 0; at < part.numel(); ++at)
      part.data_ptr<std::uint8_t>()[at] = static_cast<std::uint8_t>(rng());
    parts.push_back(FrozenTensor::freeze(std::move(part)));
  }
  return std::make_shared<const std::vector<FrozenTensor>>(std::move(parts));
}

void append(std::vector<char>& bytes, const FrozenTensor& part) {
  const auto* data = static_cast<const char*>(part.raw());
  bytes.insert(bytes.end(), data, data + part.numel());
}

std::vector<char> bytes_of(const StateStream::Parts& parts) {
  std::vector<char> bytes;
  for (const FrozenTensor& part : *parts) append(bytes, part);
  return bytes;
}

// A receiver that takes some of the parts that are on their way, and reports the newest count.
struct Receiver {
  explicit Receiver(StateStream of) : stream(std::move(of)) {}

  // False: it has all.
  bool advance(Rng& rng, std::int64_t total) {
    while (auto part = stream.next()) on_the_way.push_back(*std::move(part));
    most = std::max(most, on_the_way.size());
    if (on_the_way.empty()) return false;
    for (std::size_t take = 1 + rng() % on_the_way.size(); take > 0; --take) {
      const StateChunk part = std::move(on_the_way.front());
      on_the_way.pop_front();
      EXPECT_EQ(part.transfer, stream.transfer());
      EXPECT_EQ(part.total, total);
      EXPECT_EQ(part.offset, static_cast<std::int64_t>(arrived.size()));
      append(arrived, part.data);
    }
    EXPECT_TRUE(stream.arrived(static_cast<std::int64_t>(arrived.size())));
    return true;
  }

  StateStream stream;
  std::deque<StateChunk> on_the_way;
  std::vector<char> arrived;
  std::size_t most = 0;
};

TEST(StateStream, GivesAllBytesInOrderInsideItsWindow) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed)
    for (const std::size_t count :
         {std::size_t{0}, std::size_t{1}, kWindow - 1, kWindow, kWindow + 1, 5 * kWindow + 2}) {
      SCOPED_TRACE(testing::Message() << count << " parts, seed=" << seed);
      Rng rng(seed);
      StateStream::Parts parts = random_parts(count, rng);
      const std::vector<char> bytes = bytes_of(parts);
      std::vector<Receiver> receivers;
      for (std::size_t i = 0; i < 1 + seed % 3; ++i)
        receivers.emplace_back(StateStream(static_cast<std::int64_t>(i), parts));
      const std::weak_ptr<const std::vector<FrozenTensor>> kept = parts;
      parts.reset();
      bool goes_on = true;
      while (std::exchange(goes_on, false))
        for (Receiver& one : receivers)
          goes_on |= one.advance(rng, static_cast<std::int64_t>(bytes.size()));
      for (Receiver& one : receivers) {
        EXPECT_EQ(one.arrived, bytes);
        EXPECT_TRUE(one.stream.done());
        EXPECT_FALSE(one.stream.next());
        EXPECT_EQ(one.most, std::min(count, kWindow));
      }
      EXPECT_FALSE(kept.expired());
      receivers.clear();
      EXPECT_TRUE(kept.expired()) << "the last stream has not released the state";
    }
}

TEST(StateStream, IsDoneOnceTheLastPartHasArrived) {
  Rng rng(3);
  StateStream stream(1, random_parts(2, rng));
  const auto first = stream.next(), second = stream.next();
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(stream.arrived(second->offset));
  EXPECT_FALSE(stream.done());
  EXPECT_TRUE(stream.arrived(second->total));
  EXPECT_TRUE(stream.done());
}

TEST(StateStream, BelievesNoCountThatCannotBe) {
  Rng rng(2);
  StateStream stream(1, random_parts(3, rng));
  EXPECT_FALSE(stream.arrived(0));
  EXPECT_FALSE(stream.arrived(1)) << "nothing is sent";
  const auto first = stream.next();
  ASSERT_TRUE(first);
  const std::int64_t length = first->data.numel();
  EXPECT_FALSE(stream.arrived(length - 1)) << "a part of a part";
  EXPECT_FALSE(stream.arrived(-1));
  EXPECT_TRUE(stream.arrived(length));
  EXPECT_FALSE(stream.arrived(length)) << "twice";
  EXPECT_FALSE(stream.arrived(first->total)) << "more than is sent";
}

}  // namespace state_stream_test
}  // namespace grapevine
