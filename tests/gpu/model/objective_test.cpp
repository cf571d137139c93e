#include "gpu/model/objective.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace grapevine {
namespace objective_test {

// By its definition, in double precision, one label at a time: `output` [B, C, T], `target` [B, T].
struct Oracle {
  double loss = 0;
  double top1 = 0;
  double top5 = 0;
};

Oracle naive(const at::Tensor& output, const at::Tensor& target) {
  const at::Tensor z = output.to(at::kDouble).contiguous();
  Oracle sum;
  for (std::int64_t b = 0; b < z.size(0); ++b)
    for (std::int64_t t = 0; t < z.size(2); ++t) {
      const std::int64_t label = target[b][t].item<std::int64_t>();
      const double own = z[b][label][t].item<double>();
      double total = 0;
      int better = 0;
      for (std::int64_t c = 0; c < z.size(1); ++c) {
        const double other = z[b][c][t].item<double>();
        total += std::exp(other - own);
        better += other > own;
      }
      sum.loss += std::log(total);
      sum.top1 += better < 1;
      sum.top5 += better < 5;
    }
  const auto count = static_cast<double>(target.numel());
  return {sum.loss / count, sum.top1 / count, sum.top5 / count};
}

void expect_oracle(const at::Tensor& output, const at::Tensor& target, const Oracle& oracle) {
  EXPECT_NEAR(batch_loss(Task::classification, output, target).item<double>(), oracle.loss, 1e-5);
  const at::Tensor accuracy = accuracy_figures(Task::classification, output, target);
  EXPECT_DOUBLE_EQ(accuracy[0].item<double>(), oracle.top1);
  const double top5 = accuracy[1].item<double>();
  if (output.size(1) < 5)
    EXPECT_TRUE(std::isnan(top5));
  else
    EXPECT_DOUBLE_EQ(top5, oracle.top5);
}

TEST(Objective, IsTheMeanOverAllLabels) {
  std::mt19937_64 rng(1);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    const std::int64_t batch = 1 + static_cast<std::int64_t>(rng() % 5);
    const std::int64_t classes = 2 + static_cast<std::int64_t>(rng() % 9);
    const std::int64_t steps = 1 + static_cast<std::int64_t>(rng() % 6);
    at::manual_seed(rng());
    const at::Tensor output = 3 * at::randn({batch, classes, steps});
    const at::Tensor target = at::randint(classes, {batch, steps}, at::kLong);
    expect_oracle(output, target, naive(output, target));
    // One label for each sample: the case of a single step.
    const at::Tensor first = output.slice(2, 0, 1);
    expect_oracle(first.squeeze(2), target.select(1, 0), naive(first, target.slice(1, 0, 1)));
  }
}

// Vocabularies are not sorted: the same figures, by counting.
TEST(Objective, ManyClassesAreCounted) {
  for (std::uint64_t seed = 1; seed < 6; ++seed) {
    SCOPED_TRACE(seed);
    at::manual_seed(seed);
    const std::int64_t classes = kManyClasses + static_cast<std::int64_t>(seed);
    const at::Tensor output = at::randn({3, classes, 2});
    at::Tensor target = at::randint(classes, {3, 2}, at::kLong);
    target[0] = output[0].argmax(0);
    target[1][0] = std::get<1>(output[1].select(1, 0).topk(5))[4];  // the fifth
    expect_oracle(output, target, naive(output, target));
    expect_oracle(output.select(2, 1), target.select(1, 1),
                  naive(output.slice(2, 1, 2), target.slice(1, 1, 2)));
  }
}

// A model that says nothing is right as often as chance has it, not always.
TEST(Objective, EqualLogitsOfManyClassesAreNoHits) {
  const at::Tensor output = at::zeros({kManyClasses + 1, kManyClasses + 1});
  const at::Tensor target = at::arange(kManyClasses + 1, at::kLong);
  const at::Tensor accuracy = accuracy_figures(Task::classification, output, target);
  EXPECT_DOUBLE_EQ(accuracy[0].item<double>(), 1.0 / (kManyClasses + 1));
  EXPECT_DOUBLE_EQ(accuracy[1].item<double>(), 5.0 / (kManyClasses + 1));
}

TEST(Objective, ALogitThatIsNoNumberIsNoHit) {
  at::Tensor output = at::randn({2, kManyClasses + 1});
  output[0].fill_(std::nan(""));
  const at::Tensor target = at::stack({at::zeros({}, at::kLong), output[1].argmax(0)});
  EXPECT_DOUBLE_EQ(accuracy_figures(Task::classification, output, target)[0].item<double>(), 0.5);
}

