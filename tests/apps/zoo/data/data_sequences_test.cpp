#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>

#include "apps/zoo/data.hpp"
#include "tests/apps/zoo/data/data_testing.hpp"

namespace grapevine {
namespace data_sequences_test {

constexpr std::int64_t kChannels = 8;
constexpr std::int64_t kPoses = 4;
constexpr std::int64_t kClasses = 6;

std::shared_ptr<const DataSet> sequences(const std::string& spec = "sequences",
                                         std::uint64_t seed = 1) {
  DataOptions options;
  options.seed = seed;
  return *make_data_set(spec, options);
}

Batch whole(const DataSet& data, Split split) {
  const std::int64_t size = split == Split::train ? data.info().train_size : data.info().test_size;
  return *data.batch(split, index_range(0, size), 0);
}

// [B] int64
at::Tensor lengths_of(const Batch& batch) {
  return batch.input.select(2, kChannels).sum(1).to(at::kLong);
}

TEST(Sequences, KeepTheContract) {
  const auto data = sequences();
  const DataInfo& info = data->info();
  EXPECT_EQ(info.sample_shape, (std::vector<std::int64_t>{kTimeSteps, kChannels + 1}));
  EXPECT_EQ(info.classes, kClasses);
  EXPECT_EQ(info.train_size, 4096);
  EXPECT_EQ(info.test_size, 1024);
  EXPECT_TRUE(info.by_length);
  const std::vector<std::int64_t> order{2000, 5, 4000};
  const Batch batch = *data->batch(Split::train, order, 7);
  EXPECT_EQ(batch.target.sizes().vec(), std::vector<std::int64_t>{3});
  EXPECT_EQ(batch.target.scalar_type(), at::kLong);
  EXPECT_EQ(batch.input.scalar_type(), at::kFloat);
  EXPECT_TRUE(same_batches(batch, *data->batch(Split::train, order, 0)));
  const at::Tensor lengths = lengths_of(batch);
  EXPECT_EQ(batch.input.size(1), lengths.max().item<std::int64_t>());
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::int64_t length = lengths[i].item<std::int64_t>();
    const Batch alone = *data->batch(Split::train, {order[i]}, 0);
    ASSERT_EQ(alone.input.size(1), length);
    EXPECT_TRUE(alone.input[0].equal(batch.input[i].narrow(0, 0, length)));
    EXPECT_TRUE(alone.target[0].equal(batch.target[i]));
    EXPECT_TRUE(batch.input[i].slice(0, 0, length).select(1, kChannels).eq(1).all().item<bool>());
    EXPECT_TRUE(batch.input[i].slice(0, length).eq(0).all().item<bool>()) << "padding";
  }
  EXPECT_EQ(data->batch(Split::test, {}, 0)->input.size(0), 0);
  EXPECT_THROW((void)data->batch(Split::train, {-1}, 0), InvariantBroken);
  EXPECT_THROW((void)data->batch(Split::train, {info.train_size}, 0), InvariantBroken);
  expect_threads_agree(*data, 0);
}

TEST(Sequences, LengthsRiseFromSixTo102WithALongTail) {
  for (const Split split : {Split::train, Split::test}) {
    const at::Tensor lengths = lengths_of(whole(*sequences(), split));
    EXPECT_TRUE(lengths.slice(0, 1).ge(lengths.slice(0, 0, -1)).all().item<bool>()) << "unsorted";
    EXPECT_LE(lengths[0].item<std::int64_t>(), split == Split::train ? 6 : 8);
    EXPECT_EQ(lengths[-1].item<std::int64_t>(), 102);
    const double mean = lengths.to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(mean, 37, 1.5);
    EXPECT_NEAR(lengths.median().item<std::int64_t>(), 32, 2);
    EXPECT_NEAR(lengths.gt(2 * mean).to(at::kDouble).mean().item<double>(), 0.055, 0.02);
  }
}

// Share of test samples that least squares on `features` [N, k] gets right.
double linear_accuracy(const DataSet& data,
                       const std::function<at::Tensor(const Batch&)>& features) {
  const auto with_one = [&](const Batch& batch) {
    const at::Tensor x = features(batch).to(at::kDouble);
    return at::cat({x, at::ones({x.size(0), 1}, at::kDouble)}, 1);
  };
  const Batch train = whole(data, Split::train);
  const Batch test = whole(data, Split::test);
  const at::Tensor x = with_one(train);
  const at::Tensor y = at::one_hot(train.target, kClasses).to(at::kDouble);
  const at::Tensor a = at::linalg_solve(x.t().mm(x), x.t().mm(y));
  return with_one(test).mm(a).argmax(1).eq(test.target).to(at::kDouble).mean().item<double>();
}

TEST(Sequences, NoSingleStepNorBagOfValuesNorLengthTellsTheClass) {
  const auto data = sequences();
  const auto channels = [](const Batch& batch) { return batch.input.narrow(2, 0, kChannels); };
  const double chance = 1.0 / kClasses + 0.04;  // and three standard deviations
  EXPECT_LT(linear_accuracy(*data, [&](const Batch& b) { return channels(b).select(1, 0); }),
            chance);
  EXPECT_LT(linear_accuracy(*data, [&](const Batch& b) { return channels(b).select(1, 5); }),
            chance);
  EXPECT_LT(
      linear_accuracy(
          *data, [&](const Batch& b) { return channels(b).sum(1) / lengths_of(b).unsqueeze(1); }),
      chance);
  EXPECT_LT(linear_accuracy(*data,
                            [](const Batch& b) {
                              const at::Tensor length = lengths_of(b).to(at::kDouble) / 102;
                              return at::stack({length, length.square(), length.log()}, 1);
                            }),
            chance);
  const at::Tensor share =
      at::one_hot(whole(*data, Split::train).target, kClasses).to(at::kDouble).mean(0);
  EXPECT_LT((share - 1.0 / kClasses).abs().max().item<double>(), 0.02);
}

// The poses by their Walsh functions, their order by counting what follows what.
std::int64_t read_order(const at::Tensor& sample) {
  at::Tensor walsh = at::empty({kPoses, kChannels});
  for (std::int64_t pose = 0; pose < kPoses; ++pose)
    for (std::int64_t c = 0; c < kChannels; ++c)
      walsh[pose][c] = __builtin_parityll(static_cast<unsigned long long>((pose + 1) & c)) ? -1 : 1;
  const at::Tensor poses = sample.narrow(1, 0, kChannels).mm(walsh.t()).argmax(1);
  std::array<std::array<int, kPoses>, kPoses> follows{};
  for (std::int64_t t = 1; t < poses.size(0); ++t)
    ++follows[poses[t - 1].item<std::int64_t>()][poses[t].item<std::int64_t>()];
  std::array<std::int64_t, kPoses> order{0, 1, 2, 3};
  std::int64_t best = -1, best_seen = -1, number = 0;
  do {
    std::int64_t seen = 0;
    for (std::int64_t i = 0; i < kPoses; ++i) seen += follows[order[i]][order[(i + 1) % kPoses]];
    if (seen > best_seen) {
      best_seen = seen;
      best = number;
    }
    ++number;
  } while (std::next_permutation(order.begin() + 1, order.end()));
  return best;
}

TEST(Sequences, WhatFollowsWhatTellsTheClass) {
  const auto data = sequences("sequences:800");
  const std::int64_t size = data->info().test_size;
  ASSERT_EQ(size, 200);
  std::int64_t right = 0;
  for (std::int64_t i = 0; i < size; ++i) {
    const Batch one = *data->batch(Split::test, {i}, 0);
    right += read_order(one.input[0]) == one.target[0].item<std::int64_t>() ? 1 : 0;
  }
  EXPECT_GT(right, 190);
}

TEST(Sequences, AreTheSameForEveryRunAndDifferBySplit) {
  const auto data = sequences("sequences:100", 1);
  const Batch some = *data->batch(Split::train, {3, 4}, 0);
  EXPECT_TRUE(same_batches(some, *sequences("sequences:100", 2)->batch(Split::train, {3, 4}, 0)));
  const Batch test = *data->batch(Split::test, {3, 4}, 0);
  EXPECT_FALSE(some.input.narrow(1, 0, 5).equal(test.input.narrow(1, 0, 5)));
}

}  // namespace data_sequences_test
}  // namespace grapevine
