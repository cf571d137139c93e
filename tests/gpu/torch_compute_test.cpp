#include "gpu/torch_compute.hpp"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <thread>

#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace torch_compute_test {

FrozenTensor random_point(const Compute& compute, std::uint64_t seed = 1) {
  torch::manual_seed(seed);
  return FrozenTensor::freeze(at::randn({compute.dimension()}));
}

void expect_same_bits(const Gradient& a, const Gradient& b) {
  ASSERT_EQ(a.error, "");
  ASSERT_EQ(b.error, "");
  EXPECT_TRUE(a.value.read().equal(b.value.read()));
  EXPECT_EQ(a.loss, b.loss);
  EXPECT_EQ(a.buffers.defined(), b.buffers.defined());
  if (a.buffers.defined() && b.buffers.defined()) {
    EXPECT_TRUE(a.buffers.read().equal(b.buffers.read()));
  }
}

// The reference: an ordinary module with parameters of its own, backward() and .grad.
struct Reference {
  at::Tensor gradient;
  at::Tensor buffers;
  double loss = 0;
  double top1 = 0;
  double top5 = 0;
};

Reference reference(torch::nn::Sequential layers, const at::Tensor& z, const Batch& batch) {
  std::int64_t offset = 0;
  {
    const torch::NoGradGuard no_grad;
    for (at::Tensor& each : layers->parameters()) {
      each.copy_(z.narrow(0, offset, each.numel()).view(each.sizes()));
      offset += each.numel();
    }
  }
  layers->train();
  const at::Tensor output = layers->forward(batch.input);
  const at::Tensor loss = torch::nn::functional::cross_entropy(output, batch.target);
  loss.backward();
  Reference result;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& each : layers->parameters()) parts.push_back(each.grad().flatten());
  result.gradient = at::cat(parts);
  parts.clear();
  for (const at::Tensor& each : layers->buffers()) parts.push_back(each.to(at::kFloat).flatten());
  if (!parts.empty()) result.buffers = at::cat(parts);
  result.loss = loss.item<double>();
  for (std::int64_t i = 0; i < output.size(0); ++i) {
    const at::Tensor mine = output[i][batch.target[i]];
    const auto better = output[i].gt(mine).sum().item<std::int64_t>();
    result.top1 += (better < 1 ? 1.0 : 0.0) / static_cast<double>(output.size(0));
    result.top5 += (better < 5 ? 1.0 : 0.0) / static_cast<double>(output.size(0));
  }
  return result;
}

TEST(TorchCompute, GradientIsThatOfAnOrdinaryModule) {
  const auto compute = make_tiny(tiny_config(tiny_layers, 1));
  const Sampler sampler = Sampler::make(21, 40, 2, 5).value();
  const TinyData data(tiny_info());
  for (Step step = 0; step < 10; ++step) {
    SCOPED_TRACE(step);
    const FrozenTensor z = random_point(*compute, static_cast<std::uint64_t>(step));
    const Gradient result = compute->gradient(tiny_request(z, step));
    ASSERT_EQ(result.error, "");
    const Batch batch = data.batch(Split::train, sampler.indices(1, step), 0).value();
    const Reference expected = reference(tiny_layers(), z.read(), batch);
    EXPECT_TRUE(at::allclose(result.value.read(), expected.gradient, 1e-6, 1e-7));
    EXPECT_TRUE(at::allclose(result.buffers.read(), expected.buffers, 1e-6, 1e-7));
    EXPECT_NEAR(result.loss, expected.loss, 1e-6);
    EXPECT_NEAR(result.top1, expected.top1, 1e-12);
    EXPECT_NEAR(result.top5, expected.top5, 1e-12);
    EXPECT_EQ(result.samples, 5);
    EXPECT_EQ(result.step, step);
    EXPECT_GE(result.data_seconds, 0);
    EXPECT_GT(result.compute_seconds, 0);
  }
}