TEST(Objective, OutputsHaveAPlaceForEachLabel) {
  DataInfo info;
  info.classes = 7;
  EXPECT_EQ(output_shape(info, 2), (std::vector<std::int64_t>{2, 7}));
  info.target_shape = {30};
  EXPECT_EQ(output_shape(info, 2), (std::vector<std::int64_t>{2, 7, 30}));
}

// Binary cross-entropy and the squared error of a class's output with 1 for the label, 0 for
// others.
TEST(Objective, ComparesClassesOneByOne) {
  const at::Tensor output = at::tensor({0.5F, -1.0F, 2.0F, 0.0F, 1.0F, 1.0F}).view({3, 2});
  const at::Tensor target = at::tensor({0, 1, 1}, at::TensorOptions(at::kLong));
  double squares = 0, entropy = 0;
  for (std::int64_t i = 0; i < 3; ++i)
    for (std::int64_t c = 0; c < 2; ++c) {
      const double z = output[i][c].item<double>();
      const double wanted = target[i].item<std::int64_t>() == c ? 1 : 0;
      squares += (z - wanted) * (z - wanted) / 6;
      const double p = 1 / (1 + std::exp(-z));
      entropy -= (wanted * std::log(p) + (1 - wanted) * std::log(1 - p)) / 6;
    }
  const Objective mse(Task::classification, LossKind::mse);
  const Objective bce(Task::classification, LossKind::bce);
  EXPECT_NEAR(batch_loss(mse, output, target).item<double>(), squares, 1e-6);
  EXPECT_NEAR(batch_loss(bce, output, target).item<double>(), entropy, 1e-6);
  const at::Tensor wanted = at::tensor({1.0F, 0.0F, 0.0F, 1.0F, 0.0F, 1.0F}).view({3, 2});
  const Objective labels(Task::regression, LossKind::bce);
  EXPECT_NEAR(batch_loss(labels, output, wanted).item<double>(), entropy, 1e-6);
  // Right: both of the first sample; none of the second (2 for 0, 0 for 1); of the third the
  // second.
  EXPECT_NEAR(accuracy_figures(labels, output, wanted)[0].item<double>(), 3.0 / 6, 1e-12);
}

// (1 - s) of the usual loss, and s of the mean over all classes.
TEST(Objective, SmoothsLabels) {
  const at::Tensor output = at::tensor({0.5F, -1.0F, 2.0F}).view({1, 3});
  const at::Tensor target = at::tensor({1}, at::TensorOptions(at::kLong));
  double total = 0, mean = 0;
  for (const double z : {0.5, -1.0, 2.0}) total += std::exp(z);
  for (const double z : {0.5, -1.0, 2.0}) mean += (std::log(total) - z) / 3;
  const double own = std::log(total) + 1.0;
  const Objective smooth(Task::classification, LossKind::by_task, 0.1);
  EXPECT_NEAR(batch_loss(smooth, output, target).item<double>(), 0.9 * own + 0.1 * mean, 1e-6);
}

TEST(Objective, RefusesWhatDoesNotFit) {
  EXPECT_TRUE(check_objective({Task::classification, LossKind::by_task, 0.1}, "d").ok());
  EXPECT_FALSE(check_objective({Task::regression, LossKind::cross_entropy}, "d").ok());
  EXPECT_FALSE(check_objective({Task::classification, LossKind::by_task, 1}, "d").ok());
  EXPECT_FALSE(check_objective({Task::classification, LossKind::by_task, -0.1}, "d").ok());
  EXPECT_FALSE(check_objective({Task::classification, LossKind::mse, 0.1}, "d").ok());
  EXPECT_FALSE(parse_loss("cross").ok());
  EXPECT_EQ(*parse_loss("bce"), LossKind::bce);
}

// Never less than one, nor than what is known to fit; never more than 256.
TEST(EvaluatedSamples, AreBoundedByTheirValues) {
  DataInfo info;
  info.sample_shape = {3, 32, 32};
  info.classes = 10;
  EXPECT_EQ(evaluated_samples(info, 1), 256);
  EXPECT_EQ(evaluated_samples(info, 4096), 256);
  info.sample_shape = {3, 224, 224};
  info.classes = 1000;
  EXPECT_EQ(evaluated_samples(info, 1), 6);
  EXPECT_EQ(evaluated_samples(info, 32), 32);
  info.sample_shape = info.target_shape = {256};
  info.classes = 50257;  // logits of each step
  EXPECT_EQ(evaluated_samples(info, 4), 4);
  EXPECT_EQ(evaluated_samples(info, 0), 1);
  info.sample_shape = {kTimeSteps, 9};
  info.target_shape = {};
  info.classes = 6;
  EXPECT_EQ(evaluated_samples(info, 8), 256);
}

}  // namespace objective_test
}  // namespace grapevine
