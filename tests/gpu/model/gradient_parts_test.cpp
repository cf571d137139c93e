// Parts of a gradient are the gradient, and leave while the backward pass still runs.
#include "gpu/model/gradient_parts.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "gpu/quadratic_compute.hpp"
#include "tests/gpu/tiny_compute.hpp"

namespace grapevine {
namespace gradient_parts_test {

PartBegins begins_of(std::vector<std::int64_t> begins) {
  return std::make_shared<const std::vector<std::int64_t>>(std::move(begins));
}

// What a compute has handed over: whole, and the parts in their order.
struct Given {
  Gradient gradient;
  std::vector<GradientPart> parts;

  at::Tensor whole() const {
    std::vector<at::Tensor> all{gradient.value.read()};
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      all.push_back(part->value.read());
    return at::cat(all);
  }
};

Given given_by(Compute& compute, const FrozenTensor& z, Step step, PartBegins begins) {
  GradientRequest request = tiny_request(z, step);
  request.parts = std::move(begins);
  Given given;
  given.gradient = compute.gradient_in_parts(std::move(request), [&](GradientPart part) {
    EXPECT_EQ(part.step, step);
    given.parts.push_back(std::move(part));
  });
  EXPECT_EQ(given.gradient.error, "");
  return given;
}

void expect_parts(const Given& given, const std::vector<std::int64_t>& begins, std::int64_t d) {
  ASSERT_EQ(given.parts.size() + 1, begins.size());
  std::int64_t end = d;
  for (std::size_t i = 0; i < given.parts.size(); ++i) {
    EXPECT_EQ(given.parts[i].begin, begins[begins.size() - 1 - i]);
    EXPECT_EQ(given.parts[i].begin + given.parts[i].value.numel(), end);
    EXPECT_TRUE(given.parts[i].value.sole_owner()) << "somebody else could write to it";
    end = given.parts[i].begin;
  }
  EXPECT_EQ(given.gradient.value.numel(), end);
}

// A layer with a parameter that the output does not depend on.
class Idle : public torch::nn::Module {
 public:
  Idle() { register_parameter("idle", at::ones({4})); }
  at::Tensor forward(const at::Tensor& x) { return x; }
};

torch::nn::Sequential layers_with_idle_ones() {
  return torch::nn::Sequential(torch::nn::Linear(3, 5), std::make_shared<Idle>(), torch::nn::Tanh(),
                               torch::nn::Linear(5, 6), std::make_shared<Idle>());
}

// A parameter that is used twice: its gradient is complete once both uses are in it.
class Twice : public torch::nn::Module {
 public:
  Twice() : linear_(register_module("linear", torch::nn::Linear(3, 3))) {}
  at::Tensor forward(const at::Tensor& x) { return linear_(at::tanh(linear_(x))); }

 private:
  torch::nn::Linear linear_;
};

torch::nn::Sequential layers_used_twice() {
  return torch::nn::Sequential(std::make_shared<Twice>(), torch::nn::Linear(3, 6));
}

// Whatever the edges: amid a parameter, several in one, one for all.
TEST(GradientParts, AreTheBitsOfTheWholeGradient) {
  int models = 0;
  for (const auto& layers : {tiny_layers, plain_layers, tiny_layers_with_dropout,
                             layers_with_idle_ones, layers_used_twice}) {
    SCOPED_TRACE("model " + std::to_string(models++));
    const auto whole = make_tiny(tiny_config(layers)), parts = make_tiny(tiny_config(layers));
    const std::int64_t d = whole->dimension();
    FrozenTensor z = FrozenTensor::freeze(at::linspace(-1, 1, d));
    for (Step step = 0; step < 4; ++step)
      for (const auto& begins : std::vector<std::vector<std::int64_t>>{
               {0}, {0, d - 1}, {0, 1}, {0, 7, 8, 9, 11}, {0, d / 3, d / 2}}) {
        const Gradient expected = whole->gradient(tiny_request(z, step));
        ASSERT_EQ(expected.error, "");
        const Given given = given_by(*parts, z, step, begins_of(begins));
        expect_parts(given, begins, d);
        EXPECT_TRUE(at::equal(given.whole(), expected.value.read())) << "step " << step;
        EXPECT_EQ(given.gradient.loss, expected.loss);
        EXPECT_EQ(given.gradient.top1, expected.top1);
        if (expected.buffers.defined()) {
          EXPECT_TRUE(at::equal(given.gradient.buffers.read(), expected.buffers.read()));
        }
        EXPECT_TRUE(z.sole_owner()) << "the model holds on to the parameters";
      }
  }
}

// Images in the layout of channels last, and of the 16 bits that need no scaled loss.
TEST(GradientParts, AreTheBitsOfEveryLayoutAndPrecision) {
  for (const bool channels_last : {false, true})
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      TorchComputeConfig config = tiny_config(tiny_conv_layers);
      config.data = tiny_images();
      config.channels_last = channels_last;
      config.precision = precision;
      const auto whole = make_tiny(config), parts = make_tiny(config);
      const std::int64_t d = whole->dimension();
      const FrozenTensor z = whole->initial_parameters();
      const Gradient expected = whole->gradient(tiny_request(z));
      ASSERT_EQ(expected.error, "");
      const Given given = given_by(*parts, z, 0, begins_of({0, 30, d / 2}));
      expect_parts(given, {0, 30, d / 2}, d);
      EXPECT_TRUE(at::equal(given.whole(), expected.value.read()));
    }
}

// Notes in `log` when the backward pass comes by.
class Milestone : public torch::nn::Module {
 public:
  Milestone(std::vector<std::string>& log, std::string name) : log_(log), name_(std::move(name)) {}
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor y = x * 1;
    if (y.requires_grad())
      y.register_hook([this](const at::Tensor&) { log_.push_back("pass " + name_); });
    return y;
  }

