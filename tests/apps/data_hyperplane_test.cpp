#include <gtest/gtest.h>
#include <torch/torch.h>

#include "apps/zoo/data.hpp"
#include "tests/apps/data_testing.hpp"

namespace grapevine {
namespace {

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
    const torch::Tensor x = train.input.to(torch::kDouble);
    const torch::Tensor y = train.target.to(torch::kDouble);
    const torch::Tensor a = torch::linalg_solve(x.t().mm(x), x.t().mm(y));
    const auto left = [&](const Batch& batch) {
      const torch::Tensor error =
          batch.target.to(torch::kDouble) - batch.input.to(torch::kDouble).mm(a);
      return error.square().mean().item<double>();
    };
    EXPECT_NEAR(left(train), 0.01, 0.001);
    EXPECT_NEAR(left(test), 0.01, 0.001);
    EXPECT_NEAR(x.mean().item<double>(), 0, 0.02);
    EXPECT_NEAR(x.var().item<double>(), 1, 0.03);
  }
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

}  // namespace
}  // namespace grapevine