// Sequences of 1 + index / 4 steps: batches are as long as their longest.
class TinySequences : public DataSet {
 public:
  TinySequences() {
    info_.name = "sequences";
    info_.sample_shape = {kTimeSteps, 2};
    info_.classes = 6;
    info_.train_size = 40;
    info_.by_length = true;
  }
  const DataInfo& info() const override { return info_; }
  Expected<Batch> batch(Split, const std::vector<std::int64_t>& indices,
                        std::uint64_t) const override {
    const auto size = static_cast<std::int64_t>(indices.size());
    const std::int64_t longest = 1 + *std::max_element(indices.begin(), indices.end()) / 4;
    return Batch{at::ones({size, longest, 2}), at::zeros({size}, at::kLong)};
  }

 private:
  DataInfo info_;
};

class StepMean : public torch::nn::Module {
 public:
  at::Tensor forward(const at::Tensor& x) { return x.mean(1); }
};

TEST(TorchCompute, SaysHowLongTheBatchWas) {
  TorchComputeConfig config = tiny_config(
      [] { return torch::nn::Sequential(std::make_shared<StepMean>(), torch::nn::Linear(2, 6)); });
  config.data = std::make_shared<const TinySequences>();
  const auto compute = make_tiny(config);
  const Sampler sampler = Sampler::make(21, 40, 2, 5, Batching::by_length).value();
  std::set<std::int64_t> lengths;
  for (Step step = 0; step < 8; ++step) {
    const auto samples = sampler.indices(0, step);
    const Gradient gradient = compute->gradient(tiny_request(compute->initial_parameters(), step));
    ASSERT_EQ(gradient.error, "");
    EXPECT_EQ(gradient.length, 1 + *std::max_element(samples.begin(), samples.end()) / 4);
    lengths.insert(gradient.length);
  }
  EXPECT_GT(lengths.size(), 1U);
  const auto plain = make_tiny(tiny_config(tiny_layers));
  EXPECT_EQ(plain->gradient(tiny_request(plain->initial_parameters())).length, 0);
}

TEST(TorchCompute, GradientIsTheSlopeOfTheLoss) {
  const auto compute = make_tiny(tiny_config(plain_layers));
  const FrozenTensor z = random_point(*compute);
  const Gradient result = compute->gradient(tiny_request(z));
  for (std::int64_t i = 0; i < compute->dimension(); i += 3) {
    constexpr double kStep = 1e-2;
    const auto loss_at = [&](double offset) {
      at::Tensor moved = z.read().clone();
      moved[i] += offset;
      return compute->gradient(tiny_request(FrozenTensor::freeze(std::move(moved)))).loss;
    };
    const double slope = (loss_at(kStep) - loss_at(-kStep)) / (2 * kStep);
    EXPECT_NEAR(result.value.read()[i].item<double>(), slope, 2e-4) << "coordinate " << i;
  }
}

TEST(TorchCompute, RanksAverageToTheGradientOfOneLargeBatch) {
  constexpr std::int64_t kRanks = 4;
  const auto alone = make_tiny(tiny_config(plain_layers, 0, 1, 2 * kRanks));
  std::vector<std::unique_ptr<Compute>> shared;
  for (Rank rank = 0; rank < kRanks; ++rank)
    shared.push_back(make_tiny(tiny_config(plain_layers, rank, kRanks, 2)));
  const FrozenTensor z = alone->initial_parameters();
  for (Step step = 0; step < 12; ++step) {
    SCOPED_TRACE(step);
    at::Tensor mean = at::zeros({alone->dimension()});
    for (const auto& compute : shared) {
      ASSERT_TRUE(compute->initial_parameters().read().equal(z.read()));
      mean += compute->gradient(tiny_request(z, step)).value.read() / kRanks;
    }
    const Gradient expected = alone->gradient(tiny_request(z, step));
    EXPECT_TRUE(at::allclose(mean, expected.value.read(), 1e-5, 1e-6));
  }
}

