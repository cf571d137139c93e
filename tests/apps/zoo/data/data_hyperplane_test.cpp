#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"
#include "gpu/data/sampler.hpp"
#include "gpu/torch_compute.hpp"
#include "tests/apps/zoo/data/data_testing.hpp"

namespace grapevine {
namespace data_hyperplane_test {

std::shared_ptr<const DataSet> hyperplane(const std::string& spec, std::uint64_t seed) {
  DataOptions options;
  options.seed = seed;
  return *make_data_set(spec, options);
}

TEST(Hyperplane, KeepsTheContract) {
  const auto data = hyperplane("hyperplane", 1);
  EXPECT_EQ(data->info().task, Task::regression);
  EXPECT_EQ(data->info().sample_shape, std::vector<std::int64_t>{8192});
  EXPECT_EQ(data->info().classes, 1);
  EXPECT_EQ(data->info().train_size, 32768);
  EXPECT_EQ(data->info().test_size, 4096);
  expect_keeps_the_contract(*data, 0);
  expect_keeps_the_contract(*data, 5);
  expect_threads_agree(*data, 0);
}

// Least squares on the training samples finds the plane; what is left on both splits is the noise.
TEST(Hyperplane, IsLinearWithTheStatedNoise) {
  for (const std::uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    const auto data = hyperplane("hyperplane:24", seed);
    const Batch train = *data->batch(Split::train, index_range(0, 8000), 0);
    const Batch test = *data->batch(Split::test, index_range(0, 4096), 0);
    const at::Tensor x = train.input.to(at::kDouble);
    const at::Tensor y = train.target.to(at::kDouble);
    const at::Tensor a = at::linalg_solve(x.t().mm(x), x.t().mm(y));
    const auto left = [&](const Batch& batch) {
      const at::Tensor error = batch.target.to(at::kDouble) - batch.input.to(at::kDouble).mm(a);
      return error.square().mean().item<double>();
    };
    EXPECT_NEAR(left(train), 0.01, 0.001);
    EXPECT_NEAR(left(test), 0.01, 0.001);
    EXPECT_NEAR(x.mean().item<double>(), 0, 0.02);
    EXPECT_NEAR(x.var().item<double>(), 1, 0.03);
  }
}

// The setting of the partial collectives' paper: a linear map of 8,192 inputs, 32,768 samples,
// batch 2,048 on 8 ranks. With normal inputs, a step of rate η on a fresh batch of B multiplies the
// excess over the noise by 1 − 4η + 4η² (1 + (D + 1)/B) on average: 0.8 for η = 0.1.
TEST(Hyperplane, LearnsInThePapersSettingAsTheorySays) {
  constexpr Rank kRanks = 8;
  constexpr std::int64_t kBatch = 2048 / kRanks;
  constexpr double kRate = 0.1;
  TorchComputeConfig config;
  config.data = hyperplane("hyperplane", 1);
  config.model = *make_model_factory("linear", config.data->info());
  config.model_name = "linear";
  config.ranks = kRanks;
  config.batch_size = kBatch;
  config.loader.threads = 0;
  config.seed = 1;
  std::vector<std::unique_ptr<Compute>> ranks;
  for (config.rank = 0; config.rank < kRanks; ++config.rank)
    ranks.push_back(*TorchCompute::make(config));
  ASSERT_EQ(ranks[0]->dimension(), 8192 + 1);
  const Sampler sampler = *Sampler::make(1, 32768, kRanks, kBatch);
  ASSERT_EQ(sampler.steps_per_epoch(), 16);

  at::Tensor x = ranks[0]->initial_parameters().read().clone();
  std::vector<double> losses;
  for (Step step = 0; step < sampler.steps_per_epoch(); ++step) {
    losses.push_back(0);
    at::Tensor sum = at::zeros_like(x);
    for (const auto& rank : ranks) {
      GradientRequest request;
      request.step = step;
      request.z = FrozenTensor::copy_of(x);
      const Gradient gradient = rank->gradient(std::move(request));
      ASSERT_EQ(gradient.error, "");
      ASSERT_EQ(gradient.samples, kBatch);
      sum += gradient.value.read();
      losses.back() += gradient.loss / kRanks;
    }
    x -= kRate * sum / kRanks;
  }
  // |a|² of the plane and 1/3 of the initial parameters, uniform in ±1/√D.
  EXPECT_NEAR(losses[0], 1.0 + 1.0 / 3, 0.15);
  constexpr double kNoise = 0.01;
  for (std::size_t step = 1; step < losses.size(); ++step)
    EXPECT_NEAR(std::log((losses[step] - kNoise) / (losses[0] - kNoise)),
                static_cast<double>(step) * std::log(0.8), 0.1 + 0.03 * static_cast<double>(step))
        << "step " << step;
}

TEST(Hyperplane, TargetsHaveUnitVariance) {
  const Batch batch = *hyperplane("hyperplane", 4)->batch(Split::train, index_range(0, 400), 0);
  EXPECT_NEAR(batch.target.var().item<double>(), 1, 0.3);
}

TEST(Hyperplane, SeedAndSplitChangeEverything) {
  const auto data = hyperplane("hyperplane:50", 1);
  const Batch train = *data->batch(Split::train, {0, 1}, 0);
  EXPECT_TRUE(same_batches(train, *hyperplane("hyperplane:50", 1)->batch(Split::train, {0, 1}, 0)));
  EXPECT_FALSE(train.input[0].equal(train.input[1]));
  EXPECT_FALSE(train.input.equal(data->batch(Split::test, {0, 1}, 0)->input));
  EXPECT_FALSE(
      train.input.equal(hyperplane("hyperplane:50", 2)->batch(Split::train, {0, 1}, 0)->input));
}

}  // namespace data_hyperplane_test
}  // namespace grapevine
