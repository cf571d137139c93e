#include "actors/run/peer/early_messages.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace grapevine {
namespace early_messages_test {

Envelope from(Rank rank, Payload payload) {
  Envelope envelope;
  envelope.from = rank;
  envelope.payload = std::move(payload);
  return envelope;
}
Payload share(std::int64_t round, at::ScalarType type) {
  return Share{round, 1, FrozenTensor::copy_of(at::full({3}, static_cast<double>(round), type))};
}
Payload sum(std::int64_t round) { return share(round, at::kDouble); }

// Sender and kind of each, with the round of a share, or the number of a marker.
std::vector<std::string> texts(std::vector<Envelope> envelopes) {
  std::vector<std::string> texts;
  for (const Envelope& envelope : envelopes) {
    std::string text = std::to_string(envelope.from);
    if (const auto* of_round = std::get_if<Share>(&envelope.payload))
      text += " share " + std::to_string(of_round->round);
    else if (const auto* marker = std::get_if<Marker>(&envelope.payload))
      text += " marker " + std::to_string(marker->id);
    else
      text += " other";
    texts.push_back(text);
  }
  return texts;
}
using Texts = std::vector<std::string>;

TEST(EarlyMessages, TheNewestRunningSumOfEachSenderIsKept) {
  EarlyMessages early;
  for (std::int64_t round = 0; round < 1000; ++round)
    for (const Rank rank : {0, 1, 3}) early.add(from(rank, sum(round)));
  EXPECT_EQ(texts(early.take()), (Texts{"0 share 999", "1 share 999", "3 share 999"}));
  EXPECT_TRUE(early.take().empty());
}

TEST(EarlyMessages, ASumThatWasOvertakenOrCameTwiceIsLeftOut) {
  EarlyMessages early;
  early.add(from(1, sum(5)));
  early.add(from(1, sum(5)));
  early.add(from(1, sum(4)));
  early.add(from(2, sum(3)));
  EXPECT_EQ(texts(early.take()), (Texts{"1 share 5", "2 share 3"}));
}

// As if the older sum had been lost: what came before a marker never comes after it, or the other
// way round.
TEST(EarlyMessages, OtherMessagesKeepTheirOrder) {
  EarlyMessages early;
  early.add(from(1, sum(1)));
  early.add(from(1, Marker{7}));
  early.add(from(2, sum(1)));
  early.add(from(1, sum(2)));
  early.add(from(1, Leave{-1}));
  EXPECT_EQ(texts(early.take()), (Texts{"1 marker 7", "2 share 1", "1 share 2", "1 other"}));
}

// Each of them counts once.
TEST(EarlyMessages, SharesByThemselvesAreAllKept) {
  EarlyMessages early;
  for (const std::int64_t round : {1, 2, 3}) early.add(from(1, share(round, at::kFloat)));
  early.add(from(1, Share{4, 1, FrozenTensor()}));
  EXPECT_EQ(texts(early.take()).size(), 4U);
}

TEST(EarlyMessages, ThoseOfOneSenderAreDropped) {
  EarlyMessages early;
  for (const Rank rank : {1, 2, 1}) early.add(from(rank, Leave{3}));
  early.drop_those_of(1);
  EXPECT_EQ(texts(early.take()), Texts{"2 other"});
}

}  // namespace early_messages_test
}  // namespace grapevine