TEST(TorchCompute, EqualRequestsGiveEqualBits) {
  for (const auto& layers : {tiny_layers, tiny_layers_with_dropout}) {
    const auto compute = make_tiny(tiny_config(layers));
    const FrozenTensor z = random_point(*compute);
    const Gradient first = compute->gradient(tiny_request(z, 3));
    compute->gradient(tiny_request(random_point(*compute, 2), 4));
    compute->evaluate(z, first.buffers).value();
    torch::manual_seed(12345);
    expect_same_bits(first, compute->gradient(tiny_request(z, 3)));
    expect_same_bits(first, make_tiny(tiny_config(layers))->gradient(tiny_request(z, 3)));
  }
}

TEST(TorchCompute, OtherThreadsDoNotChangeTheMasks) {
  constexpr Step kSteps = 200;
  const auto run = [](std::vector<Gradient>& results) {
    const auto compute = make_tiny(tiny_config(tiny_layers_with_dropout));
    const FrozenTensor z = FrozenTensor::freeze(at::ones({compute->dimension()}));
    for (Step step = 0; step < kSteps; ++step)
      results.push_back(compute->gradient(tiny_request(z, step)));
  };
  std::vector<Gradient> alone;
  run(alone);
  std::vector<Gradient> one;
  std::vector<Gradient> two;
  std::thread beside([&] { run(one); });
  run(two);
  beside.join();
  for (std::size_t i = 0; i < alone.size(); ++i) {
    expect_same_bits(alone[i], one[i]);
    expect_same_bits(alone[i], two[i]);
  }
}

