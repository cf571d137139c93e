#include "algorithms/parts/optimizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "messages/check.hpp"
#include "messages/frozen_tensor.hpp"

namespace grapevine {
namespace optimizer_test {

using testing::HasSubstr;

constexpr std::int64_t kSize = 103;
constexpr double kLr = 0.05;

at::Tensor random(std::uint64_t seed, std::int64_t n = kSize) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return torch::randn({n}, generator, torch::kFloat);
}

std::vector<OptimizerConfig> configs() {
  return {{"sgd"},
          {"sgd", 0, false, 0.01},
          {"sgd", 0.9},
          {"sgd", 0.9, false, 0.01},
          {"sgd", 0.9, true},
          {"sgd", 0.9, true, 0.01},
          {"adam"},
          {"adam", 0, false, 0.01},
          {"adam", 0, false, 0.01, 0.8, 0.95, 1e-4},
          {"adamw", 0, false, 0.01},
          {"adamw", 0, false, 0.1, 0.8, 0.95, 1e-4}};
}

// Decay of parts: what the whole gives there, and what no decay gives elsewhere.
TEST(Optimizer, DecaysPartsOnly) {
  for (const OptimizerConfig& config : configs()) {
    SCOPED_TRACE(config.name);
    OptimizerConfig none = config, parts = config;
    none.weight_decay = 0;
    parts.decayed = {{0, 10}, {50, 3}};
    const auto all = *make_optimizer(config), without = *make_optimizer(none),
               some = *make_optimizer(parts);
    at::Tensor x_all = random(1), x_without = random(1), x_some = random(1);
    for (std::uint64_t step = 0; step < 4; ++step) {
      at::Tensor g1 = random(10 + step), g2 = g1.clone(), g3 = g1.clone();
      all->step(x_all, g1, kLr);
      without->step(x_without, g2, kLr);
      some->step(x_some, g3, kLr);
    }
    for (std::int64_t i = 0; i < kSize; ++i) {
      const bool decayed = i < 10 || (i >= 50 && i < 53);
      const at::Tensor& expected = decayed ? x_all : x_without;
      EXPECT_NEAR(x_some[i].item<float>(), expected[i].item<float>(), 1e-6) << i;
    }
  }
}

std::string describe(const OptimizerConfig& c) {
  return c.name + " momentum " + std::to_string(c.momentum) + " nesterov " +
         std::to_string(c.nesterov) + " decay " + std::to_string(c.weight_decay) + " beta1 " +
         std::to_string(c.beta1);
}

std::unique_ptr<Optimizer> make(const OptimizerConfig& config) { return *make_optimizer(config); }

// The papers' formulas, one number at a time.
class NaiveOptimizer {
 public:
  NaiveOptimizer(const OptimizerConfig& config, const at::Tensor& x)
      : c_(config), x_(x.data_ptr<float>(), x.data_ptr<float>() + x.numel()) {
    first_ = second_ = std::vector<double>(x_.size(), 0.0);
  }

  void step(const at::Tensor& gradient, double lr) {
    ++t_;
    for (std::size_t i = 0; i < x_.size(); ++i) {
      const double g = gradient.data_ptr<float>()[i];
      if (c_.name == "sgd")
        sgd(i, g + c_.weight_decay * x_[i], lr);
      else if (c_.name == "adam")
        adam(i, g + c_.weight_decay * x_[i], lr);
      else {
        x_[i] -= lr * c_.weight_decay * x_[i];
        adam(i, g, lr);
      }
    }
  }

  const std::vector<double>& x() const { return x_; }

 private:
  void sgd(std::size_t i, double g, double lr) {
    first_[i] = c_.momentum * first_[i] + g;
    x_[i] -= lr * (c_.nesterov ? g + c_.momentum * first_[i] : first_[i]);
  }

