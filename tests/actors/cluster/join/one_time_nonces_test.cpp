// Random numbers that count once, and for a while.
#include "actors/cluster/join/one_time_nonces.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

namespace grapevine {
namespace one_time_nonces_test {

using std::chrono::hours;
using std::chrono::nanoseconds;

TEST(OneTimeNonces, CountOnceAndForAWhile) {
  OneTimeNonces nonces, others;
  const Timestamp now = hours(3);
  const std::string nonce = nonces.make(now);
  EXPECT_NE(nonce, nonces.make(now));
  EXPECT_FALSE(others.use(nonce, now));
  EXPECT_FALSE(nonces.use("", now));
  EXPECT_FALSE(nonces.use(".", now));
  EXPECT_FALSE(nonces.use(nonce, now - nanoseconds(1))) << "it has not been given yet";
  EXPECT_TRUE(nonces.use(nonce, now));
  EXPECT_FALSE(nonces.use(nonce, now));
  const std::string old = nonces.make(now);
  EXPECT_FALSE(nonces.use(old, now + OneTimeNonces::kValid));
  EXPECT_TRUE(nonces.use(old, now + OneTimeNonces::kValid - nanoseconds(1)));
  EXPECT_FALSE(nonces.use(nonce, now + OneTimeNonces::kValid)) << "it is forgotten, and too old";
}

// No character can be changed, left out or added: not the time either.
TEST(OneTimeNonces, ChangedOnesDoNotCount) {
  OneTimeNonces nonces;
  const Timestamp now = hours(3);
  const std::string nonce = nonces.make(now);
  for (std::size_t at = 0; at < nonce.size(); ++at) {
    std::string changed = nonce;
    changed[at] = changed[at] == '0' ? '1' : '0';
    EXPECT_FALSE(nonces.use(changed, now)) << changed;
    EXPECT_FALSE(nonces.use(nonce.substr(0, at) + nonce.substr(at + 1), now)) << at;
    EXPECT_FALSE(nonces.use(nonce.substr(0, at) + "0" + nonce.substr(at), now)) << at;
  }
  EXPECT_TRUE(nonces.use(nonce, now));
}

// Many are given, used and used again, in any order, as the time passes.
TEST(OneTimeNonces, EachCountsOnceInAnyOrder) {
  const unsigned seed = 7;
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  OneTimeNonces nonces;
  struct Given {
    std::string nonce;
    Timestamp at;
    bool used = false;
  };
  std::vector<Given> all;
  Timestamp now = hours(3);
  for (int i = 0; i < 4000; ++i) {
    now += nanoseconds(random() % 20'000'000);
    all.push_back({nonces.make(now), now});
    const std::size_t newest = std::min<std::size_t>(all.size(), 1200);
    Given& one = all[all.size() - 1 - random() % newest];
    const bool counts = !one.used && now - one.at < OneTimeNonces::kValid;
    ASSERT_EQ(nonces.use(one.nonce, now), counts) << i;
    one.used = one.used || counts;
  }
}

}  // namespace one_time_nonces_test
}  // namespace grapevine