TEST(TorchCompute, MasksDifferByRankAndStep) {
  // Equal samples everywhere, so that only the masks differ.
  const auto compute_of = [](Rank rank) {
    TorchComputeConfig config = tiny_config(tiny_layers_with_dropout, rank, 2, 1);
    config.data = std::make_shared<const TinyData>(tiny_info(2));
    return make_tiny(std::move(config));
  };
  const auto zero = compute_of(0);
  const auto one = compute_of(1);
  const FrozenTensor z = random_point(*zero);
  std::vector<at::Tensor> seen;
  for (const auto& compute : {zero.get(), one.get()})
    for (Step step = 0; step < 4; ++step)
      seen.push_back(compute->gradient(tiny_request(z, step)).value.read());
  for (std::size_t i = 0; i < seen.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(seen[i].equal(seen[j])) << i << " " << j;
}

TEST(TorchCompute, LeavesZToItsOwner) {
  const auto compute = make_tiny(tiny_config(tiny_layers));
  FrozenTensor z = random_point(*compute);
  const at::Tensor before = z.read().clone();
  Gradient last;
  for (Step step = 0; step < 5; ++step) {
    last = compute->gradient(tiny_request(z, step));
    ASSERT_EQ(last.error, "");
    EXPECT_TRUE(z.sole_owner());
    EXPECT_TRUE(last.value.sole_owner());
  }
  EXPECT_TRUE(compute->evaluate(z, last.buffers).ok());
  EXPECT_TRUE(z.sole_owner());
  EXPECT_TRUE(z.read().equal(before));
}

TEST(TorchCompute, LeavesZToItsOwnerAfterAnError) {
  const auto compute = make_tiny(tiny_config(tiny_layers));
  const FrozenTensor z = FrozenTensor::freeze(
      at::full({compute->dimension()}, std::numeric_limits<float>::quiet_NaN()));
  EXPECT_NE(compute->gradient(tiny_request(z)).error, "");
  EXPECT_TRUE(z.sole_owner());
}

TEST(TorchCompute, ReusesRecycledMemory) {
  const auto compute = make_tiny(tiny_config(plain_layers));
  const FrozenTensor z = random_point(*compute);
  GradientRequest request = tiny_request(z);
  request.recycled = FrozenTensor::freeze(at::full({compute->dimension()}, 3.0F));
  const void* memory = request.recycled.raw();
  Gradient result = compute->gradient(std::move(request));
  EXPECT_EQ(result.value.raw(), memory);
  expect_same_bits(result, compute->gradient(tiny_request(z)));

  // Memory that somebody still reads, or of another size, is left alone.
  const FrozenTensor reader = result.value;
  const at::Tensor before = reader.read().clone();
  request = tiny_request(z, 1);
  request.recycled = std::move(result.value);
  EXPECT_NE(compute->gradient(std::move(request)).value.raw(), reader.raw());
  EXPECT_TRUE(reader.read().equal(before));
  request = tiny_request(z);
  request.recycled = FrozenTensor::freeze(at::zeros({3}));
  EXPECT_EQ(compute->gradient(std::move(request)).value.numel(), compute->dimension());
}

// A layer with a parameter that the output does not depend on.
class Idle : public torch::nn::Module {
 public:
  Idle() { register_parameter("idle", at::ones({4})); }
  at::Tensor forward(const at::Tensor& x) { return x; }
};

TEST(TorchCompute, UnusedParametersHaveGradientZero) {
  const auto compute = make_tiny(tiny_config(
      [] { return torch::nn::Sequential(std::make_shared<Idle>(), torch::nn::Linear(3, 6)); }));
  GradientRequest request = tiny_request(random_point(*compute));
  request.recycled = FrozenTensor::freeze(at::full({compute->dimension()}, 3.0F));
  const Gradient result = compute->gradient(std::move(request));
  ASSERT_EQ(result.error, "");
  EXPECT_TRUE(result.value.read().narrow(0, 0, 4).eq(0).all().item<bool>());
  EXPECT_FALSE(result.value.read().eq(0).all().item<bool>());
}

TEST(TorchCompute, BuffersComeFromTheRequest) {
  const auto compute = make_tiny(tiny_config(tiny_layers));
  const FrozenTensor z = random_point(*compute);
  GradientRequest request = tiny_request(z);
  request.buffers = FrozenTensor::freeze(at::full({17}, 10.0F));
  const Gradient result = compute->gradient(std::move(request));
  ASSERT_EQ(result.error, "");
  EXPECT_EQ(result.buffers.data<float>()[16], 11);  // num_batches_tracked
  // Without buffers in the request the initial ones count, whatever was computed before.
  EXPECT_EQ(compute->gradient(tiny_request(z)).buffers.data<float>()[16], 1);
  EXPECT_EQ(compute->initial_buffers().data<float>()[16], 0);
  EXPECT_FALSE(make_tiny(tiny_config(plain_layers))->initial_buffers().defined());
}

TEST(TorchCompute, EvaluatesTheTestSplit) {
  TorchComputeConfig config = tiny_config(tiny_layers);
  const TinyData data(tiny_info());
  std::vector<std::int64_t> all(17);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::int64_t>(i);
  const Batch batch = data.batch(Split::test, all, 0).value();
  for (const std::int64_t size : {1, 5, 17, 100}) {
    config.eval_batch_size = size;
    const auto compute = make_tiny(config);
    torch::nn::Sequential layers = tiny_layers();
    const FrozenTensor z = random_point(*compute);
    const FrozenTensor buffers = FrozenTensor::freeze(at::rand({17}) + 0.5);
    // The reference's forward uses the buffers only in evaluation mode: its loss is computed so.
    TinyModel model(layers);
    ASSERT_TRUE(load_flat(model, z, buffers).ok());
    layers->eval();
    const at::Tensor output = layers->forward(batch.input);
    const double loss = torch::nn::functional::cross_entropy(output, batch.target).item<double>();
    const double top1 = output.argmax(1).eq(batch.target).to(at::kDouble).mean().item<double>();
    const auto result = compute->evaluate(z, buffers);
    ASSERT_TRUE(result.ok());
    EXPECT_NEAR(result->loss, loss, 1e-5);
    EXPECT_NEAR(result->top1, top1, 1e-9);
    EXPECT_GE(result->top5, result->top1);
    EXPECT_EQ(result->samples, 17);
  }
}

// The largest pass of an evaluation, in samples.
std::int64_t largest_evaluated(TorchComputeConfig config, const DataInfo& info) {
  std::size_t largest = 0;
  bool evaluates = false;
  config.data = std::make_shared<const TinyData>(
      info, [&](const std::vector<std::int64_t>& indices) -> Expected<void> {
        if (evaluates) largest = std::max(largest, indices.size());
        return {};
      });
  const auto compute = make_tiny(std::move(config));
  evaluates = true;
  const auto result = compute->evaluate(random_point(*compute), {});
  EXPECT_TRUE(result.ok());
  if (result.ok()) {
    EXPECT_EQ(result->samples, info.test_size);
  }
  return static_cast<std::int64_t>(largest);
}

// A job that trains on a few large samples at once must be able to test its model.
TEST(TorchCompute, EvaluatesFewLargeSamplesAtOnce) {
  const auto large = [](std::int64_t side) {
    return [side] {
      return torch::nn::Sequential(torch::nn::Conv2d(3, 1, 1), torch::nn::AvgPool2d(side),
                                   torch::nn::Flatten(), torch::nn::Linear(1, 6));
    };
  };
  DataInfo info = tiny_info();
  info.test_size = 300;
  EXPECT_EQ(largest_evaluated(tiny_config(plain_layers), info), 256);
  info.test_size = 40;
  info.sample_shape = {3, 200, 200};
  EXPECT_EQ(largest_evaluated(tiny_config(large(200), 0, 1, 4), info), 8);
  // Those of a pass in training fit.
  EXPECT_EQ(largest_evaluated(tiny_config(large(200), 0, 1, 20), info), 20);
  TorchComputeConfig in_passes = tiny_config(large(200), 0, 1, 20);
  in_passes.passes = 2;
  EXPECT_EQ(largest_evaluated(in_passes, info), 10);
}

TEST(TorchCompute, AnEvaluationCanBeEnded) {
  TorchComputeConfig config = tiny_config(tiny_layers);
  config.eval_batch_size = 5;
  const auto compute = make_tiny(config);
  const FrozenTensor z = random_point(*compute);
  int batches = 0;
  compute->on_evaluation_progress([&batches] { return ++batches < 2; });
  const auto ended = compute->evaluate(z, {});
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, Errc::stopped);
  EXPECT_EQ(batches, 2);
  compute->on_evaluation_progress({});
  EXPECT_TRUE(compute->evaluate(z, {}).ok());
}

