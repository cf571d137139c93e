// What is minimised and what is reported, by task.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "gpu/data_set.hpp"

namespace grapevine {

// Mean over the batch, a scalar that autograd can follow. Classification: cross-entropy of the
// logits `output` [B, classes, target_shape...] with `target` [B, target_shape...] int64.
// Regression: mean squared error of `output` [B, outputs] against `target` [B, outputs].
at::Tensor batch_loss(Task task, const at::Tensor& output, const at::Tensor& target);

struct Accuracy {
  double top1 = 0;  // fraction of the labels in [0, 1]; NaN for regression
  double top5 = 0;  // NaN for regression or fewer than 5 classes
};
Accuracy batch_accuracy(Task task, const at::Tensor& output, const at::Tensor& target);

// The same, {top1, top5} float64 on the output's device: the host does not wait for it.
at::Tensor accuracy_figures(Task task, const at::Tensor& output, const at::Tensor& target);

// The shape that a model must give for `batch` samples of this data.
std::vector<std::int64_t> output_shape(const DataInfo& info, std::int64_t batch);

}  // namespace grapevine