 private:
  std::vector<std::string>& log_;
  std::string name_;
};

// The part of the last layer is given before the backward pass has come to the first one.
TEST(GradientParts, LeaveWhileTheBackwardPassRuns) {
  std::vector<std::string> log;
  const auto compute = make_tiny(tiny_config([&log] {
    return torch::nn::Sequential(
        torch::nn::Linear(3, 5), std::make_shared<Milestone>(log, "first"), torch::nn::Linear(5, 7),
        std::make_shared<Milestone>(log, "second"), torch::nn::Linear(7, 6));
  }));
  // 20, 42 and 48 parameters.
  GradientRequest request = tiny_request(compute->initial_parameters());
  request.parts = begins_of({0, 20, 62});
  log.clear();
  const Gradient gradient = compute->gradient_in_parts(
      std::move(request),
      [&log](const GradientPart& part) { log.push_back("part " + std::to_string(part.begin)); });
  ASSERT_EQ(gradient.error, "");
  EXPECT_EQ(gradient.value.numel(), 20);
  const auto place = [&log](const std::string& what) {
    return std::find(log.begin(), log.end(), what) - log.begin();
  };
  EXPECT_LT(place("part 62"), place("pass first"));
  EXPECT_LT(place("part 62"), place("part 20"));
  EXPECT_LT(place("pass second"), place("pass first"));
  EXPECT_EQ(log.size(), 4U);
}

// What follows the backward pass needs all of the gradient.
TEST(GradientParts, AreNotGivenWhereTheWholeIsNeeded) {
  const auto config = [] { return tiny_config(plain_layers, 0, 2, 6); };
  TorchComputeConfig accumulates = config(), scales = config();
  accumulates.passes = 2;
  scales.scale_loss = true;
  for (const TorchComputeConfig& each : {accumulates, scales}) {
    const auto compute = make_tiny(each);
    const FrozenTensor z = compute->initial_parameters();
    const Given given = given_by(*compute, z, 0, begins_of({0, 4}));
    EXPECT_TRUE(given.parts.empty());
    EXPECT_TRUE(
        at::equal(given.gradient.value.read(), compute->gradient(tiny_request(z)).value.read()));
  }
}

TEST(GradientParts, AQuadraticGivesThemToo) {
  QuadraticConfig config;
  config.dimension = 13;
  config.noise = 0.5;
  const auto compute = *QuadraticCompute::make(config);
  const FrozenTensor z = FrozenTensor::freeze(at::linspace(-1, 1, 13));
  const Given given = given_by(*compute, z, 3, begins_of({0, 3, 8}));
  expect_parts(given, {0, 3, 8}, 13);
  EXPECT_TRUE(at::equal(given.whole(), compute->gradient(tiny_request(z, 3)).value.read()));
}

}  // namespace gradient_parts_test
}  // namespace grapevine