// Rows of metrics.csv that nobody writes need no accuracy; the loss is always there.
TEST(TorchCompute, CountsHitsWhereAskedTo) {
  TorchComputeConfig config = tiny_config(tiny_layers);
  const auto always = make_tiny(config);
  config.accuracy_every = 3;
  config.last_step = 6;
  const auto some = make_tiny(config);
  for (Step step = 0; step < 8; ++step) {
    const FrozenTensor z = random_point(*always, static_cast<std::uint64_t>(step));
    const Gradient a = always->gradient(tiny_request(z, step));
    const Gradient b = some->gradient(tiny_request(z, step));
    expect_same_bits(a, b);
    const bool counted = step % 3 == 0 || step == 5;
    EXPECT_EQ(std::isnan(b.top1), !counted) << step;
    EXPECT_EQ(std::isnan(b.top5), !counted) << step;
    if (counted) {
      EXPECT_EQ(a.top1, b.top1);
    }
  }
}

TEST(TorchCompute, Regression) {
  DataInfo info = tiny_info();
  info.task = Task::regression;
  info.classes = 2;
  TorchComputeConfig config =
      tiny_config([] { return torch::nn::Sequential(torch::nn::Linear(3, 2)); }, 0, 1, 40);
  config.data = std::make_shared<const TinyData>(info);
  const auto compute = make_tiny(config);
  at::Tensor x = compute->initial_parameters().read().clone();
  const double start = compute->gradient(tiny_request(FrozenTensor::copy_of(x))).loss;
  for (Step step = 0; step < 200; ++step)
    x = x - 0.5 * compute->gradient(tiny_request(FrozenTensor::copy_of(x), step)).value.read();
  const Gradient end = compute->gradient(tiny_request(FrozenTensor::copy_of(x)));
  EXPECT_LT(end.loss, start);
  EXPECT_LT(end.value.read().abs().max().item<double>(), 1e-5);  // least squares: gradient zero
  EXPECT_TRUE(std::isnan(end.top1) && std::isnan(end.top5));
  EXPECT_TRUE(std::isnan(compute->evaluate(FrozenTensor::copy_of(x), {})->top1));
}

