#include "gpu/objective.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <limits>
#include <tuple>

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

}  // namespace

at::Tensor batch_loss(Task task, const at::Tensor& output, const at::Tensor& target) {
  return task == Task::classification ? at::cross_entropy_loss(output, target)
                                      : at::mse_loss(output, target);
}

at::Tensor accuracy_figures(Task task, const at::Tensor& output, const at::Tensor& target) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const at::NoGradGuard no_grad;
  const at::TensorOptions options = output.options().dtype(at::kDouble).requires_grad(false);
  if (task == Task::regression) return at::full({2}, kNaN, options);
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

}  // namespace grapevine
