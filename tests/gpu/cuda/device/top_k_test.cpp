// top_k.hpp against a stable sort: exactly the k largest, by index, whatever the guess made of
// them.
#include "gpu/cuda/top_k.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "gpu/cuda/selection.hpp"
#include "tests/gpu/cuda/device/device.hpp"

namespace grapevine::cuda {
namespace {

class TopK : public OnDevice {
 protected:
  void check_selection(const std::vector<float>& x, std::int64_t k, bool take,
                       std::int64_t offset = 0) {
    SCOPED_TRACE(testing::Message() << k << " of " << x.size() << ", take " << take);
    const auto d = static_cast<std::int64_t>(x.size()), room = std::min(k, d);
    DeviceArray<float> dx(x, offset), values(room);
    DeviceArray<std::uint32_t> indices(room), count(1);
    const auto bytes = top_k_workspace_bytes(d, k);
    ASSERT_TRUE(bytes.ok()) << bytes.error().message;
    DeviceArray<unsigned char> workspace(static_cast<std::int64_t>(*bytes));
    const auto select = [&](Candidates candidates) {
      require(top_k(indices.data(), values.data(), count.data(), dx.data(), take, d, k, candidates,
                    workspace.data(), stream_));
      workspace.read(stream_);
      return count.read(stream_)[0];
    };
    std::uint32_t found = select(Candidates::guessed);
    missed_ = found == kMissed;
    if (missed_) {
      expect_same_bits(dx.read(stream_), x);
      found = select(Candidates::all);
    }

    const std::vector<std::uint32_t> expected = oracle(x, k);
    ASSERT_EQ(found, expected.size());
    auto left = x;
    const auto actual = indices.read(stream_);
    const auto actual_bits = bits(values.read(stream_));
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(actual[i], expected[i]) << "entry " << i;
      ASSERT_EQ(actual_bits[i], bits_of(x[expected[i]])) << "entry " << i;
      if (take) left[expected[i]] = 0;
    }
    const auto after = dx.read(stream_);
    for (std::size_t i = 0; i < x.size(); ++i)
      if (left[i] == 0 && !std::isfinite(x[i])) {
        ASSERT_TRUE(std::isnan(after[i])) << "a number that is none vanished at " << i;
      } else {
        ASSERT_EQ(bits_of(after[i]), bits_of(left[i])) << "at " << i;
      }
  }

  bool missed_ = false;  // the guess of the last selection

  static std::vector<std::uint32_t> oracle(const std::vector<float>& x, std::int64_t k) {
    std::vector<std::uint32_t> order;
    for (std::uint32_t i = 0; i < x.size(); ++i)
      if (magnitude(x[i]) != 0) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return magnitude(x[a]) > magnitude(x[b]);
    });
    order.resize(std::min(order.size(), static_cast<std::size_t>(k)));
    std::sort(order.begin(), order.end());
    return order;
  }
};

TEST_F(TopK, TakesTheLargestOfEverySize) {
  for (const std::int64_t n : sizes())
    for (const std::int64_t k :
         {std::int64_t{0}, std::int64_t{1}, n / 1000, n / 10, n - 1, n, n + 5})
      if (k >= 0 && (n < 10000 || k <= n / 1000))
        for (const std::int64_t offset : {0, 1}) {
          check_selection(normal(n, 7), k, k % 2 == 0, offset);
          if (HasFatalFailure()) return;
        }
}

TEST_F(TopK, TakesALargeShare) {
  const std::int64_t n = 50003;
  for (const std::int64_t k : {n / 10, n / 2, n - 1, n}) {
    check_selection(normal(n, 8), k, true);
    if (HasFatalFailure()) return;
  }
}

TEST_F(TopK, OfEqualEntriesTheLowerIndexComesFirst) {
  for (const std::int64_t n : {std::int64_t{1000}, std::int64_t{50001}}) {
    std::vector<float> x(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i * 2654435761U % 5) - 2;  // -2 .. 2: five values, two magnitudes
    for (const std::int64_t k : {n / 5, n / 3, n / 2, n}) {
      check_selection(x, k, true);
      if (HasFatalFailure()) return;
    }
  }
}

// All equal: the list of candidates overflows.
TEST_F(TopK, HoldsWhereTheListOverflows) {
  const std::vector<float> x(50001, -0.5F);
  ASSERT_LT(candidate_capacity(7, 50001), 50001);
  for (const bool take : {false, true}) {
    check_selection(x, 7, take, 1);
    EXPECT_TRUE(missed_);
  }
}

// Large entries where no sample looks: the guess is zero or far too low or too high.
TEST_F(TopK, HoldsWhereTheSampleMisleads) {
  const std::int64_t n = 100000, k = 200;
  std::vector<bool> sampled(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < kSamples; ++i)
    sampled[sample_position(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(n))] = true;
  const auto noise = normal(n, 9);
  std::vector<float> high(noise), low(noise);
  for (std::size_t i = 0; i < high.size(); ++i) {
    if (!sampled[i]) high[i] *= 1e-3F;  // few are as large as the sample says
    if (sampled[i]) low[i] = 0;         // nothing that the sample sees
  }
  check_selection(high, k, true);
  check_selection(low, k, true);
  EXPECT_TRUE(missed_) << "most entries are candidates";
  // A guess above all but a few: candidates do not suffice.
  std::vector<float> spike(static_cast<std::size_t>(n), 1e-3F);
  std::int64_t spikes = 0;
  for (std::size_t i = 0; i < spike.size() && spikes < k / 2; ++i)
    if (sampled[i]) spike[i] = 1, ++spikes;
  check_selection(spike, k, true);
  check_selection(noise, k, true);
  EXPECT_FALSE(missed_) << "the sample is like the rest";
}

// More elements than all threads that a device holds. Nearly all is zero: the oracle is quick.
TEST_F(TopK, HoldsWithMoreElementsThanThreads) {
  std::vector<float> x((std::size_t{1} << 22) + 50001);
  for (std::size_t i = 17; i < x.size(); i += 1009) x[i] = static_cast<float>(i % 37) - 18;
  check_selection(x, 2000, true);
  check_selection(x, 5000, true);  // more than are not zero
}

TEST_F(TopK, ChoosesNoZerosAndHidesNothingThatIsNoNumber) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const std::int64_t n : {std::int64_t{100}, std::int64_t{70000}}) {
    std::vector<float> x(static_cast<std::size_t>(n));
    x[3] = 1e-45F, x[9] = -nan, x[50] = -infinity, x[51] = 3e38F, x[99] = -0.0F;
    for (const std::int64_t k : {1, 2, 3, 4, 5}) {
      check_selection(x, k, true);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace grapevine::cuda