TEST(TorchCompute, Top5NeedsFiveClasses) {
  DataInfo info = tiny_info();
  info.classes = 4;
  TorchComputeConfig config =
      tiny_config([] { return torch::nn::Sequential(torch::nn::Linear(3, 4)); });
  config.data = std::make_shared<const TinyData>(info);
  const auto compute = make_tiny(config);
  const Gradient result = compute->gradient(tiny_request(random_point(*compute)));
  EXPECT_FALSE(std::isnan(result.top1));
  EXPECT_TRUE(std::isnan(result.top5));
}

TEST(TorchCompute, GradientErrorsAreOneLine) {
  const auto compute = make_tiny(tiny_config(plain_layers, 1));
  const at::Tensor infinite =
      at::full({compute->dimension()}, std::numeric_limits<float>::infinity());
  EXPECT_EQ(compute->gradient(tiny_request(FrozenTensor::copy_of(infinite), 7)).error,
            "rank 1: loss is not finite at step 7: lower the learning rate");
  // Nothing has been learned yet, at any rate.
  EXPECT_EQ(compute->gradient(tiny_request(FrozenTensor::copy_of(infinite), 0)).error,
            "rank 1: loss is not finite at step 0, before the first update: check the model and "
            "the data");
  EXPECT_EQ(compute->gradient(tiny_request(FrozenTensor::freeze(at::ones({4})))).error,
            "rank 1: z has 4 values, model 'net' has 86 float32 parameters: send parameters of the "
            "same model");
  GradientRequest request = tiny_request(random_point(*compute));
  request.buffers = FrozenTensor::freeze(at::ones({2}));
  EXPECT_NE(compute->gradient(std::move(request)).error.find("2 buffer values"), std::string::npos);
  EXPECT_NE(compute->gradient(GradientRequest()).error, "");
}

TEST(TorchCompute, ExceptionsInAStepAreErrors) {
  TorchComputeConfig config = tiny_config(plain_layers);
  bool broken = false;
  config.data = std::make_shared<const TinyData>(
      tiny_info(), [&broken](const std::vector<std::int64_t>&) -> Expected<void> {
        if (broken) return bad_input("image 7 is cut short");
        return {};
      });
  const auto compute = make_tiny(config);
  const FrozenTensor z = random_point(*compute);
  ASSERT_EQ(compute->gradient(tiny_request(z)).error, "");
  broken = true;
  EXPECT_EQ(compute->gradient(tiny_request(z)).error, "rank 0: image 7 is cut short");
  EXPECT_EQ(compute->evaluate(z, {}).error().message, "image 7 is cut short");
  broken = false;
  EXPECT_EQ(compute->gradient(tiny_request(z)).error, "");
}

// A layer that works for the two samples of the check and throws for other batches.
class Fragile : public torch::nn::Module {
 public:
  at::Tensor forward(const at::Tensor& x) { return x.size(0) == 2 ? x : x.mm(at::ones({7, 7})); }
};

TEST(TorchCompute, AFailingForwardPassIsAnErrorOfTheStep) {
  const auto compute = make_tiny(tiny_config(
      [] { return torch::nn::Sequential(torch::nn::Linear(3, 6), std::make_shared<Fragile>()); }));
  const FrozenTensor z = random_point(*compute);
  EXPECT_EQ(compute->gradient(tiny_request(z, 2)).error,
            "rank 0: step 2: the pass through model 'net' threw: mat1 and mat2 shapes cannot be "
            "multiplied (5x6 and 7x7)");
  EXPECT_TRUE(z.sole_owner());
}

