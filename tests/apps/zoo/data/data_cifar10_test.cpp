#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "apps/zoo/data.hpp"
#include "apps/zoo/data/random_stream.hpp"
#include "tests/apps/zoo/data/data_testing.hpp"

namespace grapevine {
namespace data_cifar10_test {

TestBytes records(std::uint64_t seed, int count) {
  RandomStream random(seed);
  TestBytes bytes;
  for (int i = 0; i < count; ++i) {
    bytes.push_back(static_cast<std::uint8_t>(i % 10));
    for (int p = 0; p < 3072; ++p) bytes.push_back(static_cast<std::uint8_t>(random.below(256)));
  }
  return bytes;
}

// Five batches of 12 records and a test batch of 7.
class Cifar10 : public testing::Test {
 protected:
  void write_batches(const std::string& inside) {
    for (int i = 1; i <= 5; ++i)
      write_bytes(folder_.file(inside + "data_batch_" + std::to_string(i) + ".bin"),
                  records(i, 12));
    write_bytes(folder_.file(inside + "test_batch.bin"), records(6, 7));
  }
  Expected<std::shared_ptr<const DataSet>> make() const {
    return make_data_set("cifar10:" + folder_.path(), {});
  }

  TempFolder folder_;
};

TEST_F(Cifar10, ReadsAllBatches) {
  write_batches("");
  const auto data = *make();
  EXPECT_EQ(data->info().sample_shape, (std::vector<std::int64_t>{3, 32, 32}));
  EXPECT_EQ(data->info().classes, 10);
  EXPECT_EQ(data->info().train_size, 60);
  EXPECT_EQ(data->info().test_size, 7);
  expect_keeps_the_contract(*data, 0);
  expect_keeps_the_contract(*data, 7);
  expect_threads_agree(*data, 7);
  // Sample 26 is record 2 of the third batch: its label, then its planes.
  const Batch batch = *data->batch(Split::train, {26}, 0);
  EXPECT_EQ(batch.target[0].item<int>(), 2);
  const at::Tensor pixels = batch.input[0].flatten().contiguous();
  const TestBytes third = records(3, 12);
  const double mean[] = {0.4914, 0.4822, 0.4465};
  const double deviation[] = {0.2470, 0.2435, 0.2616};
  for (int i = 0; i < 3072; ++i) {
    const int plane = i / 1024;
    EXPECT_NEAR(pixels.data_ptr<float>()[i],
                (third[2 * 3073 + 1 + i] / 255.0 - mean[plane]) / deviation[plane], 1e-5)
        << "byte " << i;
  }
}

TEST_F(Cifar10, FindsTheArchivesOwnFolder) {
  write_batches("cifar-10-batches-bin/");
  EXPECT_EQ((*make())->info().train_size, 60);
}

TEST_F(Cifar10, AugmentsBySeedAndIndexOnly) {
  write_batches("");
  const auto data = *make();
  const auto indices = index_range(0, 60);
  const Batch plain = *data->batch(Split::train, indices, 0);
  const Batch first = *data->batch(Split::train, indices, 1);
  const Batch second = *data->batch(Split::train, indices, 2);
  EXPECT_TRUE(plain.target.equal(first.target));
  int moved = 0;
  int different = 0;
  for (int i = 0; i < 60; ++i) {
    moved += first.input[i].equal(plain.input[i]) ? 0 : 1;
    different += first.input[i].equal(second.input[i]) ? 0 : 1;
  }
  EXPECT_GT(moved, 55);
  EXPECT_GT(different, 55);
}

TEST_F(Cifar10, RefusesDamagedFiles) {
  write_batches("");
  const std::string path = folder_.file("data_batch_4.bin");
  TestBytes bytes = records(4, 12);
  bytes[3073 * 5] = 10;
  write_bytes(path, bytes);
  expect_error(make().error(), {path + ": byte 15365: expected a label from 0 to 9, found 10"});
  bytes = records(4, 12);
  bytes.resize(bytes.size() - 3);
  write_bytes(path, bytes);
  expect_error(make().error(), {path + ": byte 36873: expected whole records of 3073 bytes",
                                "3070 bytes into one"});
  write_bytes(path, {});
  expect_error(make().error(), {path + ": byte 0: expected whole records"});
  std::filesystem::remove(path);
  expect_error(make().error(), {path + ": cannot be read: No such file or directory"});
}

}  // namespace data_cifar10_test
}  // namespace grapevine
