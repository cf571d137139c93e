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
      bool continues = true;
      while (std::exchange(continues, false))
        for (Receiver& one : receivers)
          continues |= one.advance(rng, static_cast<std::int64_t>(bytes.size()));
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

TEST(PartialState, HasTheBytesOfItsPartsAndGivesItsMemoryAway) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed=" << seed);
    Rng rng(seed);
    const StateStream::Parts parts = random_parts(1 + rng() % 30, rng);
    const std::vector<char> bytes = bytes_of(parts);
    StateStream stream(1, parts);
    PartialState state;
    while (const auto part = stream.next()) {
      EXPECT_FALSE(state.is_complete());
      ASSERT_TRUE(state.add(*part));
      EXPECT_TRUE(stream.arrived(state.arrived()));
    }
    EXPECT_TRUE(state.is_complete());
    EXPECT_EQ(state.total(), static_cast<std::int64_t>(bytes.size()));
    const std::vector<char> taken = state.take();
    EXPECT_EQ(taken, bytes);
    EXPECT_EQ(taken.capacity(), bytes.size());
    EXPECT_EQ(state.total(), 0);
    EXPECT_EQ(state.take().capacity(), 0U) << "it has kept the memory of a state";
  }
}

StateChunk part_of(std::int64_t offset, std::int64_t total, at::Tensor data) {
  return {1, offset, total, FrozenTensor::freeze(std::move(data))};
}

TEST(PartialState, TakesNoPartThatDoesNotFollow) {
  const auto bytes = [](std::int64_t count) { return at::zeros({count}, at::kByte); };
  PartialState state;
  EXPECT_FALSE(state.add(part_of(1, 9, bytes(1)))) << "not the first";
  EXPECT_FALSE(state.add(part_of(0, 9, bytes(10)))) << "longer than the whole";
  EXPECT_FALSE(state.add(part_of(0, 9, bytes(0)))) << "empty";
  EXPECT_FALSE(state.add(part_of(0, 9, at::zeros({1}))));
  ASSERT_TRUE(state.add(part_of(0, 9, bytes(4))));
  EXPECT_FALSE(state.add(part_of(0, 9, bytes(4)))) << "twice";
  EXPECT_FALSE(state.add(part_of(4, 8, bytes(4)))) << "of another length";
  EXPECT_FALSE(state.add(part_of(5, 9, bytes(4)))) << "with a gap";
  EXPECT_TRUE(state.add(part_of(4, 9, bytes(5))));
  EXPECT_TRUE(state.is_complete());
}

TEST(PartialState, TakesMemoryForWhatHasArrivedAlone) {
  PartialState state;
  const std::int64_t announced = std::int64_t{1} << 62;
  ASSERT_TRUE(state.add(part_of(0, announced, at::zeros({1000}, at::kByte))));
  ASSERT_TRUE(state.add(part_of(1000, announced, at::zeros({5000}, at::kByte))));
  EXPECT_LE(state.take().capacity(), 12000U);
}

}  // namespace state_stream_test
}  // namespace grapevine