TEST(TorchCompute, AModelThatDoesNotFitIsRefused) {
  const auto narrow = TorchCompute::make(
      tiny_config([] { return torch::nn::Sequential(torch::nn::Linear(3, 4)); }));
  ASSERT_FALSE(narrow.ok());
  EXPECT_EQ(narrow.error().code, Errc::bad_input);
  EXPECT_EQ(
      narrow.error().message,
      "model 'net' does not fit data 'tiny': its output is [2, 4] where [2, 6] is needed, for "
      "input [2, 3]: choose another model or data set");
  const auto wide = TorchCompute::make(
      tiny_config([] { return torch::nn::Sequential(torch::nn::Linear(9, 6)); }));
  ASSERT_FALSE(wide.ok());
  EXPECT_EQ(wide.error().code, Errc::bad_input);
  EXPECT_EQ(
      wide.error().message,
      "model 'net' does not fit data 'tiny': output [2, 6] is needed for input [2, 3], but its "
      "forward pass failed: mat1 and mat2 shapes cannot be multiplied (2x3 and 9x6)");
  const auto empty =
      TorchCompute::make(tiny_config([] { return torch::nn::Sequential(torch::nn::Tanh()); }));
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.error().message.find("model 'net': the model has no trainable"), 0U);
}

// A layer for which a device has no memory from a size of the batch on.
class Greedy : public torch::nn::Module {
 public:
  explicit Greedy(std::int64_t most) : most_(most) {}
  at::Tensor forward(const at::Tensor& x) {
    TORCH_CHECK_WITH(OutOfMemoryError, x.size(0) < most_,
                     "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 1 has a total capacity");
    return x;
  }

 private:
  const std::int64_t most_;
};

TEST(TorchCompute, MemoryThatRunsOutIsNoMisfitOfModelAndData) {
  const auto config_with = [](std::int64_t most) {
    return tiny_config(
        [most] {
          return torch::nn::Sequential(torch::nn::Linear(3, 6), std::make_shared<Greedy>(most));
        },
        1);
  };
  const std::string line =
      "out of memory on cuda:1 (3.00 GiB more were needed): use a smaller --batch-size, with "
      "--accumulate for as many samples, or fewer workers for each device";
  const auto at_once = TorchCompute::make(config_with(0));
  ASSERT_FALSE(at_once.ok());
  EXPECT_EQ(at_once.error().code, Errc::failed);
  EXPECT_EQ(at_once.error().message, "rank 1: model 'net': " + line);
  const auto compute = make_tiny(config_with(3));
  const FrozenTensor z = random_point(*compute);
  EXPECT_EQ(compute->gradient(tiny_request(z, 2)).error,
            "rank 1: step 2: the pass through model 'net' threw: " + line);
  EXPECT_EQ(compute->evaluate(z, {}).error().message, "evaluating model 'net': " + line);
  EXPECT_TRUE(z.sole_owner());
}

TEST(TorchCompute, ExceptionsOfMakeNameTheModel) {
  TorchComputeConfig config = tiny_config(plain_layers);
  config.data = std::make_shared<const TinyData>(
      tiny_info(), [](const std::vector<std::int64_t>&) -> Expected<void> {
        throw std::runtime_error("no such type");
      });
  const auto thrown = TorchCompute::make(config);
  ASSERT_FALSE(thrown.ok());
  EXPECT_EQ(thrown.error().message, "model 'net': no such type");
}

TEST(TorchCompute, MakeHandsOnErrors) {
  EXPECT_NE(TorchCompute::make(tiny_config(plain_layers, 0, 2, 21))
                .error()
                .message.find("the largest batch size that fits is 20"),
            std::string::npos);
  TorchComputeConfig config = tiny_config(plain_layers);
  config.model = [](std::uint64_t) -> Expected<std::unique_ptr<Model>> {
    return bad_input("no such model");
  };
  EXPECT_EQ(TorchCompute::make(config).error().message, "no such model");
  DataInfo info = tiny_info();
  info.test_size = 0;
  config = tiny_config(plain_layers);
  config.data = std::make_shared<const TinyData>(info);
  const auto compute = make_tiny(config);
  EXPECT_EQ(compute->evaluate(random_point(*compute), {}).error().code, Errc::bad_input);
}

}  // namespace torch_compute_test
}  // namespace grapevine
