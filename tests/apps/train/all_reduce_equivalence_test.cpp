// All-reduce SGD with P workers is SGD on the combined batch: the shipped actors against one
// process.
#include <gtest/gtest.h>
#include <torch/torch.h>

#include "actors/run/simulation/run_virtual.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"
#include "gpu/torch_compute.hpp"
#include "net/inproc/inproc.hpp"

namespace grapevine {
namespace all_reduce_equivalence_test {

constexpr std::int64_t kCombinedBatch = 120;  // divisible by every P below
constexpr double kRate = 0.02;
constexpr double kMomentum = 0.9;

struct Ignore : RunObserver {
  void on_step(const StepReport&) override {}
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string&) override {}
  void on_end(RunResult) override {}
};

std::shared_ptr<const DataSet> glyphs() {
  static const auto data = *make_data_set("glyphs:1200", {});
  return data;
}

std::shared_ptr<Compute> make_compute(const std::string& model, Rank rank, std::int64_t ranks,
                                      std::int64_t batch) {
  TorchComputeConfig config;
  config.model = *make_model_factory(model, glyphs()->info());
  config.model_name = model;
  config.data = glyphs();
  config.rank = rank;
  config.ranks = ranks;
  config.batch_size = batch;
  config.seed = 7;
  auto made = TorchCompute::make(std::move(config));
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return std::move(*made);
}

at::Tensor train(const std::string& model, std::int32_t workers, Step steps) {
  LrConfig rate;
  rate.lr = kRate;
  OptimizerConfig optimizer;
  optimizer.momentum = kMomentum;
  RunConfig run;
  run.ranks = workers;
  run.parts = *make_parts(*resolve(find_preset("ar")->wiring), {steps, 100},
                          *LrSchedule::make(rate), optimizer, workers);
  run.transport = make_inproc_transport(workers);
  for (Rank r = 0; r < workers; ++r)
    run.computes.push_back(make_compute(model, r, workers, kCombinedBatch / workers));
  const RunResult result = run_virtual(std::move(run), std::make_shared<Ignore>());
  EXPECT_FALSE(result.error) << result.error->message;
  return result.z.read();
}

// Largest difference, relative to the largest parameter.
double difference(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs().max() / b.abs().max()).item<double>();
}

// One process without actors: the optimizer of LibTorch on the mean gradient of `shards`
// sub-batches.
at::Tensor reference(const std::string& model, std::int64_t shards, Step steps) {
  std::vector<std::shared_ptr<Compute>> computes;
  for (Rank r = 0; r < shards; ++r)
    computes.push_back(make_compute(model, r, shards, kCombinedBatch / shards));
  at::Tensor x = computes.front()->initial_parameters().read().clone().requires_grad_();
  std::vector<FrozenTensor> buffers(computes.size(), computes.front()->initial_buffers());
  torch::optim::SGD sgd({x}, torch::optim::SGDOptions(kRate).momentum(kMomentum));
  for (Step step = 0; step < steps; ++step) {
    at::Tensor mean = at::zeros({x.numel()});
    for (std::size_t r = 0; r < computes.size(); ++r) {
      Gradient g = computes[r]->gradient({step, FrozenTensor::copy_of(x), buffers[r], {}});
      EXPECT_EQ(g.error, "");
      buffers[r] = g.buffers;
      mean += g.value.read() / static_cast<double>(shards);
    }
    x.mutable_grad() = mean;
    sgd.step();
  }
  return x.detach();
}

TEST(AllReduceEquivalence, MlpAndLenetEqualSgdOnTheCombinedBatch) {
  for (const std::string model : {"mlp", "lenet"}) {
    const at::Tensor expected = reference(model, 1, 8);
    for (const std::int32_t workers : {1, 2, 3, 4, 5, 8}) {
      SCOPED_TRACE(model + ", P=" + std::to_string(workers));
      EXPECT_LT(difference(train(model, workers, 8), expected), 1e-5);
    }
  }
}

// Batch-norm normalises each worker's batch by its own statistics: the reference splits alike.
TEST(AllReduceEquivalence, Resnet20EqualsSgdOnTheMeanOfShardGradients) {
  for (const std::int32_t workers : {1, 2, 3, 4, 5, 8}) {
    SCOPED_TRACE("P=" + std::to_string(workers));
    const at::Tensor expected = reference("resnet20", workers, 2);
    EXPECT_LT(difference(train("resnet20", workers, 2), expected), 1e-5);
  }
}

}  // namespace all_reduce_equivalence_test
}  // namespace grapevine
