// Steps on a GPU that are replayed as CUDA graphs against steps that are not.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"
#include "gpu/model/precision.hpp"
#include "gpu/torch_compute.hpp"
#include "tests/gpu/torch_cuda/gpu_here.hpp"

namespace grapevine {
namespace {

const at::Device kGpu{at::kCUDA, 0};
constexpr Step kSteps = 12;

class CudaGraphSteps : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto why = too_few_gpus(1); !why.empty()) GTEST_SKIP() << why;
    if (const auto why = open_device(kGpu).value()->why_no_graphs(); !why.empty())
      GTEST_SKIP() << why;
  }
};

std::unique_ptr<Compute> worker(TorchComputeConfig config, bool graphs) {
  config.runtime = open_device(kGpu).value();
  config.graphs = graphs;
  config.accuracy_every = 3;
  return TorchCompute::make(std::move(config)).value();
}

TorchComputeConfig resnet(Precision precision) {
  TorchComputeConfig config;
  config.data = make_data_set("noise:32", {}).value();
  config.model = make_model_factory("resnet20", config.data->info()).value();
  config.model_name = "resnet20";
  config.batch_size = 8;
  config.seed = 5;
  config.precision = precision;
  return config;
}

// Kernels may add in another order in each step, so values are compared with a tolerance.
void expect_near(const at::Tensor& found, const at::Tensor& expected, double tolerance) {
  const at::Tensor a = found.cpu(), b = expected.cpu();
  const double scale = b.norm().item<double>();
  EXPECT_LE((a - b).norm().item<double>(), tolerance * scale + 1e-12);
}

// z and buffers are those of the steps without graphs, so that rounding does not add up. `on_gpu`:
// z is there, at another address in each step.
void compare(const TorchComputeConfig& config, double tolerance, bool on_gpu) {
  const auto eager = worker(config, false), graphs = worker(config, true);
  const auto peer = open_device(kGpu).value();
  FrozenTensor z = eager->initial_parameters(), buffers;
  for (Step step = 0; step < kSteps; ++step) {
    SCOPED_TRACE(step);
    GradientRequest request;
    request.step = step;
    request.z = z;
    request.buffers = buffers;
    const Gradient expected = eager->gradient(request);
    if (on_gpu) {
      const auto scope = peer->enter(Stream::exchange);
      request.z = z.on(kGpu);
    }
    const Gradient found = graphs->gradient(std::move(request));
    ASSERT_EQ(expected.error + found.error, "");
    EXPECT_EQ(found.value.device().is_cuda(), on_gpu);
    EXPECT_NEAR(found.loss, expected.loss, tolerance * expected.loss);
    const at::Tensor gradient = found.value.on_host().read();
    expect_near(gradient, expected.value.read(), tolerance);
    if (expected.buffers.defined())
      expect_near(found.buffers.on_host().read(), expected.buffers.read(), tolerance);
    z = FrozenTensor::freeze(z.read() - 0.05 * expected.value.read());
    buffers = expected.buffers;
    if (step % 4 == 3) {
      const auto a = graphs->evaluate(z, buffers), b = eager->evaluate(z, buffers);
      ASSERT_TRUE(a.ok() && b.ok());
      EXPECT_NEAR(a->loss, b->loss, tolerance * b->loss);
    }
  }
}

TEST_F(CudaGraphSteps, ComputeWhatOthersDo) {
  compare(resnet(Precision::fp32), 1e-3, false);
  compare(resnet(Precision::fp32), 1e-3, true);
}

TEST_F(CudaGraphSteps, ComputeWhatOthersDoInBf16AndChannelsLast) {
  TorchComputeConfig config = resnet(Precision::bf16);
  config.channels_last = true;
  compare(config, 5e-2, false);
}

// Each captures while others compute, allocate and replay on the same GPU.
TEST_F(CudaGraphSteps, WorkersOfOneGpuCaptureBesideEachOther) {
  std::vector<std::thread> workers;
  for (int i = 0; i < 3; ++i)
    workers.emplace_back([] { compare(resnet(Precision::fp32), 1e-3, false); });
  for (std::thread& each : workers) each.join();
}

}  // namespace
}  // namespace grapevine
