// Workers on a GPU against the same workers on the CPU: every model of the zoo, every precision.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "apps/zoo/data.hpp"
#include "apps/zoo/models.hpp"
#include "gpu/model/precision.hpp"
#include "gpu/torch_compute.hpp"
#include "tests/gpu/gradient_tolerance.hpp"
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
  return make_data_set(spec, {}).value();
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

// Of the loss, relative.
double loss_tolerance(Precision precision) {
  switch (precision) {
    case Precision::fp32:
      return 1e-3;
    case Precision::tf32:
    case Precision::fp16:
      return 2e-2;
    case Precision::bf16:
      break;
  }
  return 5e-2;
}

// While it lives, operations of this thread on the CPU use all cores.
class AllCores {
 public:
  AllCores() {
    at::set_num_threads(std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
  }
  ~AllCores() { at::set_num_threads(before_); }
  AllCores(const AllCores&) = delete;
  AllCores& operator=(const AllCores&) = delete;

 private:
  const int before_ = at::get_num_threads();
};

// What the CPU computes for a model, in fp32.
struct OnCpu {
  std::shared_ptr<const DataSet> data;
  FrozenTensor z;
  Gradient gradient;
  Evaluation evaluated;
  std::map<double, Gradient> moved;  // at moved parameters, by their rounding
};

OnCpu compute_on_cpu(const std::string& model) {
  const AllCores all_cores;
  OnCpu cpu;
  cpu.data = data_for(model);
  const auto compute = compute_of(model, cpu.data, at::kCPU, Precision::fp32, false);
  cpu.z = compute->initial_parameters();
  cpu.gradient = compute->gradient(request_at(cpu.z));
  cpu.evaluated = compute->evaluate(cpu.z, cpu.gradient.buffers).value();
  if (kWithDropout.count(model) > 0) return cpu;
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
    const double rounding = rounding_of(precision);
    cpu.moved[rounding] = compute->gradient(request_at(moved(cpu.z, rounding, 1)));
  }
  return cpu;
}

// Computed once: it is the same for all precisions.
const OnCpu& on_cpu(const std::string& model) {
  static std::map<std::string, OnCpu> computed;
  const auto found = computed.find(model);
  return found != computed.end() ? found->second
                                 : computed.emplace(model, compute_on_cpu(model)).first->second;
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
  const OnCpu& cpu = on_cpu(model);
  ASSERT_EQ(cpu.gradient.error, "");
  set_math_mode(precision, false);
  const bool images = cpu.data->info().sample_shape.size() == 3;
  const double of_loss = loss_tolerance(precision);
  for (const bool channels_last : {false, true}) {
    if (channels_last && !images) continue;
    SCOPED_TRACE(channels_last ? "channels last" : "channels first");
    const auto gpu = compute_of(model, cpu.data, {at::kCUDA, 0}, precision, channels_last);
    ASSERT_TRUE(gpu->initial_parameters().read().equal(cpu.z.read()));
    const Gradient found = gpu->gradient(request_at(cpu.z));
    ASSERT_EQ(found.error, "");
    if (kWithDropout.count(model) == 0) {
      const Gradient& of_moved = cpu.moved.at(rounding_of(precision));
      ASSERT_EQ(of_moved.error, "");
      EXPECT_NEAR(found.loss, cpu.gradient.loss, of_loss * cpu.gradient.loss);
      EXPECT_EQ(why_unlike(found.value.read(), cpu.gradient.value.read(), of_moved.value.read(),
                           precision),
                "");
    }
    const auto figures = gpu->evaluate(cpu.z, cpu.gradient.buffers);
    ASSERT_TRUE(figures.ok()) << figures.error().message;
    EXPECT_NEAR(figures->loss, cpu.evaluated.loss, of_loss * cpu.evaluated.loss);
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
