#include "gpu/objective.hpp"

#include <ATen/ATen.h>

#include <limits>
#include <tuple>

namespace grapevine {

at::Tensor batch_loss(Task task, const at::Tensor& output, const at::Tensor& target) {
  return task == Task::classification ? at::cross_entropy_loss(output, target)
                                      : at::mse_loss(output, target);
}

at::Tensor accuracy_figures(Task task, const at::Tensor& output, const at::Tensor& target) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  const at::NoGradGuard no_grad;
  const at::TensorOptions options = output.options().dtype(at::kDouble).requires_grad(false);
  if (task == Task::regression) return at::full({2}, kNaN, options);
  const std::int64_t best = output.size(1) < 5 ? 1 : 5;
  // [B, best, target_shape...], best first
  const at::Tensor guesses = std::get<1>(output.detach().topk(best, 1));
  const at::Tensor right = guesses.eq(target.unsqueeze(1)).transpose(0, 1).flatten(1);
  const at::Tensor hits = right.to(at::kDouble).mean(1).cumsum(0);
  if (best == 1) return at::cat({hits, at::full({1}, kNaN, options)});
  return at::stack({hits[0], hits[4]});
}

std::vector<std::int64_t> output_shape(const DataInfo& info, std::int64_t batch) {
  std::vector<std::int64_t> shape{batch, info.classes};
  shape.insert(shape.end(), info.target_shape.begin(), info.target_shape.end());
  return shape;
}

}  // namespace grapevine
