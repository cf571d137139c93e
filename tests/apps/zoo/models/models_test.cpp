#include "apps/zoo/models.hpp"

#include <gtest/gtest.h>
#include <torch/script.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>

#include "apps/zoo/weights.hpp"
#include "gpu/model/flat_params.hpp"
#include "gpu/model/precision.hpp"
#include "gpu/torch_compute.hpp"
#include "tests/gpu/tiny_data.hpp"

namespace grapevine {
namespace models_test {

DataInfo info_of(std::vector<std::int64_t> shape, std::int64_t classes = 10) {
  DataInfo info;
  info.name = "tiny";
  info.sample_shape = std::move(shape);
  info.classes = classes;
  info.train_size = 24;
  info.test_size = 10;
  return info;
}

// Those that take images.
const std::vector<std::string> kImageModels = {
    "linear", "lenet", "mlp", "gem-cnn", "resnet20", "resnet32", "resnet18", "resnet50", "vgg16"};

DataInfo sequences_info(std::int64_t features, std::int64_t classes) {
  DataInfo info = info_of({kTimeSteps, features + 1}, classes);
  info.by_length = true;
  return info;
}

DataInfo tokens_info(std::int64_t steps, std::int64_t vocabulary) {
  DataInfo info = info_of({steps}, vocabulary);
  info.vocabulary = vocabulary;
  info.target_shape = {steps};
  return info;
}

// [B, T, features + 1] with rows of the given lengths.
at::Tensor padded_rows(const std::vector<std::int64_t>& lengths, std::int64_t features,
                       std::int64_t steps) {
  at::Tensor input = at::zeros({static_cast<std::int64_t>(lengths.size()), steps, features + 1});
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    at::Tensor own = input[static_cast<std::int64_t>(i)].narrow(0, 0, lengths[i]);
    own.narrow(1, 0, features).normal_();
    own.select(1, features).fill_(1);
  }
  return input;
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
    at::manual_seed(17);
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
  EXPECT_EQ(count_parameters("lstm", sequences_info(8, 6)), 198656 + 512 * 8 + 129 * 6);
  EXPECT_EQ(count_parameters("lstm", tokens_info(16, 65)), 264192 + 257 * 65);
  EXPECT_EQ(count_parameters("transformer", sequences_info(8, 6)), 396928 + 128 * 8 + 129 * 6);
  EXPECT_EQ(count_parameters("transformer", tokens_info(16, 65)), 396800 + 257 * 65);
  EXPECT_EQ(count_parameters("resnet18", colour), 11173962);
  EXPECT_EQ(count_parameters("resnet50", colour), 23520842);
  EXPECT_EQ(count_parameters("vgg16", colour), 14728266);
}

TEST_F(Models, LargeImagesGetTheNetworksOfThePapers) {
  const DataInfo info = info_of({3, 224, 224}, 1000);
  for (const auto& [name, parameters] :
       {std::pair{"resnet18", 11689512}, {"resnet50", 25557032}, {"vgg16", 138365992}}) {
    SCOPED_TRACE(name);
    const auto model = make_model(name, info);
    EXPECT_EQ(FlatTensors::of_parameters(*model).value().numel(), parameters);
    const at::NoGradGuard no_grad;
    model->train(false);
    EXPECT_EQ(model->forward(samples(info, 1)).sizes(), (std::vector<std::int64_t>{1, 1000}));
  }
}

// A layer that is registered and not used, or used and cut off, has a gradient of zero.
TEST_F(Models, EveryParameterIsReached) {
  for (const auto& [name, info] : {std::pair{"lstm", tokens_info(6, 9)},
                                   {"transformer", tokens_info(6, 9)},
                                   {"resnet18", info_of({3, 16, 16})},
                                   {"resnet50", info_of({3, 16, 16})},
                                   {"vgg16", info_of({3, 16, 16})}}) {
    SCOPED_TRACE(name);
    at::manual_seed(8);
    const auto model = make_model(name, info);
    at::Tensor input = info.vocabulary > 0 ? at::randint(9, {4, 6}, at::kFloat) : samples(info, 4);
    model->train(true);
    (model->forward(input).square().sum()).backward();
    for (const NamedTensor& each : model->parameters()) {
      ASSERT_TRUE(each.tensor.grad().defined()) << each.name;
      EXPECT_GT(each.tensor.grad().abs().max().item<double>(), 0) << each.name;
    }
  }
}

TEST_F(Models, TakeGreyAndColourSamples) {
  for (const std::string& name : kImageModels)
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
  std::vector<std::pair<std::string, DataInfo>> models = {{"lstm", sequences_info(4, 3)},
                                                          {"lstm", tokens_info(5, 7)},
                                                          {"transformer", sequences_info(4, 3)},
                                                          {"transformer", tokens_info(5, 7)}};
  for (const std::string& name : kImageModels) models.emplace_back(name, info_of({1, 28, 28}));
  std::set<std::string> covered;
  for (const auto& [name, info] : models) {
    SCOPED_TRACE(name);
    covered.insert(name);
    at::manual_seed(1);
    const at::Tensor first = initial(name, info, 5);
    at::manual_seed(2);
    EXPECT_TRUE(initial(name, info, 5).equal(first));
    EXPECT_FALSE(initial(name, info, 6).equal(first));
    // A layer that initialise() has forgotten would keep the same values or none.
    EXPECT_TRUE(first.isfinite().all().item<bool>());
  }
  EXPECT_EQ(covered.size(), model_names().size());
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

// The recurrence by its definition, in double precision, one cell at a time.
std::vector<double> naive_lstm(Model& model, const at::Tensor& steps) {
  std::map<std::string, at::Tensor> named;
  for (const NamedTensor& each : model.parameters())
    named[each.name] = each.tensor.detach().to(at::kDouble);
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  std::vector<std::vector<double>> inputs;
  for (std::int64_t t = 0; t < steps.size(0); ++t) {
    inputs.emplace_back();
    for (std::int64_t f = 0; f < steps.size(1); ++f)
      inputs.back().push_back(steps[t][f].item<double>());
  }
  for (const std::string layer : {"_l0", "_l1"}) {
    const at::Tensor in = named.at("lstm.weight_ih" + layer),
                     again = named.at("lstm.weight_hh" + layer);
    const at::Tensor bias = named.at("lstm.bias_ih" + layer) + named.at("lstm.bias_hh" + layer);
    const std::int64_t cells = again.size(1);
    std::vector<double> h(static_cast<std::size_t>(cells)), c = h;
    const auto w_in = in.accessor<double, 2>();
    const auto w_again = again.accessor<double, 2>();
    const auto b = bias.accessor<double, 1>();
    for (std::vector<double>& input : inputs) {
      std::vector<double> next(h.size());
      for (std::int64_t j = 0; j < cells; ++j) {
        double gate[4];
        for (std::int64_t g = 0; g < 4; ++g) {
          const std::int64_t row = g * cells + j;
          gate[g] = b[row];
          for (std::size_t f = 0; f < input.size(); ++f)
            gate[g] += w_in[row][static_cast<std::int64_t>(f)] * input[f];
          for (std::int64_t k = 0; k < cells; ++k)
            gate[g] += w_again[row][k] * h[static_cast<std::size_t>(k)];
        }
        double& cell = c[static_cast<std::size_t>(j)];
        cell = sigmoid(gate[1]) * cell + sigmoid(gate[0]) * std::tanh(gate[2]);
        next[static_cast<std::size_t>(j)] = sigmoid(gate[3]) * std::tanh(cell);
      }
      h = next;
      input = h;
    }
  }
  const at::Tensor weight = named.at("fc.weight"), bias = named.at("fc.bias");
  std::vector<double> output;
  for (std::int64_t k = 0; k < weight.size(0); ++k) {
    output.push_back(bias[k].item<double>());
    for (std::int64_t j = 0; j < weight.size(1); ++j)
      output.back() += weight[k][j].item<double>() * inputs.back()[static_cast<std::size_t>(j)];
  }
  return output;
}

TEST_F(Models, LstmIsItsDefinition) {
  at::manual_seed(4);
  const auto model = make_model("lstm", sequences_info(3, 5));
  const std::vector<std::int64_t> lengths{4, 1, 6};
  const at::Tensor input = padded_rows(lengths, 3, 6);
  const at::NoGradGuard no_grad;
  const at::Tensor output = model->forward(input);
  ASSERT_EQ(output.sizes(), (std::vector<std::int64_t>{3, 5}));
  for (std::int64_t i = 0; i < 3; ++i) {
    const at::Tensor own = input[i].narrow(0, 0, lengths[static_cast<std::size_t>(i)]);
    const std::vector<double> expected = naive_lstm(*model, own.narrow(1, 0, 3));
    for (std::int64_t k = 0; k < 5; ++k)
      EXPECT_NEAR(output[i][k].item<double>(), expected[static_cast<std::size_t>(k)], 1e-5);
  }
}

TEST_F(Models, PaddingChangesNothingAndEveryOwnStepDoes) {
  at::manual_seed(5);
  for (const char* name : {"lstm", "transformer"}) {
    SCOPED_TRACE(name);
    const auto model = make_model(name, sequences_info(3, 5));
    model->train(false);
    const at::NoGradGuard no_grad;
    const at::Tensor row = padded_rows({7}, 3, 7);
    const at::Tensor output = model->forward(row);
    const at::Tensor longer = at::cat({row, at::zeros({1, 30, 4})}, 1);
    EXPECT_TRUE(model->forward(longer).allclose(output, 1e-5, 1e-6));
    for (std::int64_t step = 0; step < 7; ++step) {
      at::Tensor changed = row.clone();
      changed[0][step][0] += 1;
      EXPECT_FALSE(model->forward(changed).allclose(output, 1e-5, 1e-6)) << "step " << step;
    }
  }
}

// The label of a step is that of the next token: it must not be read from the input.
TEST_F(Models, TokensAreReadInTheirOrder) {
  at::manual_seed(6);
  for (const char* name : {"lstm", "transformer"}) {
    SCOPED_TRACE(name);
    const auto model = make_model(name, tokens_info(9, 11));
    model->train(false);
    const at::NoGradGuard no_grad;
    const at::Tensor tokens = at::randint(11, {2, 9}, at::kFloat);
    const at::Tensor output = model->forward(tokens);
    ASSERT_EQ(output.sizes(), (std::vector<std::int64_t>{2, 11, 9}));
    for (std::int64_t step = 0; step < 9; ++step) {
      at::Tensor changed = tokens.clone();
      changed[0][step] = (changed[0][step].item<int>() + 1) % 11;
      const at::Tensor moved = model->forward(changed).sub(output).abs().amax(1);  // [2, 9]
      EXPECT_LT(moved[1].max().item<double>(), 1e-6) << "another sample";
      for (std::int64_t t = 0; t < 9; ++t)
        EXPECT_EQ(moved[0][t].item<double>() > 1e-6, t >= step) << step << " moved " << t;
    }
  }
}

// By its definition, in double precision, one step, one head and one earlier step at a time.
class NaiveTransformer {
 public:
  explicit NaiveTransformer(Model& model) {
    for (const NamedTensor& each : model.parameters())
      named_[each.name] = each.tensor.detach().to(at::kDouble);
  }

  // The logits behind the last of `tokens`.
  at::Tensor logits(const std::vector<std::int64_t>& tokens) const {
    std::vector<at::Tensor> x;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      x.push_back(named_.at("embedding.weight")[tokens[t]].clone());
      for (std::int64_t i = 0; i < 64; ++i) {
        const double angle =
            static_cast<double>(t) * std::pow(10000.0, -2.0 * static_cast<double>(i) / 128);
        x.back()[2 * i] += std::sin(angle);
        x.back()[2 * i + 1] += std::cos(angle);
      }
    }
    for (const std::string layer : {"layer0.", "layer1."}) x = after(layer, x);
    return linear("fc", norm("norm", x.back()));
  }

 private:
  std::vector<at::Tensor> after(const std::string& layer, const std::vector<at::Tensor>& x) const {
    std::vector<at::Tensor> query, key, value, next;
    for (const at::Tensor& each : x) {
      const at::Tensor parts = linear(layer + "attend", norm(layer + "norm1", each));
      query.push_back(parts.narrow(0, 0, 128));
      key.push_back(parts.narrow(0, 128, 128));
      value.push_back(parts.narrow(0, 256, 128));
    }
    for (std::size_t t = 0; t < x.size(); ++t) {
      at::Tensor seen = at::zeros({128}, at::kDouble);
      for (std::int64_t head = 0; head < 4; ++head) {
        const auto part = [&](const at::Tensor& whole) { return whole.narrow(0, 32 * head, 32); };
        std::vector<double> weight;
        double total = 0;
        for (std::size_t s = 0; s <= t; ++s) {
          weight.push_back(
              std::exp(part(query[t]).dot(part(key[s])).item<double>() / std::sqrt(32.0)));
          total += weight.back();
        }
        for (std::size_t s = 0; s <= t; ++s) part(seen).add_(part(value[s]) * (weight[s] / total));
      }
      const at::Tensor mid = x[t] + linear(layer + "mix", seen);
      const at::Tensor wide = linear(layer + "widen", norm(layer + "norm2", mid));
      const at::Tensor gelu = 0.5 * wide * (1 + at::erf(wide / std::sqrt(2.0)));
      next.push_back(mid + linear(layer + "narrow", gelu));
    }
    return next;
  }
  at::Tensor linear(const std::string& name, const at::Tensor& x) const {
    return named_.at(name + ".weight").mv(x) + named_.at(name + ".bias");
  }
  at::Tensor norm(const std::string& name, const at::Tensor& x) const {
    const at::Tensor centred = x - x.mean();
    return centred / (centred.square().mean() + 1e-5).sqrt() * named_.at(name + ".weight") +
           named_.at(name + ".bias");
  }

  std::map<std::string, at::Tensor> named_;
};

TEST_F(Models, TransformerIsItsDefinition) {
  at::manual_seed(7);
  const auto model = make_model("transformer", tokens_info(5, 11));
  // Scales and shifts of the norms that a mistake would show in.
  for (const NamedTensor& each : model->parameters())
    if (each.name.find("norm") != std::string::npos)
      each.tensor.detach().add_(0.1 * at::randn_like(each.tensor));
  const at::NoGradGuard no_grad;
  const at::Tensor tokens = at::randint(11, {2, 5}, at::kLong);
  const at::Tensor output = model->forward(tokens.to(at::kFloat));
  const NaiveTransformer naive(*model);
  for (std::int64_t row = 0; row < 2; ++row) {
    std::vector<std::int64_t> seen;
    for (std::int64_t t = 0; t < 5; ++t) {
      seen.push_back(tokens[row][t].item<std::int64_t>());
      const at::Tensor difference = output[row].select(1, t).to(at::kDouble) - naive.logits(seen);
      EXPECT_LT(difference.abs().max().item<double>(), 1e-4) << "step " << t;
    }
  }
}

// Where each step is, is known to more than 16 bits: the result differs by the products' alone.
TEST_F(Models, TransformerKeepsItsPositionsInSixteenBits) {
  const auto model = make_model("transformer", sequences_info(8, 6));
  at::manual_seed(12);
  const at::Tensor input = padded_rows({102, 37}, 8, 102);
  const at::NoGradGuard no_grad;
  const at::Tensor exact = model->forward(input);
  const AutocastScope autocast(Precision::bf16, at::kCPU);
  const at::Tensor rounded = model->forward(input).to(at::kFloat);
  EXPECT_LT((rounded - exact).abs().max().item<double>(), 0.03);
}

TEST_F(Models, SequenceModelsSayWhatTheyNeed) {
  const auto image = make_model_factory("lstm", info_of({1, 28, 28}));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(
      image.error().message,
      "model 'lstm' does not fit data 'tiny': its samples are [1, 28, 28], the model needs "
      "sequences, such as [time steps, features] or tokens: choose another model or data set");
  const auto linear = make_model_factory("linear", sequences_info(8, 6));
  ASSERT_FALSE(linear.ok());
  EXPECT_EQ(linear.error().message,
            "model 'linear' does not fit data 'tiny': its samples are [time steps, 9], the model "
            "needs a fixed shape: choose another model or data set");
  EXPECT_FALSE(make_model_factory("lstm", info_of({20})).ok());
  EXPECT_FALSE(make_model_factory("lstm", info_of({20, 3})).ok());
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
  at::manual_seed(9);
  const FrozenTensor z = FrozenTensor::freeze(at::randn({flat.numel()}));
  const BoundParameters bound(flat, z);
  ASSERT_TRUE(model->save(path("model.pt")).ok());
  std::ifstream file(path("model.pt"), std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  // A zip archive, which is what torch.load takes; each value once, though the tensors are views.
  EXPECT_EQ(std::string(bytes.data(), 2), "PK");
  EXPECT_LT(bytes.size(), 269722 * 4 + 100000U);
  // Functions that torch.load(weights_only=True) refuses, which LibTorch's own pickler names.
  const std::string text(bytes.begin(), bytes.end());
  EXPECT_EQ(text.find("restore_type_tag"), std::string::npos);
  EXPECT_NE(text.find("_rebuild_tensor_v2"), std::string::npos);
  const auto state = torch::jit::pickle_load(bytes).toGenericDict();
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

// state_dict() has a tied parameter, or buffer, under each of its names.
TEST_F(Models, TiedTensorsTakeWeightsUnderAllTheirNames) {
  torch::jit::Module module("Tied");
  const at::Tensor tied = at::rand({3, 10}).requires_grad_(), kept = at::rand({10});
  for (const char* name : {"first", "again"}) module.register_parameter(name, tied, false);
  for (const char* name : {"offset", "offset_again"}) module.register_buffer(name, kept);
  module.define(R"(
def forward(self, x):
    return x.mm(self.first) + x.mm(self.again) + self.offset + self.offset_again
)");
  module.save(path("tied.pt"));
  const DataInfo info = info_of({3});
  const auto model = make_model(path("tied.pt"), info);
  ASSERT_EQ(model->parameters().size(), 1U);
  ASSERT_EQ(model->buffers().size(), 1U);
  const at::Tensor w = at::rand({3, 10}), b = at::rand({10});
  Weights weights{{"first", w}, {"again", w.clone()}, {"offset", b}, {"offset_again", b.clone()}};
  const auto set = set_weights(*model, weights, "w.pt");
  ASSERT_TRUE(set.ok()) << set.error().message;
  const at::Tensor input = samples(info, 4);
  EXPECT_TRUE(model->forward(input).allclose(2 * (input.mm(w) + b)));
  // Its own file.
  ASSERT_TRUE(model->save(path("trained.pt")).ok());
  const auto fresh = make_model(path("tied.pt"), info);
  const auto read = read_weights(path("trained.pt"));
  ASSERT_TRUE(read.ok()) << read.error().message;
  const auto again = set_weights(*fresh, *read, "trained.pt");
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(fresh->forward(input).equal(model->forward(input)));
  // Weights of a model that does not tie them.
  weights["again"] = w + 1;
  const auto other = set_weights(*fresh, weights, "w.pt");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, Errc::bad_input);
  EXPECT_NE(other.error().message.find("' are one tensor in the model, and differ here"),
            std::string::npos)
      << other.error().message;
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

}  // namespace models_test
}  // namespace grapevine
