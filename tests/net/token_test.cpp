// Proofs and tokens.
#include "net/token.hpp"

#include <gtest/gtest.h>

#include <set>

#include "messages/text/log_limits.hpp"

namespace grapevine {
namespace token_test {

// Computed by Python's hmac and hashlib over each part behind its length in eight bytes.
TEST(Token, MacsAreThoseOfOthersImplementations) {
  EXPECT_EQ(mac_of("key", {"a", "bc"}),
            "732a3d11f8aa359c8f01a8e2a3c240e35e35a71da6686a8cab3eee8b1cbcca6c");
  EXPECT_EQ(mac_of("", {"text"}),
            "b777738921d5210e5523e5ce4fe98642a297801c9690eba5a3ebdb25e48d9114");
  EXPECT_EQ(mac_of(std::string(200, 'k'), {""}),
            "4e5f64883f5d7db33a71a8e074c1ad6c94e598417654da95a8949e3deb6d79b5");
}

TEST(Token, EveryPartAndTheKeyCount) {
  const std::set<std::string> all = {mac_of("key", {"a", "bc"}), mac_of("key", {"ab", "c"}),
                                     mac_of("key", {"abc"}),     mac_of("key", {"a", "bc", ""}),
                                     mac_of("kez", {"a", "bc"}), mac_of("", {"a", "bc"})};
  EXPECT_EQ(all.size(), 6U);
}

TEST(Token, RandomOnesDiffer) {
  std::set<std::string> all;
  for (int i = 0; i < 1000; ++i) {
    const std::string one = random_hex(16);
    EXPECT_EQ(one.size(), 32U);
    EXPECT_EQ(one.find_first_not_of("0123456789abcdef"), std::string::npos);
    all.insert(one);
  }
  EXPECT_EQ(all.size(), 1000U);
}

TEST(Token, OnlyEqualOnesAreEqual) {
  EXPECT_TRUE(equal_secrets("", ""));
  EXPECT_TRUE(equal_secrets("abc", "abc"));
  for (const std::string other : {"", "a", "ab", "abd", "abcabc", "abcd", "Abc"})
    EXPECT_FALSE(equal_secrets("abc", other)) << other;
  EXPECT_FALSE(equal_secrets("", "abc"));
  EXPECT_TRUE(equal_tokens(job_token("key", "1"), job_token("key", "1")));
  EXPECT_FALSE(equal_tokens(job_token("key", "1"), job_token("key", "2")));
  EXPECT_FALSE(equal_tokens(job_token("key", "1"), job_token("", "1")));
}

TEST(LogLimit, SaysOnceInAWhileAndCountsTheRest) {
  using namespace std::chrono_literals;
  LogLimit limit(10s);
  const LogLimit::Clock::time_point start{};
  EXPECT_EQ(limit.admit(start), "");
  for (int i = 0; i < 41; ++i) EXPECT_FALSE(limit.admit(start + 9s));
  EXPECT_EQ(limit.admit(start + 10s), " (and 41 more before)");
  EXPECT_FALSE(limit.admit(start + 11s));
  EXPECT_EQ(limit.admit(start + 30s), " (and 1 more before)");
}

TEST(LogLimits, EachKindHasALineUpToANumberOfKinds) {
  using namespace std::chrono_literals;
  LogLimits limits;
  const LogLimit::Clock::time_point start{};
  for (std::size_t kind = 0; kind < LogLimits::kMostKinds; ++kind) {
    EXPECT_EQ(limits.admit(std::to_string(kind), start), "") << kind;
    EXPECT_FALSE(limits.admit(std::to_string(kind), start + 1s)) << kind;
  }
  // Text that other processes choose fills neither the memory nor the disk.
  EXPECT_EQ(limits.admit("a", start), "");
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(limits.admit("a" + std::to_string(i), start + 1s));
  EXPECT_EQ(limits.admit("b", start + 10s), " (and 100 more before)");
  EXPECT_EQ(limits.admit("0", start + 10s), " (and 1 more before)");
}

}  // namespace token_test
}  // namespace grapevine