  void adam(std::size_t i, double g, double lr) {
    first_[i] = c_.beta1 * first_[i] + (1 - c_.beta1) * g;
    second_[i] = c_.beta2 * second_[i] + (1 - c_.beta2) * g * g;
    const double mean = first_[i] / (1 - std::pow(c_.beta1, t_));
    const double square = second_[i] / (1 - std::pow(c_.beta2, t_));
    x_[i] -= lr * mean / (std::sqrt(square) + c_.eps);
  }

  const OptimizerConfig c_;
  std::vector<double> x_, first_, second_;
  int t_ = 0;
};

TEST(Optimizer, MatchesTheDoublePrecisionOracle) {
  for (const OptimizerConfig& config : configs()) {
    SCOPED_TRACE(describe(config));
    auto optimizer = make(config);
    at::Tensor x = random(0);
    NaiveOptimizer oracle(config, x);
    for (int step = 0; step < 20; ++step) {
      const double lr = kLr / (1 + step % 3);
      at::Tensor gradient = random(100 + step);
      oracle.step(gradient, lr);
      optimizer->step(x, gradient, lr);
    }
    for (std::int64_t i = 0; i < kSize; ++i)
      ASSERT_NEAR(x.data_ptr<float>()[i], oracle.x()[i], 2e-5) << "element " << i;
  }
}

TEST(Optimizer, SgdMatchesTorchOptim) {
  for (const OptimizerConfig& config : configs()) {
    if (config.name != "sgd") continue;
    SCOPED_TRACE(describe(config));
    auto optimizer = make(config);
    at::Tensor x = random(0), reference = x.clone();
    torch::optim::SGD torch_sgd({reference}, torch::optim::SGDOptions(kLr)
                                                 .momentum(config.momentum)
                                                 .nesterov(config.nesterov)
                                                 .weight_decay(config.weight_decay));
    for (int step = 0; step < 20; ++step) {
      at::Tensor gradient = random(100 + step);
      reference.mutable_grad() = gradient.clone();
      torch_sgd.step();
      optimizer->step(x, gradient, kLr);
      ASSERT_TRUE(x.allclose(reference, 1e-6, 1e-6)) << "step " << step;
    }
  }
}

// x = 1, gradients 1 then 2, lr 0.5, momentum 0.5:
//   v = 1, x = 1 - 0.5 = 0.5; v = 0.5 + 2 = 2.5, x = 0.5 - 1.25 = -0.75.
// Nesterov: u = 1 + 0.5 = 1.5, x = 0.25; v = 2.5, u = 2 + 1.25 = 3.25, x = 0.25 - 1.625 = -1.375.
TEST(Optimizer, SgdMatchesTheCalculationByHand) {
  const double expected[2][2] = {{0.5, -0.75}, {0.25, -1.375}};
  for (bool nesterov : {false, true}) {
    auto optimizer = make({"sgd", 0.5, nesterov});
    at::Tensor x = at::ones({1});
    for (int step = 0; step < 2; ++step) {
      at::Tensor gradient = at::full({1}, step + 1.0);
      optimizer->step(x, gradient, 0.5);
      EXPECT_EQ(x.item<float>(), expected[nesterov][step]);
    }
  }
}

// Without eps the first step of Adam is lr * sign(gradient), whatever the gradient's size.
TEST(Optimizer, AdamsFirstStepIsTheSign) {
  auto optimizer = make({"adam", 0, false, 0, 0.9, 0.999, 0});
  at::Tensor x = at::zeros({3}), gradient = at::tensor({1e-3F, -20.0F, 5.0F});
  optimizer->step(x, gradient, 0.25);
  EXPECT_TRUE(x.allclose(at::tensor({-0.25F, 0.25F, -0.25F}), 1e-5));
}

at::Tensor run(Optimizer& optimizer, at::Tensor x, int from, int to) {
  for (int step = from; step < to; ++step) {
    at::Tensor gradient = random(100 + step, x.numel());
    optimizer.step(x, gradient, kLr / (1 + step));
  }
  return x;
}

TEST(Optimizer, ResumesBitForBit) {
  for (const OptimizerConfig& config : configs()) {
    SCOPED_TRACE(describe(config));
    auto straight = make(config), first = make(config), second = make(config);
    const at::Tensor expected = run(*straight, random(0), 0, 10);
    const at::Tensor half = run(*first, random(0), 0, 5);
    const StateDict state = save_state(*first, std::int64_t{0});
    run(*first, half.clone(), 5, 9);  // the saved state must not follow
    run(*second, random(1), 0, 3);    // load must replace what is there
    ASSERT_TRUE(load_state(*second, state, kSize).ok());
    EXPECT_TRUE(run(*second, half.clone(), 5, 10).equal(expected));
    auto third = make(config);
    ASSERT_TRUE(load_state(*third, state, kSize).ok())
        << "the state must not follow its reader either";
    EXPECT_TRUE(run(*third, half.clone(), 5, 10).equal(expected));
  }
}

TEST(Optimizer, LoadsTheStateOfBeforeTheFirstStep) {
  for (const OptimizerConfig& config : configs()) {
    SCOPED_TRACE(describe(config));
    auto fresh = make(config), used = make(config);
    const StateDict state = save_state(*fresh, std::int64_t{0});
    const at::Tensor expected = run(*fresh, random(0), 0, 3);
    run(*used, random(1), 0, 3);
    ASSERT_TRUE(load_state(*used, state, kSize).ok());
    EXPECT_TRUE(run(*used, random(0), 0, 3).equal(expected));
  }
}

// Gossip freezes and swaps its buffers at every step; neither may disturb the optimizer's state,
// and the optimizer may keep no handle that would turn a freeze into a copy.
TEST(Optimizer, FollowsBuffersThatChangeAndLetsGoOfThem) {
  for (const OptimizerConfig& config : configs()) {
    SCOPED_TRACE(describe(config));
    auto steady = make(config), moving = make(config);
    const at::Tensor expected = run(*steady, random(0), 0, 6);
    at::Tensor x = random(0);
    for (int step = 0; step < 6; ++step) {
      at::Tensor gradient = random(100 + step);
      moving->step(x, gradient, kLr / (1 + step));
      const void *x_memory = x.data_ptr(), *gradient_memory = gradient.data_ptr();
      const FrozenTensor frozen_gradient = FrozenTensor::freeze(std::move(gradient));
      EXPECT_EQ(frozen_gradient.raw(), gradient_memory) << "a freeze copied the gradient";
      const FrozenTensor frozen = FrozenTensor::freeze(std::move(x));
      EXPECT_EQ(frozen.raw(), x_memory) << "a freeze copied x";
      x = frozen.read().clone();
    }
    EXPECT_TRUE(x.equal(expected));
  }
}

TEST(Optimizer, StepIntoIsAStepThenAScale) {
  for (const OptimizerConfig& config : configs()) {
    SCOPED_TRACE(describe(config));
    auto plain = make(config), in_place = make(config), into = make(config);
    at::Tensor expected = random(0), x = expected.clone(), y = expected.clone();
    for (int step = 0; step < 4; ++step) {
      at::Tensor gradient = random(100 + step);
      plain->step(expected, gradient, kLr);
      expected.mul_(0.75);
      in_place->step_into(x, x, gradient, kLr, 0.75);
      const at::Tensor before = y.clone(), input = y;
      at::Tensor out = random(7);
      into->step_into(out, input, gradient, kLr, 0.75);
      EXPECT_TRUE(input.equal(before)) << "the input was written";
      y = out;
      EXPECT_TRUE(x.equal(expected));
      EXPECT_TRUE(y.equal(expected));
    }
  }
}

TEST(Optimizer, APushSumStepHasTheBitsOfItsParts) {
  for (OptimizerConfig config : configs())
    for (const bool in_parts : {false, true}) {
      if (in_parts) config.decayed = {{0, 10}, {50, 3}};
      SCOPED_TRACE(describe(config));
      for (int variant = 0; variant < 4; ++variant) {
        const bool folds = variant % 2 == 1, debiases = variant / 2 == 1;
        auto apart = make(config), together = make(config);
        at::Tensor expected = random(0), x = expected.clone(), z;
        for (std::uint64_t step = 0; step < 4; ++step) {
          const at::Tensor share = folds ? random(50 + step) : at::Tensor();
          at::Tensor gradient = random(100 + step), same = gradient.clone();
          if (folds) expected.add_(share);
          apart->step_into(expected, expected, gradient, kLr, 0.75, 1.25);
          if (debiases) z = at::empty_like(x);
          together->push_sum_step_into(x, z, x, share, same, kLr, 0.75, 1.25);
          EXPECT_TRUE(x.equal(expected)) << "share " << folds << ", z " << debiases;
          if (debiases) {
            EXPECT_TRUE(z.equal(expected / (1.25 * 0.75)));
          }
        }
      }
    }
}

// A part that comes late is as if it had come in time; the momentum takes no further step.
TEST(Optimizer, ALatePartIsAPartOfTheLastGradient) {
  for (const OptimizerConfig& config : configs()) {
    if (config.name != "sgd") continue;
    SCOPED_TRACE(testing::Message() << config.momentum << " " << config.nesterov);
    const auto whole = *make_optimizer(config), late = *make_optimizer(config);
    at::Tensor x = random(1), other = x.clone();
    for (std::uint64_t step = 0; step < 5; ++step) {
      const at::Tensor g = random(10 + step), part = random(20 + step);
      at::Tensor together = g + part, first = g.clone(), second = part.clone();
      whole->step(x, together, kLr);
      late->step(other, first, kLr);
      late->step_late(other, second, kLr);
      EXPECT_LT((x - other).abs().max().item<double>(), 1e-5) << "step " << step;
    }
  }
}

// States as vectors, of which a mean may be taken: they continue as they were.
TEST(Optimizer, ContinuesFromItsStateVector) {
  for (const OptimizerConfig& config : configs()) {
    SCOPED_TRACE(testing::Message() << config.name << " " << config.momentum);
    const auto one = *make_optimizer(config), other = *make_optimizer(config);
    at::Tensor x = random(1);
    EXPECT_EQ(one->state_vector(kSize).count_nonzero().item<std::int64_t>(), 0);
    for (std::uint64_t step = 0; step < 3; ++step) {
      at::Tensor g = random(10 + step);
      one->step(x, g, kLr);
    }
    at::Tensor copy = x.clone();
    other->set_state_vector(one->state_vector(kSize), kSize);
    other->set_state_vector(at::ones({kSize + 7}), kSize);  // of another optimizer
    at::Tensor g = random(20), same = g.clone();
    one->step(x, g, kLr);
    other->step(copy, same, kLr);
    EXPECT_TRUE(x.equal(copy));
  }
}

TEST(Optimizer, HandlesAModelWithoutParameters) {
  for (const OptimizerConfig& config : configs()) {
    auto optimizer = make(config);
    EXPECT_EQ(run(*optimizer, random(0, 0), 0, 2).numel(), 0);
    EXPECT_TRUE(load_state(*make(config), save_state(*optimizer, std::int64_t{0}), 0).ok());
  }
}

TEST(Optimizer, RefusesAnotherSizeThanItsState) {
  for (const char* name : {"sgd", "adam", "adamw"}) {
    SCOPED_TRACE(name);
    auto optimizer = make({name, 0.9});
    run(*optimizer, random(0), 0, 1);
    at::Tensor x = at::zeros({kSize + 1}), gradient = at::zeros({kSize + 1});
    EXPECT_THROW(optimizer->step(x, gradient, kLr), InvariantBroken);
    at::Tensor y = at::zeros({kSize});
    EXPECT_THROW(optimizer->step(y, gradient, kLr), InvariantBroken);
  }
}

std::string load_error(const OptimizerConfig& config, const StateDict& state) {
  auto optimizer = make(config), untouched = make(config);
  const at::Tensor x = run(*optimizer, random(0), 0, 2);
  run(*untouched, random(0), 0, 2);
  const Expected<void> loaded = load_state(*optimizer, state, kSize);
  if (loaded) return "";
  EXPECT_EQ(loaded.error().code, Errc::bad_input);
  EXPECT_TRUE(run(*optimizer, x.clone(), 2, 4).equal(run(*untouched, x.clone(), 2, 4)))
      << "a refused load changed the optimizer";
  return loaded.error().message;
}

TEST(Optimizer, RefusesStatesThatDoNotFit) {
  auto sgd = make({"sgd", 0.9}), adam = make({"adam"});
  run(*sgd, random(0), 0, 2);
  run(*adam, random(0), 0, 2);
  EXPECT_THAT(load_error({"sgd", 0.9}, StateDict()), HasSubstr("'optimizer'"));
  EXPECT_THAT(load_error({"sgd", 0.9}, save_state(*adam, std::int64_t{0})),
              HasSubstr("is of optimizer 'adam'"));
  EXPECT_THAT(load_error({"adamw"}, save_state(*adam, std::int64_t{0})),
              HasSubstr("is of optimizer 'adam'"));

  StateDict bad = save_state(*sgd, std::int64_t{0});
  bad.put("velocity", at::zeros({2, 2}));
  EXPECT_THAT(load_error({"sgd", 0.9}, bad), HasSubstr("'velocity'"));
  bad = save_state(*adam, std::int64_t{0});
  bad.put("exp_avg", at::zeros({kSize}, at::kDouble));
  EXPECT_THAT(load_error({"adam"}, bad), HasSubstr("'exp_avg'"));
  bad = save_state(*adam, std::int64_t{0});
  bad.put("exp_avg_sq", at::zeros({kSize - 1}));
  EXPECT_THAT(load_error({"adam"}, bad), HasSubstr("'exp_avg_sq'"));
  bad = save_state(*adam, std::int64_t{0});
  bad.put("step", std::int64_t{0});
  EXPECT_THAT(load_error({"adam"}, bad), HasSubstr("'step'"));
}

TEST(Optimizer, SavesASgdWithoutMomentumAsItsName) {
  auto optimizer = make({"sgd"});
  run(*optimizer, random(0), 0, 2);
  EXPECT_EQ(save_state(*optimizer, std::int64_t{0}).entries().size(), 1U);
}

std::string config_error(const OptimizerConfig& config) {
  const auto made = make_optimizer(config);
  if (made) return "";
  EXPECT_EQ(made.error().code, Errc::bad_input);
  return made.error().message;
}

TEST(Optimizer, RefusesBadConfigurations) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(config_error({"adm"}), HasSubstr("did you mean 'adam'?"));
  EXPECT_THAT(config_error({"sgd", -0.1}), HasSubstr("--momentum"));
  EXPECT_THAT(config_error({"sgd", nan}), HasSubstr("--momentum"));
  EXPECT_THAT(config_error({"sgd", 1}), HasSubstr("--momentum 1: expected a number in [0, 1)"));
  EXPECT_THAT(config_error({"sgd", 0, true}), HasSubstr("--nesterov without momentum"));
  for (const std::string& name : optimizer_names()) {
    EXPECT_THAT(config_error({name, 0, false, -1}), HasSubstr("--weight-decay"));
    EXPECT_EQ(config_error({name}), "");
  }
  EXPECT_THAT(config_error({"adam", 0, false, 0, 1.0}), HasSubstr("betas"));
  EXPECT_THAT(config_error({"adamw", 0, false, 0, 0.9, -0.1}), HasSubstr("betas"));
  EXPECT_THAT(config_error({"adam", 0, false, 0, 0.9, 0.99, -1}), HasSubstr("eps"));
  EXPECT_EQ(config_error({"adam", 0.9, true}), "") << "momentum is not Adam's";
}

}  // namespace optimizer_test
}  // namespace grapevine
