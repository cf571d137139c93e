// Folders of images: layouts, sizes, errors.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "apps/zoo/data.hpp"
#include "apps/zoo/data/images/image_folder.hpp"
#include "apps/zoo/data/random_stream.hpp"
#include "tests/apps/zoo/data/cifar_folder.hpp"
#include "tests/apps/zoo/data/data_testing.hpp"

namespace grapevine {
namespace data_images_test {

constexpr double kMean[3] = {0.485, 0.456, 0.406};
constexpr double kDeviation[3] = {0.229, 0.224, 0.225};

class Images : public testing::Test {
 protected:
  Expected<std::shared_ptr<const DataSet>> make(int threads = 1) const {
    DataOptions options;
    options.decode_threads = threads;
    return make_data_set("images:" + folder_.path(), options);
  }
  void add_png(const std::string& name, int width, int height, const TestBytes& rgb) const {
    write_png(folder_.file(name), width, height, PNG_FORMAT_RGB,
              uniform_pixels(width, height, rgb));
  }
  void add_jpeg(const std::string& name, int width, int height, const TestBytes& rgb) const {
    write_jpeg(folder_.file(name), width, height, 3, uniform_pixels(width, height, rgb));
  }
  // train/{ant,bee,cow} with four images each, test/{ant,bee,cow} with two; colours by class.
  void add_small_layout() const {
    const std::vector<std::string> names{"ant", "bee", "cow"};
    for (std::uint8_t label = 0; label < 3; ++label)
      for (std::uint8_t i = 0; i < 6; ++i) {
        const TestBytes rgb{static_cast<std::uint8_t>(80 * label),
                            static_cast<std::uint8_t>(20 * i), 128};
        const std::string split = i < 4 ? "train/" : "test/";
        add_png(split + names[label] + "/" + std::to_string(i) + ".png", 20, 16, rgb);
      }
  }

  TempFolder folder_;
};

TEST_F(Images, SmallImagesKeepTheirSize) {
  add_small_layout();
  const auto data = *make();
  EXPECT_EQ(data->info().sample_shape, (std::vector<std::int64_t>{3, 16, 20}));
  EXPECT_EQ(data->info().classes, 3);
  EXPECT_EQ(data->info().train_size, 12);
  EXPECT_EQ(data->info().test_size, 6);
  EXPECT_TRUE(data->info().slow);
  expect_keeps_the_contract(*data, 0);
  expect_keeps_the_contract(*data, 4);
  expect_threads_agree(*data, 4);
  const Batch batch = *data->batch(Split::train, index_range(0, 12), 0);
  for (std::int64_t i = 0; i < 12; ++i) {
    EXPECT_EQ(batch.target[i].item<std::int64_t>(), i / 4);
    const double bytes[3] = {80.0 * static_cast<double>(i / 4), 20.0 * static_cast<double>(i % 4),
                             128.0};
    for (int c = 0; c < 3; ++c) {
      const double expected = (bytes[c] / 255 - kMean[c]) / kDeviation[c];
      EXPECT_NEAR(batch.input[i][c].min().item<double>(), expected, 1e-5);
      EXPECT_NEAR(batch.input[i][c].max().item<double>(), expected, 1e-5);
    }
  }
  EXPECT_TRUE(data->batch(Split::test, index_range(0, 6), 0)
                  ->target.equal(at::tensor({0, 0, 1, 1, 2, 2}, at::kLong)));
}

TEST_F(Images, ThreadsDoNotChangeABatch) {
  add_small_layout();
  const auto indices = index_range(0, 12);
  for (const std::uint64_t seed : {0, 9})
    EXPECT_TRUE(same_batches(*(*make(1))->batch(Split::train, indices, seed),
                             *(*make(3))->batch(Split::train, indices, seed)));
}

TEST_F(Images, OtherSmallSizesAreBroughtToTheFirst) {
  add_png("a/0.png", 8, 8, {10, 20, 30});
  add_png("a/1.png", 30, 12, {40, 50, 60});
  const auto data = *make();
  EXPECT_EQ(data->info().sample_shape, (std::vector<std::int64_t>{3, 8, 8}));
  const Batch batch = *data->batch(Split::test, {0}, 0);
  EXPECT_NEAR(batch.input[0][0][4][4].item<double>(), (40 / 255.0 - kMean[0]) / kDeviation[0],
              1e-5);
}

// A picture whose left half is dark and whose right half is bright.
TestBytes halves(int width, int height) {
  TestBytes pixels;
  for (int i = 0; i < width * height; ++i)
    pixels.insert(pixels.end(), 3, static_cast<std::uint8_t>(i % width < width / 2 ? 20 : 220));
  return pixels;
}

TEST_F(Images, LargeImagesBecome224) {
  for (int i = 0; i < 4; ++i)
    write_jpeg(folder_.file("halves/" + std::to_string(i) + ".jpg"), 700, 500, 3, halves(700, 500));
  add_jpeg("plain/0.jpg", 65, 40, {200, 100, 50});
  add_jpeg("plain/1.jpg", 40, 900, {200, 100, 50});
  const auto data = *make(2);
  EXPECT_EQ(data->info().sample_shape, (std::vector<std::int64_t>{3, 224, 224}));
  expect_keeps_the_contract(*data, 0);
  expect_keeps_the_contract(*data, 6);
  // The centre crop keeps the edge in the middle.
  const at::Tensor centre = data->batch(Split::train, {0}, 0)->input[0][0];
  EXPECT_LT(centre.slice(1, 0, 108).max().item<double>(), -1);
  EXPECT_GT(centre.slice(1, 116, 224).min().item<double>(), 1);
  const at::Tensor plain = data->batch(Split::train, {3}, 6)->input[0][0];
  EXPECT_NEAR(plain.min().item<double>(), (200 / 255.0 - kMean[0]) / kDeviation[0], 0.05);
  EXPECT_NEAR(plain.max().item<double>(), (200 / 255.0 - kMean[0]) / kDeviation[0], 0.05);
}

TEST_F(Images, AugmentationCropsAndMirrors) {
  for (int i = 0; i < 2; ++i)
    write_jpeg(folder_.file("halves/" + std::to_string(i) + ".jpg"), 300, 260, 3, halves(300, 260));
  const auto data = *make();
  int mirrored = 0;
  int straight = 0;
  std::vector<double> brightness;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    const at::Tensor image = data->batch(Split::train, {0}, seed)->input[0][0];
    const double left = image.select(1, 0).mean().item<double>();
    const double right = image.select(1, 223).mean().item<double>();
    if (left > right + 1) ++mirrored;
    if (right > left + 1) ++straight;
    brightness.push_back(image.mean().item<double>());
  }
  EXPECT_GT(mirrored, 5);
  EXPECT_GT(straight, 5);
  EXPECT_GT(*std::max_element(brightness.begin(), brightness.end()),
            *std::min_element(brightness.begin(), brightness.end()) + 0.5);
}

// --augment crop: by up to an eighth of each side; the usual one by CIFAR's 4 pixels at any size.
TEST_F(Images, SmallImagesAreCroppedByAnEighthOfTheirSide) {
  for (const char* name : {"a/0.png", "a/1.png"}) add_png(name, 64, 24, {255, 255, 255});
  const auto black = [&](const std::string& augment) {
    DataOptions options;
    options.augment = *parse_augmentation(augment);
    const auto data = *make_data_set("images:" + folder_.path(), options);
    std::pair<std::int64_t, std::int64_t> most{0, 0};
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
      const at::Tensor dark = data->batch(Split::train, {0}, seed)->input[0][0].lt(0);
      most.first = std::max(most.first, dark.all(0).sum().item<std::int64_t>());
      most.second = std::max(most.second, dark.all(1).sum().item<std::int64_t>());
    }
    return most;
  };
  EXPECT_EQ(black("crop"), (std::pair<std::int64_t, std::int64_t>{8, 3}));
  EXPECT_EQ(black("auto"), (std::pair<std::int64_t, std::int64_t>{4, 4}));
  EXPECT_EQ(black("flip"), (std::pair<std::int64_t, std::int64_t>{0, 0}));
}

