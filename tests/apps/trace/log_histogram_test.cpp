#include "apps/trace/log_histogram.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace grapevine {
namespace log_histogram_test {

double exact(const std::vector<std::int64_t>& sorted, double q) {
  const auto rank = static_cast<std::size_t>(std::ceil(q * static_cast<double>(sorted.size())));
  return static_cast<double>(sorted[rank - 1]);
}

TEST(LogHistogram, QuantilesAreWithinTheirBound) {
  constexpr std::uint64_t kSeed = 11;
  std::mt19937_64 rng(kSeed);
  for (const double sigma : {0.1, 1.0, 4.0}) {
    std::lognormal_distribution<double> draw(std::log(1e6), sigma);
    LogHistogram histogram;
    std::vector<std::int64_t> values;
    for (int i = 0; i < 20000; ++i) values.push_back(static_cast<std::int64_t>(draw(rng)));
    for (const std::int64_t value : values) histogram.add(value);
    std::sort(values.begin(), values.end());
    for (const double q : {0.001, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const double truth = exact(values, q);
      EXPECT_NEAR(histogram.quantile(q), truth, truth / 128) << "seed " << kSeed << ", q " << q;
    }
  }
}

TEST(LogHistogram, SmallValuesAreExact) {
  for (std::int64_t value = 0; value < 128; ++value) {
    LogHistogram histogram;
    histogram.add(value);
    EXPECT_EQ(histogram.quantile(0.5), static_cast<double>(value));
  }
}

TEST(LogHistogram, TakesTheEndsOfTheRange) {
  LogHistogram histogram;
  histogram.add(std::numeric_limits<std::int64_t>::min());
  histogram.add(std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(histogram.count(), 2U);
  EXPECT_EQ(histogram.quantile(0.5), 0);
  EXPECT_NEAR(histogram.quantile(1), std::ldexp(1.0, 63), std::ldexp(1.0, 63) / 128);
}

}  // namespace log_histogram_test
}  // namespace grapevine
