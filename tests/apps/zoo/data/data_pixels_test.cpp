#include "apps/zoo/data/images/pixels.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>
#include <vector>

#include "apps/zoo/data/random_stream.hpp"

namespace grapevine {
namespace data_pixels_test {

// One output pixel, from the definition.
double oracle(const std::vector<std::uint8_t>& planes, const PixelShape& shape,
              const Normalization& normalization, const ImagePlacement& placement, int channel,
              int y, int x) {
  const int unmirrored = placement.mirrored ? shape.width - 1 - x : x;
  const int from_x = unmirrored - placement.right;
  const int from_y = y - placement.down;
  const bool inside = from_x >= 0 && from_x < shape.width && from_y >= 0 && from_y < shape.height;
  const double byte =
      inside ? planes[(channel * shape.height + from_y) * shape.width + from_x] : 0.0;
  return (byte / 255.0 - normalization.mean[channel]) / normalization.deviation[channel];
}

TEST(Pixels, NormalizedMatchesTheOracle) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed);
    const PixelShape shape{random.chance(0.5) ? 3 : 1, static_cast<int>(random.below(9) + 1),
                           static_cast<int>(random.below(9) + 1)};
    std::vector<std::uint8_t> planes(shape.size());
    for (std::uint8_t& byte : planes) byte = static_cast<std::uint8_t>(random.below(256));
    const Normalization normalization{{0.1F, 0.5F, 0.9F}, {0.2F, 0.3F, 0.4F}};
    const ImagePlacement placement{static_cast<int>(random.below(25)) - 12,
                                   static_cast<int>(random.below(25)) - 12, random.chance(0.5)};
    std::vector<float> out(shape.size());
    write_normalized(planes.data(), shape, normalization, placement, out.data());
    for (int c = 0; c < shape.channels; ++c)
      for (int y = 0; y < shape.height; ++y)
        for (int x = 0; x < shape.width; ++x)
          EXPECT_NEAR(out[(c * shape.height + y) * shape.width + x],
                      oracle(planes, shape, normalization, placement, c, y, x), 1e-5);
  }
}

TEST(Pixels, PlacementsReachEveryCropAndBothSides) {
  std::set<std::tuple<int, int, bool>> seen;
  for (std::int64_t index = 0; index < 6000; ++index) {
    const ImagePlacement placement = random_placement(5, index, {4, 4});
    EXPECT_LE(std::abs(placement.right), 4);
    EXPECT_LE(std::abs(placement.down), 4);
    seen.emplace(placement.right, placement.down, placement.mirrored);
  }
  EXPECT_EQ(seen.size(), 9U * 9U * 2U);
}

TEST(Pixels, PlacementIsAFunctionOfSeedAndIndex) {
  int same_as_next_seed = 0;
  for (std::int64_t index = 0; index < 500; ++index) {
    const ImagePlacement a = random_placement(8, index, {4, 4});
    const ImagePlacement b = random_placement(8, index, {4, 4});
    const ImagePlacement c = random_placement(9, index, {4, 4});
    EXPECT_TRUE(a.right == b.right && a.down == b.down && a.mirrored == b.mirrored);
    if (a.right == c.right && a.down == c.down && a.mirrored == c.mirrored) ++same_as_next_seed;
    const ImagePlacement none = random_placement(0, index, {4, 4});
    EXPECT_TRUE(none.right == 0 && none.down == 0 && !none.mirrored);
  }
  EXPECT_LT(same_as_next_seed, 20);
}

}  // namespace data_pixels_test
}  // namespace grapevine
