#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "apps/zoo/data.hpp"
#include "tests/apps/zoo/data/data_testing.hpp"

namespace grapevine {
namespace data_mnist_test {

void put_word(TestBytes& bytes, std::uint32_t word) {
  for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<std::uint8_t>(word >> shift));
}

// Image i is all i.
TestBytes idx_images(std::uint32_t count) {
  TestBytes bytes;
  for (const std::uint32_t word : {0x803U, count, 28U, 28U}) put_word(bytes, word);
  for (std::uint32_t i = 0; i < count; ++i)
    bytes.insert(bytes.end(), 28 * 28, static_cast<std::uint8_t>(i));
  return bytes;
}

// Label i is i mod 10.
TestBytes idx_labels(std::uint32_t count) {
  TestBytes bytes;
  for (const std::uint32_t word : {0x801U, count}) put_word(bytes, word);
  for (std::uint32_t i = 0; i < count; ++i) bytes.push_back(static_cast<std::uint8_t>(i % 10));
  return bytes;
}

const std::string kTrainImages = "train-images-idx3-ubyte";
const std::string kTrainLabels = "train-labels-idx1-ubyte";
const std::string kTestImages = "t10k-images-idx3-ubyte";
const std::string kTestLabels = "t10k-labels-idx1-ubyte";

// A sound folder of 30 training and 12 test images, two files of it gzipped.
class Mnist : public testing::Test {
 protected:
  Mnist() {
    write_gzip(folder_.file(kTrainImages + ".gz"), idx_images(30));
    write_bytes(folder_.file(kTrainLabels), idx_labels(30));
    write_bytes(folder_.file(kTestImages), idx_images(12));
    write_gzip(folder_.file(kTestLabels + ".gz"), idx_labels(12));
  }

  Expected<std::shared_ptr<const DataSet>> make() const {
    return make_data_set("mnist:" + folder_.path(), {});
  }
  // The error after `bytes` replaced a plain file.
  Error error_with(const std::string& name, const TestBytes& bytes) {
    write_bytes(folder_.file(name), bytes);
    auto made = make();
    EXPECT_FALSE(made.ok()) << name;
    return made.ok() ? Error{} : made.error();
  }

