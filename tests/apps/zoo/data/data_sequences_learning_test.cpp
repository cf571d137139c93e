// The zoo's recurrent network learns what no linear model can (data_sequences_test.cpp).
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"
#include "gpu/torch_compute.hpp"

namespace grapevine {
namespace data_sequences_learning_test {

TEST(SequencesLearning, AnLstmFindsTheOrder) {
  TorchComputeConfig config;
  config.data = *make_data_set("sequences:2048", {});
  config.model = *make_model_factory("lstm", config.data->info());
  config.model_name = "lstm";
  config.seed = 1;
  const auto compute = *TorchCompute::make(config);
  torch::Tensor x = compute->initial_parameters().read().clone();
  torch::optim::Adam optimizer({x}, torch::optim::AdamOptions(0.003));
  const Evaluation before = *compute->evaluate(compute->initial_parameters(), {});
  EXPECT_LT(before.top1, 0.3);
  for (Step step = 0; step < 160; ++step) {
    GradientRequest request;
    request.step = step;
    request.z = FrozenTensor::copy_of(x);
    const Gradient gradient = compute->gradient(std::move(request));
    ASSERT_EQ(gradient.error, "");
    x.mutable_grad() = gradient.value.read();
    optimizer.step();
  }
  const Evaluation after = *compute->evaluate(FrozenTensor::copy_of(x), {});
  RecordProperty("top1", std::to_string(after.top1));
  EXPECT_GT(after.top1, 0.9);
}

}  // namespace data_sequences_learning_test
}  // namespace grapevine
