// sparse.hpp and quantised.hpp against naive loops.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gpu/cuda/quantised.hpp"
#include "gpu/cuda/sparse.hpp"
#include "tests/gpu/cuda/device/device.hpp"

namespace grapevine::cuda {
namespace {

class Sparse : public OnDevice {};
class Quantised : public OnDevice {};

// About `share` of the indices below d, and a value for each.
struct List {
  std::vector<std::uint32_t> indices;
  std::vector<float> values;
};
List random_list(std::uint32_t d, double share, std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::bernoulli_distribution chosen(share);
  std::normal_distribution<float> value;
  List list;
  for (std::uint32_t i = 0; i < d; ++i)
    if (chosen(rng)) list.indices.push_back(i), list.values.push_back(value(rng));
  return list;
}

TEST_F(Sparse, AddsItsEntriesAlone) {
  for (const double share : {0.0, 0.001, 0.5, 1.0}) {
    const auto x = normal(100003, 1);
    const List list = random_list(100003, share, 2);
    const auto n = static_cast<std::int64_t>(list.indices.size());
    DeviceArray<float> dx(x), values(list.values);
    DeviceArray<std::uint32_t> indices(list.indices);
    require(add_entries(dx.data(), indices.data(), values.data(), -0.3F, n, stream_));
    auto expected = x;
    for (std::size_t i = 0; i < list.indices.size(); ++i)
      expected[list.indices[i]] += -0.3F * list.values[i];
    expect_same_bits(dx.read(stream_), expected);
  }
}

TEST_F(Quantised, Int8IsTheRuleAndItsErrorIsBelowAStep) {
  for (const std::int64_t n : sizes())
    for (const std::int64_t offset : {0, 1}) {
      SCOPED_TRACE(testing::Message() << n << " elements, " << offset << " from alignment");
      const auto x = normal(n, 5), y = normal(n, 6);
      DeviceArray<float> dx(x, offset), scales(int8_blocks(n)), to(y, offset);
      DeviceArray<std::int8_t> values(n, offset);
      require(int8_pack(values.data(), scales.data(), dx.data(), 42, n, stream_));
      require(int8_fold(to.data(), values.data(), scales.data(), 0.7F, n, stream_));
      const auto levels = values.read(stream_);
      const auto actual_scales = scales.read(stream_);
      const auto folded = to.read(stream_);
      for (std::int64_t b = 0; b < int8_blocks(n); ++b) {
        float most = 0;
        const std::int64_t end = std::min(n, (b + 1) * kInt8Block);
        for (std::int64_t i = b * kInt8Block; i < end; ++i)
          most = std::max(most, std::fabs(x[static_cast<std::size_t>(i)]));
        const float scale = most / 127;
        ASSERT_EQ(actual_scales[static_cast<std::size_t>(b)], scale);
        for (std::int64_t j = b * kInt8Block; j < end; ++j) {
          const auto i = static_cast<std::size_t>(j);
          ASSERT_EQ(levels[i], int8_level(x[i], scale, uniform(42, j))) << "at " << i;
          ASSERT_LE(std::fabs(static_cast<float>(levels[i]) * scale - x[i]), scale * 1.0001F);
          ASSERT_EQ(bits_of(folded[i]),
                    bits_of(y[i] + 0.7F * (static_cast<float>(levels[i]) * scale)))
              << "at " << i;
        }
      }
    }
}

TEST_F(Quantised, Int8BlocksThatAreNotFiniteSayNaN) {
  std::vector<float> x = normal(3000, 7);
  x[1500] = std::numeric_limits<float>::infinity();
  x[2500] = std::numeric_limits<float>::quiet_NaN();
  DeviceArray<float> dx(x), scales(3);
  DeviceArray<std::int8_t> values(3000);
  require(int8_pack(values.data(), scales.data(), dx.data(), 1, 3000, stream_));
  const auto s = scales.read(stream_);
  EXPECT_TRUE(std::isfinite(s[0]));
  EXPECT_TRUE(std::isnan(s[1]));
  EXPECT_TRUE(std::isnan(s[2]));
  const auto levels = values.read(stream_);
  EXPECT_EQ(levels[1200], 0);
}

}  // namespace
}  // namespace grapevine::cuda