TEST_F(Images, ADamagedImageIsNamedWhereverItIs) {
  add_small_layout();
  const std::string path = folder_.file("train/bee/2.png");
  const TestBytes whole = read_bytes(path);
  // The header is sound, the pixels are not: found when the batch is decoded.
  TestBytes bytes = whole;
  const std::string data_name = "IDAT";
  const auto data_chunk =
      std::search(bytes.begin(), bytes.end(), data_name.begin(), data_name.end());
  std::fill(data_chunk + 4, data_chunk + 12, std::uint8_t{0xAA});
  write_bytes(path, bytes);
  const auto data = *make(2);
  auto batch = data->batch(Split::train, index_range(0, 12), 0);
  ASSERT_FALSE(batch.ok());
  expect_error(batch.error(), {path + ": damaged image: "});
  EXPECT_TRUE(data->batch(Split::train, {0, 1, 2, 3, 4, 5}, 0).ok());
  // Not even a header: found at once.
  write_bytes(path, TestBytes(whole.begin(), whole.begin() + 12));
  expect_error(make().error(), {path + ": damaged image: "});
  // Gone since the listing.
  std::filesystem::remove(folder_.file("train/ant/0.png"));
  expect_error(data->batch(Split::train, {0}, 0).error(), {"train/ant/0.png: cannot be read"});
}

TEST_F(Images, FlatFoldersHoldOutATenth) {
  for (int i = 0; i < 25; ++i) add_png("many/" + std::to_string(100 + i) + ".png", 4, 4, {1, 2, 3});
  for (int i = 0; i < 3; ++i) add_png("three/" + std::to_string(i) + ".png", 4, 4, {1, 2, 3});
  add_png("single/0.png", 4, 4, {1, 2, 3});
  const ImageListing listing = *list_images(folder_.path());
  EXPECT_EQ(listing.classes, (std::vector<std::string>{"many", "single", "three"}));
  std::vector<std::string> held;
  for (const ImageEntry& entry : listing.test) held.push_back(entry.file);
  EXPECT_EQ(held, (std::vector<std::string>{"109.png", "119.png", "2.png"}));
  EXPECT_EQ(listing.train.size(), 23U + 2U + 1U);
  EXPECT_EQ((*make())->info().train_size, 26);
}

