// The loss and the reported figures, by task.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "gpu/data/data_set.hpp"

namespace grapevine {

// Mean over the batch, a scalar that autograd can follow. Classification: cross-entropy of the
// logits `output` [B, classes, target_shape...] with `target` [B, target_shape...] int64.
// Regression: mean squared error of `output` [B, outputs] against `target` [B, outputs].
at::Tensor batch_loss(Task task, const at::Tensor& output, const at::Tensor& target);

// More of them are not sorted: the logits that are larger than the label's are counted.
inline constexpr std::int64_t kManyClasses = 4096;

// [2] float64 on the output's device, so that the host does not wait for it: the fractions top1 and
// top5 of the labels, in [0, 1]. top1: NaN for regression. top5: for fewer than 5 classes as well.
// Equal logits: for more than kManyClasses classes the lower class goes first; else any.
at::Tensor accuracy_figures(Task task, const at::Tensor& output, const at::Tensor& target);

// For a batch without a requested accuracy: two NaNs instead of accuracy_figures().
at::Tensor no_accuracy_figures(const at::Tensor& output);

// The shape that a model must give for `batch` samples of this data.
std::vector<std::int64_t> output_shape(const DataInfo& info, std::int64_t batch);

}  // namespace grapevine
