#include "gpu/data/sampler.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "messages/gradient.hpp"

namespace grapevine {
namespace sampler_test {

struct Shape {
  std::uint64_t seed;
  std::int64_t train_size, ranks, batch_size;
};

Shape random_shape(std::uint64_t seed) {
  std::mt19937_64 rng(seed);
  const auto ranks = static_cast<std::int64_t>(1 + rng() % 6);
  const auto batch_size = static_cast<std::int64_t>(1 + rng() % 9);
  const auto train_size = ranks * batch_size + static_cast<std::int64_t>(rng() % 300);
  return {rng(), train_size, ranks, batch_size};
}

Sampler make(const Shape& shape, Batching batching = Batching::shuffled) {
  return Sampler::make(shape.seed, shape.train_size, shape.ranks, shape.batch_size, batching)
      .value();
}

TEST(Sampler, AnEpochVisitsNoSampleTwiceAndDropsOnlyTheLast) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Shape shape = random_shape(seed);
    const Sampler sampler = make(shape, seed % 2 == 0 ? Batching::shuffled : Batching::by_length);
    const std::int64_t per_step = shape.ranks * shape.batch_size;
    ASSERT_EQ(sampler.steps_per_epoch(), shape.train_size / per_step);
    for (Epoch epoch = 0; epoch < 3; ++epoch) {
      std::set<std::int64_t> seen;
      for (Step k = 0; k < sampler.steps_per_epoch(); ++k) {
        const Step step = epoch * sampler.steps_per_epoch() + k;
        EXPECT_EQ(sampler.epoch_of(step), epoch);
        for (Rank rank = 0; rank < shape.ranks; ++rank)
          for (const std::int64_t index : sampler.indices(rank, step)) {
            EXPECT_TRUE(index >= 0 && index < shape.train_size);
            EXPECT_TRUE(seen.insert(index).second) << index << " twice";
          }
      }
      EXPECT_EQ(static_cast<std::int64_t>(seen.size()), sampler.steps_per_epoch() * per_step);
    }
  }
}

TEST(Sampler, RanksTogetherTakeTheBatchOfOneLargeRank) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Shape shape = random_shape(seed);
    const Sampler shared = make(shape);
    const Sampler alone = make({shape.seed, shape.train_size, 1, shape.ranks * shape.batch_size});
    ASSERT_EQ(shared.steps_per_epoch(), alone.steps_per_epoch());
    for (Step step = 0; step < 2 * shared.steps_per_epoch(); ++step) {
      std::vector<std::int64_t> together;
      for (Rank rank = 0; rank < shape.ranks; ++rank) {
        const auto part = shared.indices(rank, step);
        together.insert(together.end(), part.begin(), part.end());
      }
      EXPECT_EQ(together, alone.indices(0, step));
      EXPECT_EQ(shared.augment_seed(step), alone.augment_seed(step));
    }
  }
}

// Samples lie in the order of their length: neighbours are of similar length.
TEST(Sampler, ByLengthABatchTakesNeighbours) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const Shape shape = random_shape(seed);
    const Sampler sampler = make(shape, Batching::by_length);
    const std::int64_t left_out =
        shape.train_size - sampler.steps_per_epoch() * shape.ranks * shape.batch_size;
    const std::int64_t reach = Sampler::kBucketBatches * shape.batch_size + left_out;
    std::int64_t in_a_row = 0;
    for (Step step = 0; step < 2 * sampler.steps_per_epoch(); ++step)
      for (Rank rank = 0; rank < shape.ranks; ++rank) {
        const auto samples = sampler.indices(rank, step);
        const auto [low, high] = std::minmax_element(samples.begin(), samples.end());
        EXPECT_LT(*high - *low, reach);
        in_a_row += *high - *low + 1 == shape.batch_size;
      }
    if (sampler.steps_per_epoch() * shape.ranks > 40 && shape.batch_size > 2) {
      EXPECT_LT(in_a_row, sampler.steps_per_epoch() * shape.ranks) << "buckets are not shuffled";
    }
  }
}

TEST(Sampler, ByLengthRanksHaveDifferentLengthsAndNoSampleIsAlwaysLeftOut) {
  const Shape shape{9, 1003, 4, 10};  // 25 steps an epoch, 3 samples left out
  const Sampler sampler = make(shape, Batching::by_length);
  EXPECT_EQ(sampler.indices(2, 7), make(shape, Batching::by_length).indices(2, 7));
  EXPECT_NE(sampler.indices(2, 7), sampler.indices(2, 7 + sampler.steps_per_epoch()));
  double spread = 0;
  for (Step step = 0; step < 25; ++step) {
    std::vector<std::int64_t> firsts;
    for (Rank rank = 0; rank < 4; ++rank) firsts.push_back(sampler.indices(rank, step)[0]);
    const auto [low, high] = std::minmax_element(firsts.begin(), firsts.end());
    spread += static_cast<double>(*high - *low) / 25;
  }
  EXPECT_NEAR(spread, 600, 120);  // the range of four uniform draws: 3/5 of all
  std::vector<int> left_out(1003);
  constexpr int kEpochs = 600;
  for (Epoch epoch = 0; epoch < kEpochs; ++epoch) {
    std::set<std::int64_t> seen;
    for (Step step = epoch * 25; step < (epoch + 1) * 25; ++step)
      for (Rank rank = 0; rank < 4; ++rank)
        for (const std::int64_t sample : sampler.indices(rank, step)) seen.insert(sample);
    for (std::int64_t sample = 0; sample < 1003; ++sample)
      left_out[static_cast<std::size_t>(sample)] += seen.count(sample) == 0;
  }
  // 1.8 times each on average.
  EXPECT_LT(*std::max_element(left_out.begin(), left_out.end()), 14);
}