TEST_F(Images, ListingSkipsAndFollows) {
  add_png("train/b/1.PNG", 4, 4, {1, 2, 3});
  add_jpeg("train/b/2.JpEg", 4, 4, {1, 2, 3});
  add_png("train/B/x.png", 4, 4, {1, 2, 3});
  add_png("train/b/.hidden.png", 4, 4, {1, 2, 3});
  add_png("train/.cache/1.png", 4, 4, {1, 2, 3});
  write_bytes(folder_.file("train/b/readme.txt"), {'x'});
  write_bytes(folder_.file("train/list.csv"), {'x'});
  std::filesystem::create_symlink(folder_.file("train/b/1.PNG"), folder_.file("train/b/link.png"));
  std::filesystem::create_directory_symlink(folder_.file("train/b"), folder_.file("train/c"));
  add_png("val/b/9.png", 4, 4, {1, 2, 3});
  const ImageListing listing = *list_images(folder_.path());
  EXPECT_EQ(listing.classes, (std::vector<std::string>{"B", "b", "c"}));
  std::vector<std::string> files;
  for (const ImageEntry& entry : listing.train)
    files.push_back(std::to_string(entry.label) + ":" + entry.file);
  EXPECT_EQ(files, (std::vector<std::string>{"0:x.png", "1:1.PNG", "1:2.JpEg", "1:link.png",
                                             "2:1.PNG", "2:2.JpEg", "2:link.png"}));
  ASSERT_EQ(listing.test.size(), 1U);
  EXPECT_EQ(listing.test[0].label, 1);
  EXPECT_EQ(listing.path(listing.test[0]), folder_.path() + "/val/b/9.png");
}

TEST_F(Images, FoldersThatCannotServeAreErrors) {
  expect_error(list_images(folder_.path()).error(), {"no class folder in '" + folder_.path()});
  add_png("a/0.png", 4, 4, {1, 2, 3});
  expect_error(list_images(folder_.path()).error(),
               {"has one image", "add images or a test folder"});
  std::filesystem::create_directory(folder_.file("b"));
  expect_error(list_images(folder_.path()).error(),
               {"no .jpg, .jpeg or .png file in the class folder", folder_.path() + "/b"});
  std::filesystem::remove(folder_.file("b"));
  std::filesystem::create_symlink("/nowhere.png", folder_.file("a/1.png"));
  expect_error(list_images(folder_.path()).error(), {"a/1.png: not a file (a broken link"});
  std::filesystem::remove(folder_.file("a/1.png"));
  add_png("train/a/0.png", 4, 4, {1, 2, 3});
  add_png("test/other/0.png", 4, 4, {1, 2, 3});
  expect_error(list_images(folder_.path()).error(), {"test/other", "no training folder"});
}

// Train is no train: whoever is told to remove an empty class would remove the training images.
TEST_F(Images, AFolderOfFoldersIsNoEmptyClass) {
  for (const std::string split : {"Train", "test"})
    for (const std::string name : {"/ant", "/bee"})
      for (const std::string image : {"/0.png", "/1.png"})
        add_png(split + name + image, 4, 4, {1, 2, 3});
  const Error error = list_images(folder_.path()).error();
  expect_error(
      error, {folder_.path() + "/Train' holds folders", "DIR/train/CLASS/IMAGE", "small letters"});
  EXPECT_EQ(error.message.find("remove"), std::string::npos) << error.message;
  std::filesystem::rename(folder_.file("Train"), folder_.file("train"));
  const auto listing = list_images(folder_.path());
  ASSERT_TRUE(listing.ok()) << listing.error().message;
  EXPECT_EQ(listing->train.size(), 4U);
}

TEST(ImagesFiles, CifarAsJpegLoads) {
  const std::string folder = cifar_folder();
  if (folder.empty())
    GTEST_SKIP() << "cifar10-jpeg.tar.xz is not in shared/data or cannot be unpacked";
  DataOptions options;
  options.decode_threads = 2;
  const auto data = *make_data_set("images:" + folder, options);
  EXPECT_EQ(data->info().sample_shape, (std::vector<std::int64_t>{3, 32, 32}));
  EXPECT_EQ(data->info().classes, 10);
  EXPECT_EQ(data->info().train_size, 400);
  EXPECT_EQ(data->info().test_size, 400);
  const Batch batch = *data->batch(Split::train, index_range(0, 400), 0);
  EXPECT_TRUE(batch.target.bincount().eq(40).all().item<bool>());
  EXPECT_NEAR(batch.input.mean().item<double>(), 0, 0.3);
  EXPECT_NEAR(batch.input.std().item<double>(), 1, 0.3);
  expect_keeps_the_contract(*data, 2);
  expect_threads_agree(*data, 2);
}

}  // namespace data_images_test
}  // namespace grapevine
