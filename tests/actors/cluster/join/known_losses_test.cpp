// The losses that a process hears of while it joins: each reaches its transport once, and none
// before it is connected.
#include "actors/cluster/join/known_losses.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace grapevine {
namespace known_losses_test {

TEST(KnownLosses, AreReportedOnceTheTransportIsConnected) {
  std::vector<std::int32_t> reported;
  KnownLosses losses([&](std::int32_t process) { reported.push_back(process); });
  losses.add(2);
  EXPECT_TRUE(losses.has(2));
  EXPECT_FALSE(losses.has(1));
  EXPECT_TRUE(reported.empty());
  losses.on_connected();
  EXPECT_EQ(reported, std::vector<std::int32_t>{2});
  losses.add(1);
  EXPECT_EQ(reported, (std::vector<std::int32_t>{2, 1}));
}

// Whichever comes first.
TEST(KnownLosses, NoneIsMissedBesideTheConnection) {
  constexpr std::int32_t kLost = 200;
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> reported{0};
    KnownLosses losses([&](std::int32_t) { ++reported; });
    std::thread agent([&] {
      for (std::int32_t process = 0; process < kLost; ++process) losses.add(process);
    });
    losses.on_connected();
    agent.join();
    ASSERT_EQ(reported, kLost) << "round " << round;
  }
}

}  // namespace known_losses_test
}  // namespace grapevine
