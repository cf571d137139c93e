// Packed lists come out as they went in, in few bytes, and no bytes of another process do harm.
#include "actors/protocol/packed_integers.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>
#include <string>

namespace grapevine {
namespace packed_integers_test {

using Random = std::mt19937_64;

std::string packed(const Integers& values) {
  std::string bytes;
  pack(values, bytes);
  return bytes;
}
std::string packed_within(const Integers& values, std::size_t most_bytes) {
  std::string bytes;
  pack_within(values, most_bytes, bytes);
  return bytes;
}
std::optional<Integers> read(const std::string& bytes) {
  PackedReader reader(bytes);
  auto values = reader.take();
  EXPECT_TRUE(!values || reader.at_end());
  return values;
}

// Of up to 64 bits, around any value, ascending or not.
Integers random_values(Random& random) {
  const std::uint64_t most = random() % 4 == 0 ? 5000 : 20;
  const std::size_t count = random() % most;
  const int bits = static_cast<int>(random() % 65);
  const std::uint64_t base = random() % 2 == 0 ? random() : random() % 100;
  Integers values(count);
  for (std::int64_t& value : values)
    value = static_cast<std::int64_t>(base + (bits == 0 ? 0 : random() >> (64 - bits)));
  if (random() % 2 == 0) std::sort(values.begin(), values.end());
  return values;
}

TEST(PackedIntegers, ComeOutAsTheyWentIn) {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    std::string bytes;
    std::vector<Integers> lists(1 + random() % 3);
    for (Integers& list : lists) {
      list = random_values(random);
      const std::size_t before = bytes.size();
      pack(list, bytes);
      EXPECT_LE(bytes.size() - before, 8 * list.size() + kPackedHead);
    }
    PackedReader reader(bytes);
    for (const Integers& list : lists) EXPECT_EQ(reader.take(), list);
    EXPECT_TRUE(reader.at_end());
    EXPECT_FALSE(reader.take());
  }
}

TEST(PackedIntegers, TakeEveryValue) {
  using Limits = std::numeric_limits<std::int64_t>;
  for (const Integers& values :
       {Integers{}, Integers{0}, Integers{-1}, Integers{Limits::min()}, Integers{Limits::max()},
        Integers{Limits::min(), Limits::max()}, Integers{Limits::max(), Limits::min()},
        Integers{Limits::min(), 0, Limits::max(), -1, 1}, Integers{5, 5, 5, 5}, Integers{3, 2, 1}})
    EXPECT_EQ(read(packed(values)), values);
}

TEST(PackedIntegers, OfRanksWithoutAGapTakeSevenBytes) {
  Integers ranks(4096);
  std::iota(ranks.begin(), ranks.end(), 0);
  EXPECT_LE(packed(ranks).size(), 7U);
  ranks.erase(ranks.begin() + 1000);
  EXPECT_LE(packed(ranks).size(), 7U + 4096 / 8) << "a bit for each step";
}

TEST(PackedIntegers, AreRoundedDownWhereTheyDoNotFit) {
  constexpr std::size_t kMost = 600;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Random random(seed);
    const Integers values = random_values(random);
    if (values.size() > 8 * kMost) continue;
    const std::string bytes = packed_within(values, kMost);
    EXPECT_LE(bytes.size(), kMost + kPackedHead);
    const auto rounded = read(bytes);
    ASSERT_TRUE(rounded);
    ASSERT_EQ(rounded->size(), values.size());
    if (values.empty()) continue;
    EXPECT_TRUE(8 * values.size() > kMost || *rounded == values);
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    // Arithmetic modulo 2^64: a range may take all 64 bits.
    const auto difference = [](std::int64_t a, std::int64_t b) {
      return static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b);
    };
    const std::uint64_t range = difference(*most, *least);
    const std::size_t bits = std::min<std::size_t>(64, 8 * kMost / values.size());
    const std::uint64_t most_lost = range >> (bits - 1);
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_LE((*rounded)[i], values[i]);
      EXPECT_GE((*rounded)[i], *least);
      EXPECT_LE(difference(values[i], (*rounded)[i]), most_lost);
    }
    EXPECT_EQ(packed_within(*rounded, kMost), bytes) << "they are written as they were read";
  }
}

TEST(PackedIntegers, ThatEndEarlyAreRefused) {
  Random random(1);
  for (int i = 0; i < 40; ++i) {
    const std::string bytes = packed(random_values(random));
    for (std::size_t size = 0; size < std::min<std::size_t>(bytes.size(), 200); ++size)
      EXPECT_FALSE(PackedReader(std::string_view(bytes).substr(0, size)).take()) << size;
  }
}

// A length that is more than any run has, or that has no bytes behind it: no memory is taken.
TEST(PackedIntegers, OfAHostileLengthAreRefused) {
  std::string equal = packed(Integers(kMostPacked, 7));
  EXPECT_EQ(read(equal)->size(), kMostPacked);
  EXPECT_FALSE(read(packed(Integers(kMostPacked + 1, 7))));
  Integers ascending(kMostPacked);
  std::iota(ascending.begin(), ascending.end(), 0);
  const auto copy = read(packed(ascending));
  ASSERT_TRUE(copy);
  EXPECT_EQ(*copy, ascending);
  EXPECT_EQ(copy->capacity(), kMostPacked) << "a list of equal steps takes more memory";
  ascending.push_back(static_cast<std::int64_t>(kMostPacked));
  EXPECT_FALSE(read(packed(ascending)));
  const std::string huge("\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x00\x00\x0e", 12);
  EXPECT_FALSE(read(huge));
  const std::string endless(100, '\xff');
  EXPECT_FALSE(read(endless));
  const std::string without_values("\x80\x80\x01\x40\x00\x00", 6);  // 16,384 of 64 bits
  EXPECT_FALSE(read(without_values));
  const std::string too_wide("\x01\x41\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", 13);
  EXPECT_FALSE(read(too_wide));
  const std::string of_no_kind("\x01\x00\x41\x00\x00", 5);
  EXPECT_FALSE(read(of_no_kind));
}

TEST(PackedIntegers, AnyBytesAreAListOrNone) {
  std::size_t lists = 0;
  for (std::uint64_t seed = 0; seed < 4000; ++seed) {
    Random random(seed);
    std::string bytes = packed(random_values(random));
    for (std::uint64_t flips = random() % 4; flips > 0; --flips)
      bytes[random() % std::min<std::size_t>(bytes.size(), 8)] ^=
          static_cast<char>(1U << (random() % 8));
    PackedReader reader(bytes);
    if (const auto values = reader.take()) {
      ++lists;
      EXPECT_LE(values->size(), kMostPacked) << "seed " << seed;
    }
  }
  EXPECT_GT(lists, 1000U);
}

}  // namespace packed_integers_test
}  // namespace grapevine
