#include "messages/trace/clock_fit.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <random>

namespace grapevine {
namespace clock_fit_test {

constexpr std::int64_t kSecond = 1000000000;

// A clock that was `offset_ns` behind the head's at its zero, and runs fast by `drift`.
struct RemoteClock {
  std::int64_t offset_ns;
  double drift;

  std::int64_t at(std::int64_t head_ns) const {
    return head_ns - offset_ns + static_cast<std::int64_t>(drift * static_cast<double>(head_ns));
  }
};

// Bursts of eight questions a minute; both ways take their own random time. Returns the longest of
// the shortest round trips of the bursts.
std::int64_t ask(const RemoteClock& clock, std::int64_t seconds, std::mt19937_64& rng,
                 std::vector<ClockSample>& samples) {
  std::exponential_distribution<double> delay(1.0 / 200e3);
  std::int64_t longest = 0;
  for (std::int64_t burst = 0; burst <= seconds; burst += 60) {
    std::int64_t shortest = std::numeric_limits<std::int64_t>::max();
    for (int i = 0; i < 8; ++i) {
      ClockSample sample;
      sample.sent_ns = burst * kSecond + i * kSecond / 10;
      const std::int64_t there = sample.sent_ns + 20000 + static_cast<std::int64_t>(delay(rng));
      sample.remote_ns = clock.at(there);
      sample.received_ns = there + 20000 + static_cast<std::int64_t>(delay(rng));
      shortest = std::min(shortest, sample.received_ns - sample.sent_ns);
      samples.push_back(sample);
    }
    longest = std::max(longest, shortest);
  }
  return longest;
}

TEST(ClockFit, IsWithinHalfOfTheRoundTrip) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    for (const RemoteClock& clock :
         {RemoteClock{0, 0}, RemoteClock{7 * kSecond, 0}, RemoteClock{-3 * kSecond, 50e-6},
          RemoteClock{1700000000 * kSecond, -50e-6}}) {
      std::mt19937_64 rng(seed);
      std::vector<ClockSample> samples;
      const std::int64_t round_trip = ask(clock, 600, rng, samples);
      const ClockFit fit(samples);
      for (std::int64_t head = kSecond; head <= 600 * kSecond; head += 7 * kSecond) {
        const std::int64_t error = fit.to_coordinator(clock.at(head)) - head;
        // 1 us for the rounding of a drift over days.
        EXPECT_LE(std::abs(error), round_trip / 2 + 1000)
            << "seed " << seed << ", drift " << clock.drift << ", at " << head;
      }
    }
  }
}

// Without the second burst, drift would be an error of 30 ms here.
TEST(ClockFit, FollowsDriftAfterTheLastSample) {
  const RemoteClock clock{kSecond, 50e-6};
  std::mt19937_64 rng(3);
  std::vector<ClockSample> samples;
  const std::int64_t round_trip = ask(clock, 600, rng, samples);
  const ClockFit fit(samples);
  const std::int64_t head = 660 * kSecond;
  EXPECT_LE(std::abs(fit.to_coordinator(clock.at(head)) - head), 2 * round_trip);
}

TEST(ClockFit, KeepsTheOrderOfTimes) {
  const RemoteClock clock{kSecond, 20e-6};
  std::mt19937_64 rng(4);
  std::vector<ClockSample> samples;
  ask(clock, 600, rng, samples);
  const ClockFit fit(samples);
  std::int64_t before = std::numeric_limits<std::int64_t>::min();
  for (std::int64_t remote = -5 * kSecond; remote < 700 * kSecond; remote += kSecond / 3) {
    EXPECT_GT(fit.to_coordinator(remote), before);
    before = fit.to_coordinator(remote);
  }
}

TEST(ClockFit, OffsetsAdd) {
  EXPECT_EQ(ClockFit().to_coordinator(5), 5);
  ClockFit fit(100);
  EXPECT_EQ(fit.to_coordinator(5), 105);
  fit.shift_by(-30);
  EXPECT_EQ(fit.to_coordinator(5), 75);
  ClockFit same;
  same.shift_by(3);
  EXPECT_EQ(same.to_coordinator(5), 8);
}

}  // namespace clock_fit_test
}  // namespace grapevine
