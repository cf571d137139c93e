// The default data set must tell a linear model from a convolutional one.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <numeric>
#include <vector>

#include "apps/zoo/data.hpp"

namespace grapevine {
namespace data_glyphs_learning_test {

constexpr std::int64_t kBatch = 50;

std::vector<std::int64_t> range(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> indices(count);
  std::iota(indices.begin(), indices.end(), first);
  return indices;
}

// Accuracy on the test images after `epochs` passes of SGD with momentum over the training images.
double trained_accuracy(torch::nn::Sequential model, const DataSet& data, int epochs, double lr) {
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(lr).momentum(0.9));
  const std::int64_t batches = data.info().train_size / kBatch;
  for (std::int64_t step = 0; step < epochs * batches; ++step) {
    const Batch batch = *data.batch(Split::train, range(step % batches * kBatch, kBatch), 0);
    optimizer.zero_grad();
    torch::nn::functional::cross_entropy(model->forward(batch.input), batch.target).backward();
    optimizer.step();
  }
  torch::NoGradGuard no_gradient;
  const Batch test = *data.batch(Split::test, range(0, data.info().test_size), 0);
  return model->forward(test.input)
      .argmax(1)
      .eq(test.target)
      .to(torch::kDouble)
      .mean()
      .item<double>();
}

torch::nn::Sequential small_cnn() {
  using torch::nn::Conv2d;
  using torch::nn::Conv2dOptions;
  using torch::nn::Functional;
  using torch::nn::Linear;
  const auto pool = [](const torch::Tensor& x) { return torch::relu(torch::max_pool2d(x, 2)); };
  return torch::nn::Sequential(Conv2d(Conv2dOptions(1, 6, 5).padding(2)), Functional(pool),
                               Conv2d(Conv2dOptions(6, 16, 5)), Functional(pool),
                               torch::nn::Flatten(), Linear(400, 120), Functional(torch::relu),
                               Linear(120, 84), Functional(torch::relu), Linear(84, 10));
}

TEST(GlyphsLearning, ConvolutionsBeatALinearModelByFar) {
  const auto data = *make_data_set("glyphs", {});
  torch::manual_seed(1);
  const double linear = trained_accuracy(
      torch::nn::Sequential(torch::nn::Flatten(), torch::nn::Linear(784, 10)), *data, 3, 0.01);
  const double convolutional = trained_accuracy(small_cnn(), *data, 2, 0.02);
  RecordProperty("linear", std::to_string(linear));
  RecordProperty("convolutional", std::to_string(convolutional));
  EXPECT_GT(linear, 0.70);
  EXPECT_LT(linear, 0.90);
  EXPECT_GT(convolutional, 0.96);
  EXPECT_GT(convolutional, linear + 0.08);
}

}  // namespace data_glyphs_learning_test
}  // namespace grapevine
