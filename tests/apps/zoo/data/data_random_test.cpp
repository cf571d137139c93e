#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "apps/zoo/data/random_stream.hpp"

namespace grapevine {
namespace data_random_test {

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

// Share of `values` at or below x, against the normal distribution, in standard errors.
double deviation_at(const std::vector<float>& values, double x) {
  double below = 0;
  for (const float value : values) below += value <= x ? 1 : 0;
  const double count = static_cast<double>(values.size());
  const double expected = normal_cdf(x);
  return std::abs(below / count - expected) / std::sqrt(expected * (1 - expected) / count);
}

TEST(RandomStream, NormalsHaveTheDistribution) {
  for (const std::uint64_t key : {1, 2, 3}) {
    SCOPED_TRACE(key);
    std::vector<float> filled(400000);
    fill_normal(key, filled.data(), static_cast<std::int64_t>(filled.size()));
    std::vector<float> drawn(400000);
    RandomStream stream(key);
    for (float& value : drawn) value = static_cast<float>(stream.normal());
    // -3.6 and 3.6 lie beyond the ziggurat's base, 0.27 inside its top layer.
    for (const std::vector<float>* values : {&filled, &drawn})
      for (const double x : {-3.6, -3.0, -2.0, -1.0, -0.27, 0.0, 0.27, 0.5, 1.5, 2.5, 3.3, 3.6})
        EXPECT_LT(deviation_at(*values, x), 4.5) << "at " << x;
  }
}

TEST(RandomStream, NeighboursAreUncorrelated) {
  constexpr std::int64_t kCount = 200000;
  std::vector<float> a(kCount);
  std::vector<float> b(kCount);
  fill_normal(mix_seed(9, 0), a.data(), kCount);
  fill_normal(mix_seed(9, 1), b.data(), kCount);
  double within = 0;
  double between = 0;
  for (std::int64_t i = 0; i + 1 < kCount; ++i) {
    within += static_cast<double>(a[i]) * a[i + 1];
    between += static_cast<double>(a[i]) * b[i];
  }
  const double limit = 4.5 * std::sqrt(static_cast<double>(kCount));
  EXPECT_LT(std::abs(within), limit);
  EXPECT_LT(std::abs(between), limit);
}

TEST(RandomStream, FillIsAPrefixOfALongerFill) {
  std::vector<float> whole(1001);
  fill_normal(5, whole.data(), 1001);
  for (const std::int64_t n : {0, 1, 2, 7, 1000}) {
    std::vector<float> part(n + 1, 77.0F);
    fill_normal(5, part.data(), n);
    EXPECT_EQ(std::memcmp(part.data(), whole.data(), n * sizeof(float)), 0) << n;
    EXPECT_EQ(part[n], 77.0F) << n;
  }
}

TEST(RandomStream, BelowCoversItsRangeEvenly) {
  RandomStream stream(4);
  std::vector<int> counts(7);
  for (int i = 0; i < 70000; ++i) {
    const std::int64_t value = stream.below(7);
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 7);
    ++counts[value];
  }
  for (const int count : counts) EXPECT_NEAR(count, 10000, 450);
  for (int i = 0; i < 1000; ++i) {
    const double value = stream.uniform(-2, 3);
    EXPECT_GE(value, -2);
    EXPECT_LT(value, 3);
  }
}

}  // namespace data_random_test
}  // namespace grapevine
