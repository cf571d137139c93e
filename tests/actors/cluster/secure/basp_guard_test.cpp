// BaspGuard lets pass what CAF's middleman writes, however it is cut, and refuses the rest before a
// payload is read.
#include "actors/cluster/secure/basp_guard.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include <caf/io/basp/message_type.hpp>

#include "messages/random.hpp"

namespace grapevine {
namespace basp_guard_test {

using First = BaspGuard::First;

std::string header(unsigned kind, std::uint32_t length) {
  std::string bytes(32, '\0');
  bytes[0] = static_cast<char>(kind);
  for (int i = 0; i < 4; ++i) bytes[4 + i] = static_cast<char>(length >> (24 - 8 * i));
  return bytes;
}

Expected<void> take(BaspGuard& guard, const std::string& bytes) {
  return guard.take(bytes.data(), bytes.size());
}

std::string random_text(Rng& rng, std::size_t size) {
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(rng());
  return text;
}

TEST(BaspGuard, MessagesPassHoweverTheyAreCut) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    const First first =
        rng() % 2 == 0 ? First::greeting_of_accepting_side : First::greeting_of_dialling_side;
    const std::uint32_t greeting = static_cast<std::uint32_t>(rng() % 4097);
    std::string bytes = header(static_cast<unsigned>(first), greeting) + random_text(rng, greeting);
    std::uint32_t longest = greeting;
    for (std::uint64_t messages = rng() % 20; messages > 0; --messages) {
      const auto length = static_cast<std::uint32_t>(rng() % 3 == 0 ? 0 : rng() % 2000);
      longest = std::max(longest, length);
      constexpr unsigned kDirect[] = {0, 1, 2, 4, 5, 6};
      bytes += header(kDirect[rng() % std::size(kDirect)], length) + random_text(rng, length);
    }
    BaspGuard guard(first);
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t count = std::min<std::size_t>(bytes.size() - at, 1 + rng() % 300);
      const auto taken = guard.take(bytes.data() + at, count);
      ASSERT_TRUE(taken.ok()) << taken.error().message << " at " << at;
      at += count;
      EXPECT_EQ(guard.has_message(), at >= 32 + greeting) << "at " << at;
    }
    EXPECT_EQ(guard.take_longest(), longest);
    EXPECT_EQ(guard.take_longest(), 0U);
    // Afterwards it is at the start of a message.
    EXPECT_FALSE(take(guard, "\x7f").ok());
  }
}

TEST(BaspGuard, OtherProgramsAreRefusedAtTheirFirstByte) {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.0\r\n\r\n"), std::string("\x16\x03\x01"),
        std::string("SSH-2.0-x\r\n"), std::string("\xff"), std::string("\x01\x01\x00", 3)}) {
    BaspGuard guard(First::greeting_of_dialling_side);
    const auto taken = take(guard, bytes);
    ASSERT_FALSE(taken.ok()) << bytes;
    EXPECT_EQ(taken.error().code, Errc::protocol);
  }
  for (unsigned kind = 0; kind < 256; ++kind) {
    BaspGuard accepts(First::greeting_of_dialling_side), dials(First::greeting_of_accepting_side);
    EXPECT_EQ(take(accepts, header(kind, 0)).ok(), kind == 1) << kind;
    EXPECT_EQ(take(dials, header(kind, 0)).ok(), kind == 0) << kind;
    EXPECT_EQ(take(accepts, header(kind, 0)).ok(), kind == 1) << "a second greeting, " << kind;
  }
}

// Its sender is the one that it names, also an actor of the receiving process, and its receiver may
// be an actor of a third process.
TEST(BaspGuard, MessagesInTheNameOfAnotherProcessAreRefused) {
  constexpr auto kRouted = static_cast<unsigned>(caf::io::basp::message_type::routed_message);
  for (const First first : {First::greeting_of_accepting_side, First::greeting_of_dialling_side}) {
    BaspGuard guard(first);
    ASSERT_TRUE(take(guard, header(static_cast<unsigned>(first), 0)).ok());
    EXPECT_FALSE(take(guard, header(kRouted, 0)).ok());
  }
}

TEST(BaspGuard, LengthsBeyondTheLimitsAreRefused) {
  constexpr std::uint32_t kLargest = std::numeric_limits<std::uint32_t>::max();
  for (const std::uint32_t length :
       {BaspGuard::kMostGreetingBytes + 1, BaspGuard::kMostPayloadBytes, kLargest}) {
    BaspGuard guard(First::greeting_of_dialling_side);
    EXPECT_FALSE(take(guard, header(1, length)).ok()) << length;
  }
  for (const std::uint32_t length :
       {BaspGuard::kMostPayloadBytes, BaspGuard::kMostPayloadBytes + 1, kLargest}) {
    BaspGuard guard(First::greeting_of_dialling_side);
    ASSERT_TRUE(take(guard, header(1, 0)).ok());
    const auto taken = take(guard, header(2, length));
    EXPECT_EQ(taken.ok(), length == BaspGuard::kMostPayloadBytes) << length;
    if (!taken) {
      EXPECT_NE(taken.error().message.find("1 MiB"), std::string::npos);
    }
  }
}

}  // namespace basp_guard_test
}  // namespace grapevine
