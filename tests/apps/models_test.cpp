#include "apps/zoo/models.hpp"

#include <gtest/gtest.h>
#include <torch/script.h>
#include <torch/torch.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "gpu/flat_params.hpp"
#include "gpu/torch_compute.hpp"
#include "tests/gpu/tiny_data.hpp"

namespace grapevine {
namespace {

DataInfo info_of(std::vector<std::int64_t> shape, std::int64_t classes = 10) {
  DataInfo info;
  info.name = "tiny";
  info.sample_shape = std::move(shape);
  info.classes = classes;
  info.train_size = 24;
  info.test_size = 10;
  return info;
}

std::unique_ptr<Model> make_model(const std::string& name, const DataInfo& info,
                                  std::uint64_t seed = 1) {
  return make_model_factory(name, info).value()(seed).value();
}

std::int64_t count_parameters(const std::string& name, const DataInfo& info) {
  return FlatTensors::of_parameters(*make_model(name, info)).value().numel();
}

at::Tensor initial(const std::string& name, const DataInfo& info, std::uint64_t seed) {
  return FlatTensors::of_parameters(*make_model(name, info, seed)).value().gather();
}

at::Tensor samples(const DataInfo& info, std::int64_t count) {
  std::vector<std::int64_t> shape = info.sample_shape;
  shape.insert(shape.begin(), count);
  return at::rand(shape);
}

TorchComputeConfig config_of(const std::string& model, const DataInfo& info) {
  TorchComputeConfig config;
  config.model = make_model_factory(model, info).value();
  config.model_name = model;
  config.data = std::make_shared<const TinyData>(info);
  config.batch_size = 8;
  config.seed = 3;
  return config;
}

GradientRequest request_at(const FrozenTensor& z, Step step = 0) {
  GradientRequest request;
  request.step = step;
  request.z = z;
  return request;
}

// A folder of the test's own, removed at its end.
class Models : public testing::Test {
 protected:
  Models()
      : folder_(std::filesystem::temp_directory_path() /
                ("grapevine_models_" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~Models() override { std::filesystem::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ / name; }

  // A module on samples of three values, with a parameter that is frozen (scale), one that its
  // forward pass does not touch (idle), and an integer buffer (calls).
  std::string write_script(const std::string& name, std::int64_t classes,
                           const std::string& forward = kForward) const {
    torch::jit::Module module("Net");
    torch::manual_seed(17);
    module.register_parameter("w1", at::randn({3, 8}) / 2, false);
    module.register_parameter("b1", at::zeros({8}), false);
    module.register_parameter("w2", at::randn({8, classes}) / 2, false);
    module.register_parameter("idle", at::ones({5}), false);
    module.register_buffer("calls", at::zeros({1}, at::kLong));
    for (const auto& each : module.parameters()) each.set_requires_grad(true);
    at::Tensor frozen = at::full({8}, 2.0F);
    module.register_parameter("scale", frozen, false);
    module.register_attribute("training", c10::BoolType::get(), true);
    module.define(forward);
    module.save(path(name));
    return path(name);
  }

  static constexpr const char* kForward = R"(
def forward(self, x):
    if self.training:
        self.calls += 1
    return torch.tanh(x.mm(self.w1) + self.b1).mul(self.scale).mm(self.w2)
)";

 private:
  std::filesystem::path folder_;
};

TEST_F(Models, HaveTheirPapersNumberOfParameters) {
  const DataInfo grey = info_of({1, 28, 28});
  const DataInfo colour = info_of({3, 32, 32});
  EXPECT_EQ(count_parameters("linear", grey), 7850);
  EXPECT_EQ(count_parameters("mlp", grey), 118282);
  EXPECT_EQ(count_parameters("lenet", grey), 61706);
  EXPECT_EQ(count_parameters("gem-cnn", grey), 163790);
  EXPECT_EQ(count_parameters("resnet20", colour), 269722);
  EXPECT_EQ(count_parameters("resnet32", colour), 464154);
}

TEST_F(Models, TakeGreyAndColourSamples) {
  for (const std::string& name : model_names())
    for (const DataInfo& info :
         {info_of({1, 28, 28}), info_of({3, 32, 32}, 7), info_of({1, 17, 30})}) {
      SCOPED_TRACE(testing::Message() << name << " " << info.sample_shape[2]);
      const auto compute = TorchCompute::make(config_of(name, info));
      ASSERT_TRUE(compute.ok()) << compute.error().message;
      const FrozenTensor z = (*compute)->initial_parameters();
      const Gradient result = (*compute)->gradient(request_at(z));
      EXPECT_EQ(result.error, "");
      EXPECT_GT(result.value.read().abs().max().item<double>(), 0);
      // An untrained classifier guesses: the loss is near that of equal odds.
      EXPECT_NEAR(result.loss, std::log(static_cast<double>(info.classes)), 1.0);
      const auto evaluation = (*compute)->evaluate(z, result.buffers);
      ASSERT_TRUE(evaluation.ok()) << evaluation.error().message;
      EXPECT_TRUE(std::isfinite(evaluation->loss));
    }
}

TEST_F(Models, AreMadeFromTheSeedAlone) {
  const DataInfo info = info_of({1, 28, 28});
  for (const std::string& name : model_names()) {
    SCOPED_TRACE(name);
    torch::manual_seed(1);
    const at::Tensor first = initial(name, info, 5);
    torch::manual_seed(2);
    EXPECT_TRUE(initial(name, info, 5).equal(first));
    EXPECT_FALSE(initial(name, info, 6).equal(first));
  }
}

TEST_F(Models, LearnTheirSamples) {
  const DataInfo info = info_of({1, 28, 28});
  for (const char* name : {"linear", "mlp", "lenet", "gem-cnn", "resnet20"}) {
    SCOPED_TRACE(name);
    const auto compute = TorchCompute::make(config_of(name, info)).value();
    at::Tensor x = compute->initial_parameters().read().clone();
    FrozenTensor buffers = compute->initial_buffers();
    double first = 0;
    double last = 0;
    constexpr Step kSteps = 30;
    for (Step step = 0; step < kSteps; ++step) {
      GradientRequest request = request_at(FrozenTensor::copy_of(x), step);
      request.buffers = buffers;
      Gradient result = compute->gradient(std::move(request));
      ASSERT_EQ(result.error, "");
      x -= 0.03 * result.value.read();
      buffers = result.buffers;
      if (step < 3) first += result.loss / 3;
      if (step >= kSteps - 3) last += result.loss / 3;
    }
    EXPECT_LT(last, first);
  }
}

TEST_F(Models, LinearAndMlpServeRegression) {
  DataInfo info = info_of({20}, 1);
  info.task = Task::regression;
  for (const char* name : {"linear", "mlp"}) {
    const auto compute = TorchCompute::make(config_of(name, info)).value();
    const Gradient result = compute->gradient(request_at(compute->initial_parameters()));
    EXPECT_EQ(result.error, "");
    EXPECT_TRUE(std::isnan(result.top1));
  }
}

TEST_F(Models, SayWhichShapeTheyNeed) {
  const auto flat = make_model_factory("lenet", info_of({20}));
  ASSERT_FALSE(flat.ok());
  EXPECT_EQ(flat.error().code, Errc::bad_input);
  EXPECT_EQ(flat.error().message,
            "model 'lenet' does not fit data 'tiny': its samples are [20], the model needs "
            "[channels, height >= 12, width >= 12]: choose another model or data set");
  EXPECT_FALSE(make_model_factory("gem-cnn", info_of({1, 15, 28})).ok());
  EXPECT_TRUE(make_model_factory("gem-cnn", info_of({1, 16, 16})).ok());
  EXPECT_TRUE(make_model_factory("lenet", info_of({1, 12, 12})).ok());
  EXPECT_FALSE(make_model_factory("resnet20", info_of({3, 3, 32})).ok());
  EXPECT_FALSE(make_model_factory("mlp", info_of({-1})).ok());
  EXPECT_FALSE(make_model_factory("linear", info_of({4}, 0)).ok());
}

TEST_F(Models, TheSmallestSamplesPassThrough) {
  for (const auto& [name, side] : {std::pair{"lenet", 12}, {"gem-cnn", 16}, {"resnet20", 4}}) {
    const DataInfo info = info_of({1, side, side});
    const auto model = make_model(name, info);
    model->train(false);
    EXPECT_EQ(model->forward(samples(info, 2)).sizes(), (std::vector<std::int64_t>{2, 10}));
  }
}

TEST_F(Models, UnknownNamesGetAGuess) {
  const auto unknown = make_model_factory("resnet21", info_of({3, 32, 32}));
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, Errc::bad_input);
  EXPECT_NE(unknown.error().message.find("unknown model 'resnet21': did you mean 'resnet20'"),
            std::string::npos);
}

TEST_F(Models, DropoutIsTheSameBesideOtherWorkers) {
  const auto run = [](std::vector<Gradient>& results) {
    const auto compute = TorchCompute::make(config_of("gem-cnn", info_of({1, 28, 28}))).value();
    const FrozenTensor z = compute->initial_parameters();
    for (Step step = 0; step < 12; ++step)
      results.push_back(compute->gradient(request_at(z, step)));
  };
  std::vector<Gradient> alone;
  run(alone);
  std::vector<Gradient> one;
  std::vector<Gradient> two;
  std::thread beside([&] { run(one); });
  run(two);
  beside.join();
  for (std::size_t i = 0; i < alone.size(); ++i) {
    ASSERT_EQ(alone[i].error, "");
    EXPECT_TRUE(one[i].value.read().equal(alone[i].value.read())) << "step " << i;
    EXPECT_TRUE(two[i].value.read().equal(alone[i].value.read())) << "step " << i;
  }
  // Dropout is on in training and off in evaluation.
  const DataInfo info = info_of({1, 28, 28});
  const auto model = make_model("gem-cnn", info);
  const at::Tensor input = samples(info, 4);
  model->train(true);
  EXPECT_FALSE(model->forward(input).equal(model->forward(input)));
  model->train(false);
  EXPECT_TRUE(model->forward(input).equal(model->forward(input)));
}

TEST_F(Models, SavedTensorsComeBack) {
  const DataInfo info = info_of({3, 32, 32});
  const auto model = make_model("resnet20", info);
  auto flat = FlatTensors::of_parameters(*model).value();
  torch::manual_seed(9);
  const FrozenTensor z = FrozenTensor::freeze(at::randn({flat.numel()}));
  const BoundParameters bound(flat, z);
  ASSERT_TRUE(model->save(path("model.pt")).ok());
  std::ifstream file(path("model.pt"), std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  // A zip archive, which is what torch.load takes; each value once, though the tensors are views.
  EXPECT_EQ(std::string(bytes.data(), 2), "PK");
  EXPECT_LT(bytes.size(), 269722 * 4 + 100000U);
  const auto state = torch::pickle_load(bytes).toGenericDict();
  const auto parameters = model->parameters();
  EXPECT_EQ(state.size(), parameters.size() + model->buffers().size());
  for (const NamedTensor& each : parameters)
    EXPECT_TRUE(state.at(each.name).toTensor().equal(each.tensor)) << each.name;
  for (const NamedTensor& each : model->buffers())
    EXPECT_TRUE(state.at(each.name).toTensor().equal(each.tensor)) << each.name;
}

TEST_F(Models, SavingWhereNothingCanBeWrittenIsAnError) {
  const auto model = make_model("linear", info_of({3}));
  const auto saved = model->save(path("no/such/folder/model.pt"));
  ASSERT_FALSE(saved.ok());
  EXPECT_EQ(saved.error().code, Errc::io);
  const auto script = make_model(write_script("net.pt", 10), info_of({3}));
  EXPECT_FALSE(script->save(path("no/such/folder/model.pt")).ok());
}

TEST_F(Models, TorchScriptTrains) {
  const DataInfo info = info_of({3});
  const auto compute = TorchCompute::make(config_of(write_script("net.pt", 10), info)).value();
  // Frozen parameters are not trained: they are buffers, as is the counter.
  ASSERT_EQ(compute->dimension(), 24 + 8 + 80 + 5);
  ASSERT_EQ(compute->initial_buffers().numel(), 8 + 1);
  at::Tensor x = compute->initial_parameters().read().clone();
  double first = 0;
  double last = 0;
  for (Step step = 0; step < 150; ++step) {
    const FrozenTensor z = FrozenTensor::copy_of(x);
    const Gradient result = compute->gradient(request_at(z, step));
    ASSERT_EQ(result.error, "");
    ASSERT_TRUE(z.sole_owner());
    EXPECT_TRUE(result.buffers.read().sum().item<double>() == 8 * 2 + 1);
    x -= 0.1 * result.value.read();
    (step < 3 ? first : last) = result.loss;
  }
  EXPECT_LT(last, 0.8 * first);
  const FrozenTensor z = FrozenTensor::copy_of(x);
  EXPECT_TRUE(compute->evaluate(z, {}).ok());
  EXPECT_TRUE(z.sole_owner());
}

// The optimising executor would change its kernels between these calls.
TEST_F(Models, TorchScriptGivesEqualBits) {
  const DataInfo info = info_of({3});
  const TorchComputeConfig config = config_of(write_script("net.pt", 10), info);
  const auto compute = TorchCompute::make(config).value();
  const FrozenTensor z = compute->initial_parameters();
  const Gradient first = compute->gradient(request_at(z, 1));
  for (int again = 0; again < 6; ++again) {
    EXPECT_TRUE(compute->gradient(request_at(z, 1)).value.read().equal(first.value.read()));
    const auto other = TorchCompute::make(config).value();
    EXPECT_TRUE(other->gradient(request_at(z, 1)).value.read().equal(first.value.read()));
  }
}

TEST_F(Models, TorchScriptWorkersShareNothing) {
  const DataInfo info = info_of({3});
  const ModelFactory factory = make_model_factory(write_script("net.pt", 10), info).value();
  const auto one = factory(1).value();
  const auto two = factory(1).value();
  one->parameters()[0].tensor.detach().fill_(5);
  one->buffers()[0].tensor.detach().fill_(5);
  EXPECT_FALSE(two->parameters()[0].tensor.eq(5).any().item<bool>());
  EXPECT_FALSE(two->buffers()[0].tensor.eq(5).any().item<bool>());
  EXPECT_FALSE(factory(1).value()->parameters()[0].tensor.eq(5).any().item<bool>());
}

TEST_F(Models, TorchScriptIsSavedAsTorchScript) {
  const DataInfo info = info_of({3});
  const auto model = make_model(write_script("net.pt", 10), info);
  const auto flat = FlatTensors::of_parameters(*model).value();
  const FrozenTensor z = FrozenTensor::freeze(at::randn({flat.numel()}));
  ASSERT_TRUE(load_flat(*model, z, {}).ok());
  ASSERT_TRUE(model->save(path("trained.pt")).ok());
  const auto again = make_model(path("trained.pt"), info);
  EXPECT_TRUE(FlatTensors::of_parameters(*again).value().gather().equal(z.read()));
  const at::Tensor input = samples(info, 4);
  EXPECT_TRUE(again->forward(input).equal(model->forward(input)));
}

TEST_F(Models, FilesThatAreNotModelsAreRefused) {
  const DataInfo info = info_of({3});
  const auto missing = make_model_factory("no/such/net.pt", info);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, Errc::bad_input);
  EXPECT_EQ(missing.error().message, "model file 'no/such/net.pt' does not exist: check the path");
  for (const char* content : {"", "hello", "PK\003\004 not really an archive"}) {
    std::ofstream(path("text.dat"), std::ios::binary) << content;
    const auto text = make_model_factory(path("text.dat"), info);
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.error().code, Errc::bad_input);
    EXPECT_NE(text.error().message.find("is not TorchScript"), std::string::npos);
    EXPECT_EQ(text.error().message.find('\n'), std::string::npos);
  }
  // A state dict, the likeliest mistake.
  ASSERT_TRUE(make_model("linear", info)->save(path("state.pt")).ok());
  const auto state = make_model_factory(path("state.pt"), info);
  ASSERT_FALSE(state.ok());
  EXPECT_NE(state.error().message.find("is not TorchScript"), std::string::npos);
}

TEST_F(Models, TorchScriptThatDoesNotFitIsRefusedBeforeTraining) {
  const DataInfo info = info_of({3});
  const auto message = [&](const std::string& file, const DataInfo& data) {
    const auto made = TorchCompute::make(config_of(file, data));
    EXPECT_FALSE(made.ok());
    if (made.ok()) return std::string();
    EXPECT_EQ(made.error().code, Errc::bad_input);
    EXPECT_EQ(made.error().message.find('\n'), std::string::npos);
    return made.error().message;
  };
  EXPECT_NE(message(write_script("four.pt", 4), info).find("its output is [2, 4] where [2, 10]"),
            std::string::npos);
  EXPECT_NE(message(write_script("net.pt", 10), info_of({9}))
                .find("mat1 and mat2 shapes cannot be multiplied (2x9 and 3x8)"),
            std::string::npos);
  const std::string raises = write_script("raises.pt", 10, R"(
def forward(self, x):
    assert x.size(0) < 1, "no thanks"
    return x
)");
  EXPECT_NE(message(raises, info).find("no thanks"), std::string::npos);
  const std::string pair = write_script("pair.pt", 10, R"(
def forward(self, x):
    return x, x
)");
  EXPECT_NE(message(pair, info).find("forward returns Tuple, not one tensor"), std::string::npos);
}

}  // namespace
}  // namespace grapevine