TEST(Sampler, OrderDependsOnSeedAndEpochAlone) {
  const Sampler one = make({1, 1000, 2, 100});
  const Sampler other_seed = make({2, 1000, 2, 100});
  EXPECT_EQ(one.indices(1, 3), make({1, 1000, 2, 100}).indices(1, 3));
  EXPECT_NE(one.indices(1, 3), other_seed.indices(1, 3));
  EXPECT_NE(one.indices(1, 3), one.indices(1, 3 + one.steps_per_epoch()));
  EXPECT_NE(one.augment_seed(0), one.augment_seed(one.steps_per_epoch()));
  EXPECT_EQ(one.augment_seed(0), one.augment_seed(one.steps_per_epoch() - 1));
  EXPECT_NE(one.augment_seed(0), 0U);
}

// Each (position, sample) pair should be equally likely: chi-square over all pairs, against a bound
// that a uniform permutation exceeds with probability below 1e-6.
TEST(Sampler, OrdersAreUniform) {
  for (const std::int64_t size : {2, 5, 7, 16, 19}) {
    SCOPED_TRACE(size);
    const Sampler sampler = make({11, size, 1, size});
    constexpr int kEpochs = 4000;
    std::vector<std::vector<int>> counts(static_cast<std::size_t>(size),
                                         std::vector<int>(static_cast<std::size_t>(size)));
    for (Step step = 0; step < kEpochs; ++step) {
      const auto order = sampler.indices(0, step);
      for (std::size_t i = 0; i < order.size(); ++i)
        ++counts[i][static_cast<std::size_t>(order[i])];
    }
    const double expected = static_cast<double>(kEpochs) / static_cast<double>(size);
    double chi_square = 0;
    for (const auto& row : counts)
      for (const int count : row) chi_square += (count - expected) * (count - expected) / expected;
    const auto freedom = static_cast<double>((size - 1) * (size - 1));
    EXPECT_LT(chi_square, freedom + 6 * std::sqrt(2 * freedom) + 20);
  }
}

TEST(Sampler, NeighboursAreUnrelated) {
  const Sampler sampler = make({5, 60000, 1, 60000});
  const auto order = sampler.indices(0, 0);
  int adjacent = 0;
  for (std::size_t i = 1; i < order.size(); ++i)
    adjacent += std::abs(order[i] - order[i - 1]) == 1 ? 1 : 0;
  EXPECT_LT(adjacent, 20);  // 2 expected
}

TEST(Sampler, ReachesAnyStepOfAnySize) {
  const Sampler sampler = make({3, std::int64_t{1} << 40, 1024, 256});
  const auto late = sampler.indices(1023, std::int64_t{1} << 45);
  EXPECT_EQ(late.size(), 256U);
  for (const std::int64_t index : late) EXPECT_LT(index, std::int64_t{1} << 40);
}

TEST(Sampler, SaysWhichBatchFits) {
  const auto large = Sampler::make(0, 1000, 8, 126);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, Errc::bad_input);
  EXPECT_EQ(large.error().message,
            "a rank's share of the training samples is smaller than a batch: batch size 126 on 8 "
            "ranks, 1000 training samples: the largest batch size that fits is 125");
  EXPECT_TRUE(Sampler::make(0, 1000, 8, 125).ok());
  const auto many = Sampler::make(0, 5, 8, 1);
  ASSERT_FALSE(many.ok());
  EXPECT_NE(many.error().message.find("use at most 5 ranks"), std::string::npos);
  const auto huge = Sampler::make(0, 1000, 8, std::numeric_limits<std::int64_t>::max());
  EXPECT_FALSE(huge.ok());
  EXPECT_FALSE(Sampler::make(0, 0, 1, 1).ok());
  EXPECT_FALSE(Sampler::make(0, 10, 0, 1).ok());
  EXPECT_FALSE(Sampler::make(0, 10, 1, 0).ok());
}

// However often the number of ranks changes, and in whatever steps they are: the batches of a view
// are those after the ones of the view before, and no sample of an epoch is taken twice.
TEST(Sampler, RanksOfChangingViewsShareAllBatches) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    const Shape shape = random_shape(seed);
    const Sampler sampler = make(shape, seed % 2 == 0 ? Batching::shuffled : Batching::by_length);
    std::mt19937_64 rng(seed);
    std::set<std::int64_t> batches;
    std::int64_t first_batch = 0;
    for (int view = 0; view < 5; ++view) {
      const auto ranks = static_cast<std::int32_t>(1 + rng() % 6);
      const auto steps = static_cast<Step>(rng() % 20);
      for (std::int32_t position = 0; position < ranks; ++position) {
        Deal deal{ranks, position, first_batch, static_cast<Step>(rng() % 1000)};
        for (Step step = 0; step < steps; ++step)
          EXPECT_TRUE(batches.insert(deal.batch_of(deal.first_step + step)).second);
      }
      first_batch += steps * ranks;
    }
    ASSERT_EQ(static_cast<std::int64_t>(batches.size()), first_batch);
    std::map<std::int64_t, std::set<std::int64_t>> taken;  // by epoch
    for (const std::int64_t batch : batches)
      for (const std::int64_t sample : sampler.samples_of(batch))
        EXPECT_TRUE(taken[batch / sampler.batches_per_epoch()].insert(sample).second);
  }
}

}  // namespace sampler_test
}  // namespace grapevine