  TempFolder folder_;
};

TEST_F(Mnist, ReadsPlainAndGzippedFiles) {
  const auto data = *make();
  EXPECT_EQ(data->info().name, "mnist");
  EXPECT_EQ(data->info().sample_shape, (std::vector<std::int64_t>{1, 28, 28}));
  EXPECT_EQ(data->info().train_size, 30);
  EXPECT_EQ(data->info().test_size, 12);
  expect_keeps_the_contract(*data, 0);
  expect_threads_agree(*data, 0);
  const Batch batch = *data->batch(Split::train, {29, 3}, 0);
  EXPECT_EQ(batch.target[0].item<int>(), 9);
  EXPECT_EQ(batch.target[1].item<int>(), 3);
  EXPECT_NEAR(batch.input[0].min().item<double>(), (29 / 255.0 - 0.1307) / 0.3081, 1e-5);
  EXPECT_NEAR(batch.input[0].max().item<double>(), (29 / 255.0 - 0.1307) / 0.3081, 1e-5);
}

TEST_F(Mnist, NamesTheMissingFile) {
  std::filesystem::remove(folder_.file(kTestLabels + ".gz"));
  expect_error(make().error(), {kTestLabels + " or " + kTestLabels + ".gz", folder_.path()});
}

TEST_F(Mnist, RefusesWrongHeaders) {
  TestBytes bytes = idx_images(30);
  bytes[3] = 1;
  expect_error(error_with(kTrainImages, bytes),
               {kTrainImages + ": byte 0: expected the magic number "
                               "0x803, found 0x801"});
  bytes = idx_images(30);
  bytes[11] = 32;
  expect_error(error_with(kTrainImages, bytes), {": byte 8: expected 28 rows, found 32"});
  bytes = idx_images(30);
  bytes[15] = 27;
  expect_error(error_with(kTrainImages, bytes), {": byte 12: expected 28 columns, found 27"});
  expect_error(error_with(kTrainImages, idx_images(0)), {": byte 4: expected at least one image"});
  expect_error(error_with(kTrainImages, {0, 0, 8}), {": byte 3: expected a header of 16 bytes"});
  expect_error(error_with(kTrainImages, {}), {": byte 0: expected a header of 16 bytes"});
}

TEST_F(Mnist, RefusesWrongLengths) {
  TestBytes bytes = idx_images(30);
  bytes.pop_back();
  expect_error(
      error_with(kTrainImages, bytes),
      {": byte 23535: expected 23536 bytes for the 30 items", "found the end of the file"});
  bytes = idx_images(30);
  bytes.push_back(0);
  expect_error(error_with(kTrainImages, bytes),
               {": byte 23536: expected the end of the file, found 1 more bytes"});
  // A header that announces 3 TB must not be believed.
  bytes = idx_images(30);
  bytes[4] = 0xFF;
  expect_error(error_with(kTrainImages, bytes), {": byte 23536: expected 3354"});
}

TEST_F(Mnist, RefusesWrongLabels) {
  expect_error(error_with(kTrainLabels, idx_labels(29)),
               {kTrainLabels + ": byte 4: expected 30 labels, one for each image, found 29"});
  TestBytes bytes = idx_labels(30);
  bytes[8 + 17] = 10;
  expect_error(error_with(kTrainLabels, bytes),
               {kTrainLabels + ": byte 25: expected a label from 0 to 9, found 10"});
}

TEST_F(Mnist, RefusesDamagedGzip) {
  const std::string path = folder_.file(kTrainImages + ".gz");
  const Batch sound = *(*make())->batch(Split::train, index_range(0, 30), 0);
  const TestBytes packed = read_bytes(path);
  TestBytes cut(packed.begin(), packed.end() - 20);
  write_bytes(path, cut);
  expect_error(make().error(), {path, "gzip stream breaks off or is damaged after "});
  // The checksum in the last eight bytes.
  TestBytes flipped = packed;
  flipped[flipped.size() - 6] ^= 1;
  write_bytes(path, flipped);
  expect_error(make().error(), {path, "gzip stream breaks off or is damaged after "});
  // Inside the compressed data: an error, but where the flip leaves the bytes as they are (in a run
  // of equal bytes a copy from one back is a copy from two back).
  const auto indices = index_range(0, 30);
  int errors = 0;
  for (std::size_t at = 12; at < packed.size() - 8; at += 7) {
    flipped = packed;
    flipped[at] ^= 0x10;
    write_bytes(path, flipped);
    auto made = make();
    errors += made.ok() ? 0 : 1;
    if (!made) continue;
    EXPECT_TRUE(same_batches(sound, *(*made)->batch(Split::train, indices, 0))) << "byte " << at;
  }
  EXPECT_GT(errors, 0);
}

TEST(MnistFiles, TheOriginalsLoad) {
  const std::string folder = GRAPEVINE_SOURCE_DIR "/../shared/data";
  if (!std::filesystem::exists(folder + "/train-images-idx3-ubyte.gz"))
    GTEST_SKIP() << "no MNIST files in " << folder;
  const auto data = *make_data_set("mnist:" + folder, {});
  EXPECT_EQ(data->info().train_size, 60000);
  EXPECT_EQ(data->info().test_size, 10000);
  const Batch test = *data->batch(Split::test, index_range(0, 10000), 0);
  // The published class counts of the test images.
  EXPECT_TRUE(test.target.bincount().equal(
      at::tensor({980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009}, at::kLong)));
  const Batch train = *data->batch(Split::train, index_range(0, 10000), 0);
  EXPECT_NEAR(train.input.mean().item<double>(), 0, 0.01);
  EXPECT_NEAR(train.input.std().item<double>(), 1, 0.01);
}

}  // namespace data_mnist_test
}  // namespace grapevine
