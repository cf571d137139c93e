#include "gpu/objective.hpp"

#include <ATen/ATen.h>

#include <limits>
#include <tuple>

namespace grapevine {

at::Tensor batch_loss(Task task, const at::Tensor& output, const at::Tensor& target) {
  return task == Task::classification ? at::cross_entropy_loss(output, target)
                                      : at::mse_loss(output, target);
}

Accuracy batch_accuracy(Task task, const at::Tensor& output, const at::Tensor& target) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  if (task == Task::regression) return {kNaN, kNaN};
  const at::NoGradGuard no_grad;
  const std::int64_t best = output.size(1) < 5 ? 1 : 5;
  // [B, best, target_shape...], best first
  const at::Tensor guesses = std::get<1>(output.detach().topk(best, 1));
  const at::Tensor right = guesses.eq(target.unsqueeze(1)).transpose(0, 1).flatten(1);
  const at::Tensor hits = right.to(at::kDouble).mean(1).cumsum(0).cpu();
  const double* fraction = hits.data_ptr<double>();
  return {fraction[0], best == 5 ? fraction[4] : kNaN};
}

std::vector<std::int64_t> output_shape(const DataInfo& info, std::int64_t batch) {
  std::vector<std::int64_t> shape{batch, info.classes};
  shape.insert(shape.end(), info.target_shape.begin(), info.target_shape.end());
  return shape;
}

}  // namespace grapevine
