#include "gpu/model/objective.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "messages/text/names.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {

namespace {

// [B, target_shape...]: how many classes go before the label. A few passes over the logits, where
// sorting a vocabulary's takes many.
at::Tensor ranks_of(const at::Tensor& logits, const at::Tensor& target) {
  const at::Tensor label = target.unsqueeze(1);
  const at::Tensor own = logits.gather(1, label);
  std::vector<std::int64_t> shape(static_cast<std::size_t>(logits.dim()), 1);
  shape[1] = logits.size(1);
  const at::Tensor classes = at::arange(logits.size(1), label.options()).view(shape);
  const at::Tensor before =
      logits.gt(own).logical_or_(logits.eq(own).logical_and_(classes.lt(label)));
  // A label whose logit is no number is not guessed.
  return before.sum(1).masked_fill_(own.isnan().squeeze(1), logits.size(1));
}

// [B, classes, target_shape...]: 1 for the label, 0 for the other classes.
at::Tensor one_hot(const at::Tensor& output, const at::Tensor& target) {
  return at::zeros_like(output).scatter(1, target.unsqueeze(1), 1);
}

LossKind loss_of(const Objective& objective) {
  if (objective.loss != LossKind::by_task) return objective.loss;
  return objective.task == Task::classification ? LossKind::cross_entropy : LossKind::mse;
}

constexpr std::pair<const char*, LossKind> kLosses[] = {{"auto", LossKind::by_task},
                                                        {"cross-entropy", LossKind::cross_entropy},
                                                        {"mse", LossKind::mse},
                                                        {"bce", LossKind::bce}};

}  // namespace

Expected<LossKind> parse_loss(const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, kind] : kLosses) {
    if (name == known) return kind;
    names.emplace_back(known);
  }
  return unknown_name("--loss", name, names);
}

Expected<void> check_objective(const Objective& objective, const std::string& data) {
  const LossKind loss = loss_of(objective);
  if (loss == LossKind::cross_entropy && objective.task == Task::regression)
    return bad_input("--loss cross-entropy: data '" + data +
                     "' has numbers and no class labels: use mse or bce");
  const double smoothing = objective.label_smoothing;
  if (!(smoothing >= 0 && smoothing < 1))
    return bad_input("--label-smoothing " + number_text(smoothing) +
                     ": expected a number from 0 up to 1, 1 excluded, like 0.1");
  if (smoothing > 0 && loss != LossKind::cross_entropy)
    return bad_input(
        "--label-smoothing " + number_text(smoothing) +
        ": belongs to --loss cross-entropy, which this run does not use: leave it out");
  return {};
}

at::Tensor batch_loss(const Objective& objective, const at::Tensor& output,
                      const at::Tensor& target) {
  const LossKind loss = loss_of(objective);
  if (loss == LossKind::cross_entropy)
    return at::cross_entropy_loss(output, target, {}, at::Reduction::Mean, -100,
                                  objective.label_smoothing);
  const bool labels = objective.task == Task::classification;
  const at::Tensor wanted = labels ? one_hot(output, target) : target;
  return loss == LossKind::mse ? at::mse_loss(output, wanted)
                               : at::binary_cross_entropy_with_logits(output, wanted);
}

at::Tensor accuracy_figures(const Objective& objective, const at::Tensor& output,
                            const at::Tensor& target) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const at::NoGradGuard no_grad;
  const at::TensorOptions options = output.options().dtype(at::kDouble).requires_grad(false);
  if (objective.task == Task::regression) {
    at::Tensor figures = at::full({2}, kNaN, options);
    if (objective.loss == LossKind::bce)
      figures.select(0, 0).copy_(output.gt(0).eq(target.gt(0.5)).to(at::kDouble).mean());
    return figures;
  }
  if (output.size(1) > kManyClasses) {
    const at::Tensor ranks = ranks_of(output.detach(), target);
    return at::stack({ranks.lt(1).to(at::kDouble).mean(), ranks.lt(5).to(at::kDouble).mean()});
  }
  const std::int64_t best = output.size(1) < 5 ? 1 : 5;
  // [B, best, target_shape...], best first
  const at::Tensor guesses = std::get<1>(output.detach().topk(best, 1));
  const at::Tensor right = guesses.eq(target.unsqueeze(1)).transpose(0, 1).flatten(1);
  const at::Tensor hits = right.to(at::kDouble).mean(1).cumsum(0);
  if (best == 1) return at::cat({hits, at::full({1}, kNaN, options)});
  return at::stack({hits[0], hits[4]});
}

at::Tensor no_accuracy_figures(const at::Tensor& output) {
  return at::full({2}, std::numeric_limits<double>::quiet_NaN(),
                  output.options().dtype(at::kDouble).requires_grad(false));
}

std::vector<std::int64_t> output_shape(const DataInfo& info, std::int64_t batch) {
  std::vector<std::int64_t> shape{batch, info.classes};
  shape.insert(shape.end(), info.target_shape.begin(), info.target_shape.end());
  return shape;
}

std::int64_t evaluated_samples(const DataInfo& info, std::int64_t fit) {
  const auto values = [](const std::vector<std::int64_t>& shape) {
    double count = 1;
    for (const std::int64_t side : shape) count *= std::max(1.0, static_cast<double>(side));
    return count;
  };
  const double of_a_sample = values(info.sample_shape) + values(output_shape(info, 1));
  const auto small = static_cast<std::int64_t>(kEvaluatedValues / of_a_sample);
  return std::min(kMostEvaluated, std::max({std::int64_t{1}, fit, small}));
}

}  // namespace grapevine
