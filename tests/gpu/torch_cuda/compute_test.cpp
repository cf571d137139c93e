// Workers on a GPU against the same workers on the CPU: every model of the zoo, every precision.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"
#include "gpu/precision.hpp"
#include "gpu/torch_compute.hpp"
#include "tests/gpu/torch_cuda/gpu_here.hpp"

namespace grapevine {
namespace {

// Their masks come from generators that differ between devices, so they are compared where they
// have none: in evaluation.
const std::set<std::string> kWithDropout = {"gem-cnn", "vgg16", "transformer"};

std::string text_file() {
  const std::string path =
      testing::TempDir() + "/torch_cuda_text_" + std::to_string(::getpid()) + ".txt";
  std::ofstream out(path);
  for (int i = 0; i < 8000; ++i) out << static_cast<char>('a' + (i * i / 7 + i) % 26);
  return path;
}

std::shared_ptr<const DataSet> data_for(const std::string& model) {
  const std::string spec = model == "lstm"          ? "sequences:64"
                           : model == "transformer" ? "text:" + text_file()
                                                    : "noise:32";
  auto data = make_data_set(spec, {});
  return data ? *data : nullptr;
}

std::unique_ptr<Compute> compute_of(const std::string& model,
                                    const std::shared_ptr<const DataSet>& data, at::Device device,
                                    Precision precision, bool channels_last) {
  TorchComputeConfig config;
  config.model = make_model_factory(model, data->info()).value();
  config.model_name = model;
  config.data = data;
  config.batch_size = 8;
  config.seed = 5;
  config.runtime = open_device(device).value();
  config.precision = precision;
  config.scale_loss = precision == Precision::fp16;
  config.channels_last = channels_last;
  return TorchCompute::make(std::move(config)).value();
}

GradientRequest request_at(const FrozenTensor& z) {
  GradientRequest request;
  request.z = z;
  return request;
}

double cosine(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.to(at::kDouble), y = b.to(at::kDouble);
  return (x.dot(y) / (x.norm() * y.norm())).item<double>();
}

struct Tolerance {
  double loss;    // relative
  double cosine;  // of the gradients, at least
};

Tolerance tolerance_of(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return {1e-3, 0.9999};
    case Precision::tf32:
    case Precision::fp16:
      return {2e-2, 0.99};
    case Precision::bf16:
      break;
  }
  return {5e-2, 0.95};
}

using Case = std::tuple<std::string, Precision>;

class Zoo : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (const auto why = too_few_gpus(1); !why.empty()) GTEST_SKIP() << why;
  }
  void TearDown() override { set_math_mode(Precision::fp32, false); }
};

TEST_P(Zoo, ComputesOnAGpuWhatItDoesOnTheCpu) {
  const auto& [model, precision] = GetParam();
  const auto data = data_for(model);
  ASSERT_NE(data, nullptr);
  set_math_mode(precision, false);
  const auto cpu = compute_of(model, data, at::kCPU, Precision::fp32, false);
  const FrozenTensor z = cpu->initial_parameters();
  const Gradient expected = cpu->gradient(request_at(z));
  const auto evaluated = cpu->evaluate(z, expected.buffers);
  ASSERT_EQ(expected.error, "");
  ASSERT_TRUE(evaluated.ok());
  const bool images = data->info().sample_shape.size() == 3;
  const Tolerance within = tolerance_of(precision);
  for (const bool channels_last : {false, true}) {
    if (channels_last && !images) continue;
    SCOPED_TRACE(channels_last ? "channels last" : "channels first");
    const auto gpu = compute_of(model, data, {at::kCUDA, 0}, precision, channels_last);
    ASSERT_TRUE(gpu->initial_parameters().read().equal(z.read()));
    const Gradient found = gpu->gradient(request_at(z));
    ASSERT_EQ(found.error, "");
    if (kWithDropout.count(model) == 0) {
      EXPECT_NEAR(found.loss, expected.loss, within.loss * expected.loss);
      EXPECT_GT(cosine(found.value.read(), expected.value.read()), within.cosine);
    }
    const auto figures = gpu->evaluate(z, expected.buffers);
    ASSERT_TRUE(figures.ok()) << figures.error().message;
    EXPECT_NEAR(figures->loss, evaluated->loss, within.loss * evaluated->loss);
  }
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  std::string name = std::get<0>(info.param);
  for (char& c : name)
    if (c == '-') c = '_';
  const char* const precisions[] = {"fp32", "tf32", "bf16", "fp16"};
  return name + "_" + precisions[static_cast<int>(std::get<1>(info.param))];
}

INSTANTIATE_TEST_SUITE_P(Models, Zoo,
                         testing::Combine(testing::ValuesIn(model_names()),
                                          testing::Values(Precision::fp32, Precision::tf32,
                                                          Precision::bf16, Precision::fp16)),
                         case_name);

}  // namespace
}  // namespace grapevine
