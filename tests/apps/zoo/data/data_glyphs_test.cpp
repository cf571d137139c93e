#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "apps/zoo/data.hpp"
#include "apps/zoo/data/glyphs/glyph_render.hpp"
#include "apps/zoo/data/glyphs/glyph_strokes.hpp"
#include "tests/apps/zoo/data/data_testing.hpp"

namespace grapevine {
namespace data_glyphs_test {

std::shared_ptr<const DataSet> glyphs(const std::string& spec, std::uint64_t seed = 1) {
  DataOptions options;
  options.seed = seed;
  return *make_data_set(spec, options);
}

TEST(Glyphs, KeepsTheContract) {
  const auto data = glyphs("glyphs:60");
  EXPECT_EQ(data->info().sample_shape, (std::vector<std::int64_t>{1, 28, 28}));
  EXPECT_EQ(data->info().classes, 10);
  EXPECT_EQ(data->info().train_size, 60);
  EXPECT_EQ(data->info().test_size, 10);
  EXPECT_FALSE(data->info().slow);
  expect_keeps_the_contract(*data, 0);
  expect_keeps_the_contract(*data, 3);
  expect_threads_agree(*data, 0);
}

TEST(Glyphs, DefaultSizesAndStatistics) {
  const auto data = glyphs("glyphs");
  EXPECT_EQ(data->info().train_size, 12000);
  EXPECT_EQ(data->info().test_size, 2000);
  const Batch train = *data->batch(Split::train, index_range(0, 12000), 0);
  EXPECT_TRUE(train.target.bincount().eq(1200).all().item<bool>());
  EXPECT_NEAR(train.input.mean().item<double>(), 0, 0.01);
  EXPECT_NEAR(train.input.std().item<double>(), 1, 0.01);
  const Batch test = *data->batch(Split::test, index_range(0, 2000), 0);
  EXPECT_TRUE(test.target.bincount().eq(200).all().item<bool>());
}

TEST(Glyphs, AnyTenInARowHoldEachDigitOnce) {
  const auto data = glyphs("glyphs:600");
  for (const Split split : {Split::train, Split::test})
    for (std::int64_t first = 0; first < 100; first += 10) {
      const Batch batch = *data->batch(split, index_range(first, 10), 0);
      EXPECT_TRUE(std::get<0>(batch.target.sort()).equal(at::arange(10))) << first;
      EXPECT_FALSE(batch.target.equal(at::arange(10)) && first > 0) << "not shuffled: " << first;
    }
}

TEST(Glyphs, NeitherTheSizeNorTheSeedChangesAnImage) {
  const auto indices = index_range(0, 60);
  const Batch few = *glyphs("glyphs:60", 1)->batch(Split::train, indices, 0);
  const Batch many = *glyphs("glyphs:200", 99)->batch(Split::train, indices, 7);
  EXPECT_TRUE(same_batches(few, many));
}

TEST(Glyphs, NoTwoImagesAreAlikeAndTestImagesAreNew) {
  const auto data = glyphs("glyphs:1000");
  const auto flat = [&](Split split, std::int64_t count) {
    return data->batch(split, index_range(0, count), 0)->input.view({count, -1});
  };
  const at::Tensor train = flat(Split::train, 1000);
  const at::Tensor test = flat(Split::test, 160);
  EXPECT_GT(at::pdist(train).min().item<double>(), 1.0);
  EXPECT_GT(at::cdist(test, train).min().item<double>(), 1.0);
}

// Ink away from the borders: no digit is cut off or missing.
TEST(Glyphs, DigitsLieInsideTheImage) {
  for (int digit = 0; digit < 10; ++digit)
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
      std::vector<std::uint8_t> pixels(kGlyphSide * kGlyphSide);
      RandomStream random(mix_seed(seed, digit));
      render_glyph(digit, random, pixels.data());
      const auto image =
          at::from_blob(pixels.data(), {kGlyphSide, kGlyphSide}, at::kByte).to(at::kDouble);
      const double middle = image.slice(0, 3, 25).slice(1, 3, 25).max().item<double>();
      EXPECT_GT(middle, 140) << "digit " << digit << " seed " << seed;
      const at::Tensor border = at::cat(
          {image[0], image[kGlyphSide - 1], image.select(1, 0), image.select(1, kGlyphSide - 1)});
      EXPECT_LT(border.gt(170).sum().item<int>(), 14) << "digit " << digit << " seed " << seed;
    }
}

TEST(GlyphStrokes, EveryDigitHasStylesInsideTheUnitSquare) {
  for (int digit = 0; digit < 10; ++digit) {
    SCOPED_TRACE(digit);
    EXPECT_GE(glyph_styles(digit).size(), 2U);
    for (const GlyphStyle& style : glyph_styles(digit)) {
      EXPECT_FALSE(style.empty());
      for (const GlyphStroke& stroke : style) {
        EXPECT_GE(stroke.size(), 2U);
        for (const GlyphPoint& point : flatten(stroke, 8)) {
          EXPECT_GT(point.x, -0.06);
          EXPECT_LT(point.x, 1.06);
          EXPECT_GT(point.y, -0.06);
          EXPECT_LT(point.y, 1.06);
        }
      }
    }
  }
  EXPECT_THROW((void)glyph_styles(10), InvariantBroken);
}

TEST(GlyphStrokes, CurvesPassThroughTheirPointsAndCloseSmoothly) {
  const GlyphStroke ring{{0.5, 0}, {0, 0.5}, {0.5, 1}, {1, 0.5}, {0.5, 0}};
  const std::vector<GlyphPoint> line = flatten(ring, 10);
  ASSERT_EQ(line.size(), 41U);
  for (std::size_t i = 0; i < ring.size(); ++i) {
    EXPECT_NEAR(line[10 * i].x, ring[i].x, 1e-12);
    EXPECT_NEAR(line[10 * i].y, ring[i].y, 1e-12);
  }
  // No corner at the seam: the ring is its own mirror image there.
  EXPECT_NEAR(line[1].y, line[39].y, 1e-12);
  EXPECT_NEAR(line[1].x, 1 - line[39].x, 1e-12);
  const std::vector<GlyphPoint> open = flatten({{0, 0}, {0.5, 0.5}, {1, 1}}, 4);
  for (const GlyphPoint& point : open) EXPECT_NEAR(point.x, point.y, 1e-12);
}

}  // namespace data_glyphs_test
}  // namespace grapevine
