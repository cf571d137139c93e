// Decoding and resizing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "apps/zoo/data/images/image_file.hpp"
#include "apps/zoo/data/images/image_resize.hpp"
#include "apps/zoo/data/random_stream.hpp"
#include "tests/apps/zoo/data/data_testing.hpp"

namespace grapevine {
namespace data_image_file_test {

Expected<Image> decode(const std::string& path, int reduction = 1) {
  auto file = ImageFile::open(path);
  if (!file) return file.error();
  return file->decode(reduction);
}

void expect_uniform(const Image& image, const TestBytes& rgb, int tolerance) {
  for (std::size_t i = 0; i < image.rgb.size(); ++i)
    ASSERT_NEAR(image.rgb[i], rgb[i % 3], tolerance) << "byte " << i;
}

TestBytes smooth_pixels(int width, int height) {
  TestBytes pixels;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (const int value : {255 * x / width, 255 * y / height, 128})
        pixels.push_back(static_cast<std::uint8_t>(value));
  return pixels;
}

class ImageFiles : public testing::Test {
 protected:
  TempFolder folder_;
};

TEST_F(ImageFiles, JpegColours) {
  const std::string path = folder_.file("a.jpg");
  write_jpeg(path, 20, 12, 3, uniform_pixels(20, 12, {200, 40, 90}));
  auto image = decode(path);
  ASSERT_TRUE(image.ok()) << image.error().message;
  EXPECT_EQ(image->extent.width, 20);
  EXPECT_EQ(image->extent.height, 12);
  EXPECT_EQ(image->rgb.size(), 20U * 12U * 3U);
  expect_uniform(*image, {200, 40, 90}, 4);
  write_jpeg(path, 9, 30, 1, uniform_pixels(9, 30, {77}));
  expect_uniform(*decode(path), {77, 77, 77}, 2);
  // Ink 50/255 cyan, no magenta, 100/255 yellow and 30/255 black.
  write_jpeg(path, 16, 16, 4, uniform_pixels(16, 16, {50, 0, 100, 30}));
  expect_uniform(*decode(path), {205 * 225 / 255, 225, 155 * 225 / 255}, 4);
}

// Of a sequential image these fields of the scan header mean nothing, and all of it is decoded.
TEST_F(ImageFiles, JpegWithOddScanFieldsLosesNoPixel) {
  const std::string path = folder_.file("a.jpg");
  write_jpeg(path, 20, 12, 3, smooth_pixels(20, 12));
  const auto whole = decode(path);
  ASSERT_TRUE(whole.ok());
  TestBytes bytes = read_bytes(path);
  const TestBytes scan{0xFF, 0xDA};
  const auto at = std::search(bytes.begin(), bytes.end(), scan.begin(), scan.end());
  ASSERT_GT(bytes.end() - at, 14);
  ASSERT_EQ(at[12], 63) << "the last coefficient of the scan";
  at[12] = 0;
  write_bytes(path, bytes);
  const auto image = decode(path);
  ASSERT_TRUE(image.ok()) << image.error().message;
  EXPECT_EQ(image->rgb, whole->rgb);
}

TEST_F(ImageFiles, JpegReduction) {
  const std::string path = folder_.file("a.jpg");
  write_jpeg(path, 100, 60, 3, smooth_pixels(100, 60));
  for (const int reduction : {1, 2, 4, 8}) {
    SCOPED_TRACE(reduction);
    auto image = decode(path, reduction);
    ASSERT_TRUE(image.ok());
    EXPECT_EQ(image->extent.width, (100 + reduction - 1) / reduction);
    EXPECT_EQ(image->extent.height, (60 + reduction - 1) / reduction);
    const int x = image->extent.width / 2;
    const int y = image->extent.height / 2;
    const std::size_t middle = 3U * (y * image->extent.width + x);
    EXPECT_NEAR(image->rgb[middle], 255 * (x + 0.5) * reduction / 100, 6);
    EXPECT_NEAR(image->rgb[middle + 1], 255 * (y + 0.5) * reduction / 60, 6);
  }
}

TEST_F(ImageFiles, PngKinds) {
  const std::string path = folder_.file("a.png");
  RandomStream random(3);
  TestBytes pixels(7 * 5 * 3);
  for (std::uint8_t& byte : pixels) byte = static_cast<std::uint8_t>(random.below(256));
  write_png(path, 7, 5, PNG_FORMAT_RGB, pixels);
  EXPECT_EQ(decode(path)->rgb, pixels);
  write_png(path, 4, 4, PNG_FORMAT_GRAY, uniform_pixels(4, 4, {99}));
  expect_uniform(*decode(path), {99, 99, 99}, 0);
  // Transparent pixels show the white behind them.
  write_png(path, 4, 4, PNG_FORMAT_RGBA, uniform_pixels(4, 4, {10, 20, 30, 0}));
  expect_uniform(*decode(path), {255, 255, 255}, 0);
  write_png(path, 4, 4, PNG_FORMAT_RGBA, uniform_pixels(4, 4, {10, 20, 30, 255}));
  expect_uniform(*decode(path), {10, 20, 30}, 0);
  write_png(path, 4, 4, PNG_FORMAT_RGB_COLORMAP, uniform_pixels(4, 4, {1}), {0, 0, 0, 9, 80, 200});
  expect_uniform(*decode(path), {9, 80, 200}, 0);
  // 16 bits a channel, linear light: half the light is 188 of 255 in sRGB
  // (libpng takes the power 1 / 2.2 for it: 186).
  const std::vector<std::uint16_t> light(4 * 4 * 3, 32768);
  TestBytes raw(light.size() * 2);
  std::memcpy(raw.data(), light.data(), raw.size());
  write_png(path, 4, 4, PNG_FORMAT_LINEAR_RGB, raw);
  expect_uniform(*decode(path), {188, 188, 188}, 3);
}

TEST_F(ImageFiles, TheFirstBytesTellTheKind) {
  const std::string path = folder_.file("really_a_png.JPEG");
  write_png(path, 4, 4, PNG_FORMAT_GRAY, uniform_pixels(4, 4, {99}));
  expect_uniform(*decode(path), {99, 99, 99}, 0);
  write_bytes(path, {'G', 'I', 'F', '8', '9', 'a'});
  expect_error(decode(path).error(), {path + ": neither a JPEG nor a PNG image"});
  write_bytes(path, {});
  expect_error(decode(path).error(), {path + ": neither a JPEG nor a PNG image"});
  expect_error(decode(folder_.file("absent.jpg")).error(), {"absent.jpg: cannot be read"});
  expect_error(decode(folder_.path()).error(), {"cannot be read"});
}

// Cut anywhere, an image is an error that names the file, and nothing is printed.
TEST_F(ImageFiles, CutOffImagesAreErrors) {
  const std::string jpeg = folder_.file("a.jpg");
  const std::string png = folder_.file("a.png");
  write_jpeg(jpeg, 40, 40, 3, smooth_pixels(40, 40));
  write_png(png, 40, 40, PNG_FORMAT_RGB, smooth_pixels(40, 40));
  for (const std::string& path : {jpeg, png}) {
    const TestBytes whole = read_bytes(path);
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    // The last bytes are PNG's empty end chunk (12) and JPEG's end marker (2), which hold no
    // pixels.
    for (std::size_t size = 0; size + 13 < whole.size(); size += 17) {
      write_bytes(path, TestBytes(whole.begin(), whole.begin() + size));
      auto image = decode(path);
      ASSERT_FALSE(image.ok()) << path << " cut to " << size << " of " << whole.size();
      expect_error(image.error(), {path + ": "});
    }
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  }
}

// Flipped bytes may leave an image that still decodes; they must never end the process or print.
TEST_F(ImageFiles, DamagedBytesNeverEscape) {
  const std::string path = folder_.file("a.img");
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  int errors = 0;
  for (const bool jpeg : {true, false}) {
    if (jpeg) write_jpeg(path, 30, 30, 3, smooth_pixels(30, 30));
    if (!jpeg) write_png(path, 30, 30, PNG_FORMAT_RGB, smooth_pixels(30, 30));
    const TestBytes whole = read_bytes(path);
    RandomStream random(11);
    for (int trial = 0; trial < 400; ++trial) {
      TestBytes bytes = whole;
      bytes[random.below(static_cast<std::int64_t>(bytes.size()))] ^=
          static_cast<std::uint8_t>(1 + random.below(255));
      write_bytes(path, bytes);
      errors += decode(path).ok() ? 0 : 1;
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_GT(errors, 300);
}

TEST_F(ImageFiles, AHugeSizeIsRefusedBeforeItIsAllocated) {
  const std::string path = folder_.file("a.jpg");
  write_jpeg(path, 8, 8, 1, uniform_pixels(8, 8, {5}));
  TestBytes bytes = read_bytes(path);
  for (std::size_t i = 0; i + 8 < bytes.size(); ++i)
    if (bytes[i] == 0xFF && bytes[i + 1] == 0xC0) {
      for (int k = 5; k < 9; ++k) bytes[i + k] = 0xF0;
      break;
    }
  write_bytes(path, bytes);
  expect_error(ImageFile::open(path).error(), {path + ": 61680 x 61680 pixels"});
}

Image random_image(RandomStream& random, int width, int height) {
  Image image{{width, height}, std::vector<std::uint8_t>(std::size_t{3} * width * height)};
  for (std::uint8_t& byte : image.rgb) byte = static_cast<std::uint8_t>(random.below(256));
  return image;
}

// The definition in two dimensions and double precision: triangle weights, normalised.
double resized_pixel(const Image& image, const ImageRegion& region, const ImageExtent& extent,
                     int channel, int out_x, int out_y) {
  const double scale_x = region.width / extent.width;
  const double scale_y = region.height / extent.height;
  double sum = 0;
  double weights = 0;
  for (int y = 0; y < image.extent.height; ++y)
    for (int x = 0; x < image.extent.width; ++x) {
      const double off_x = x + 0.5 - region.x - (out_x + 0.5) * scale_x;
      const double off_y = y + 0.5 - region.y - (out_y + 0.5) * scale_y;
      const double weight = std::max(0.0, 1 - std::abs(off_x) / std::max(1.0, scale_x)) *
                            std::max(0.0, 1 - std::abs(off_y) / std::max(1.0, scale_y));
      sum += weight * image.rgb[3 * (y * image.extent.width + x) + channel];
      weights += weight;
    }
  return sum / weights;
}

TEST(ImageResize, MatchesTheOracle) {
  for (std::uint64_t seed = 0; seed < 25; ++seed) {
    SCOPED_TRACE(seed);
    RandomStream random(seed);
    const auto pick = [&](int low, int high) {
      return low + static_cast<int>(random.below(high - low + 1));
    };
    const Image image = random_image(random, pick(1, 30), pick(1, 30));
    const ImageExtent extent{pick(1, 20), pick(1, 20)};
    const double width = random.uniform(0.5, image.extent.width);
    const double height = random.uniform(0.5, image.extent.height);
    const ImageRegion region{random.uniform(0, image.extent.width - width),
                             random.uniform(0, image.extent.height - height), width, height};
    const std::vector<std::uint8_t> planes = resize(image, region, extent);
    ASSERT_EQ(planes.size(), std::size_t{3} * extent.width * extent.height);
    std::size_t at = 0;
    for (int c = 0; c < 3; ++c)
      for (int y = 0; y < extent.height; ++y)
        for (int x = 0; x < extent.width; ++x)
          EXPECT_NEAR(planes[at++], resized_pixel(image, region, extent, c, x, y), 0.51);
  }
}

TEST(ImageResize, WholePixelsAtTheirOwnSizeAreUnchanged) {
  RandomStream random(2);
  const Image image = random_image(random, 13, 9);
  const std::vector<std::uint8_t> planes = resize(image, {4, 2, 6, 5}, {6, 5});
  for (int c = 0; c < 3; ++c)
    for (int y = 0; y < 5; ++y)
      for (int x = 0; x < 6; ++x)
        EXPECT_EQ(planes[(c * 5 + y) * 6 + x], image.rgb[3 * ((y + 2) * 13 + x + 4) + c]);
}

TEST(ImageResize, RegionsLieInsideTheImage) {
  const auto expect_inside = [](const ImageRegion& region, const ImageExtent& image) {
    EXPECT_GE(region.x, -1e-9);
    EXPECT_GE(region.y, -1e-9);
    EXPECT_LE(region.x + region.width, image.width + 1e-9);
    EXPECT_LE(region.y + region.height, image.height + 1e-9);
    EXPECT_GT(region.width, 0);
    EXPECT_GT(region.height, 0);
  };
  for (const ImageExtent image : {ImageExtent{500, 375}, {65, 900}, {1, 4000}, {1, 1}, {300, 300}})
    for (std::int64_t index = 0; index < 200; ++index) {
      const ImageRegion region = random_region(image, 3, index);
      expect_inside(region, image);
      const ImageRegion again = random_region(image, 3, index);
      EXPECT_EQ(region.x, again.x);
      EXPECT_EQ(region.width, again.width);
      expect_inside(centre_region(image, {224, 224}, 0.875), image);
    }
  const ImageRegion centre = centre_region({500, 400}, {224, 224}, 0.875);
  EXPECT_DOUBLE_EQ(centre.width, 350);
  EXPECT_DOUBLE_EQ(centre.height, 350);
  EXPECT_DOUBLE_EQ(centre.x, 75);
  EXPECT_DOUBLE_EQ(centre.y, 25);
}

TEST(ImageResize, RandomRegionsHaveTheStatedShapes) {
  const ImageExtent image{400, 400};
  double smallest = 1;
  double largest = 0;
  for (std::int64_t index = 0; index < 2000; ++index) {
    const ImageRegion region = random_region(image, 6, index);
    const double ratio = region.width / region.height;
    EXPECT_GT(ratio, 0.749);
    EXPECT_LT(ratio, 1.334);
    const double share = region.width * region.height / (400.0 * 400.0);
    smallest = std::min(smallest, share);
    largest = std::max(largest, share);
  }
  EXPECT_GT(smallest, 0.0799);
  EXPECT_LT(smallest, 0.1);
  EXPECT_GT(largest, 0.9);
}

}  // namespace data_image_file_test
}  // namespace grapevine
