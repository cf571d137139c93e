// The loss and the reported figures, by task.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/data/data_set.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// by_task: cross_entropy for classification, mse for regression.
enum class LossKind { by_task, cross_entropy, mse, bce };

// What training minimises. A Task alone is its usual loss.
struct Objective {
  Objective(Task task, LossKind loss = LossKind::by_task, double label_smoothing = 0)  // NOLINT
      : task(task), loss(loss), label_smoothing(label_smoothing) {}

  Task task;
  LossKind loss;
  // Of the cross-entropy (Szegedy et al. 2016, section 7): the part of a label that all classes
  // share, in [0, 1).
  double label_smoothing;
};

// "auto", "cross-entropy", "mse" or "bce". Errors (bad_input): another name.
Expected<LossKind> parse_loss(const std::string& name);

// Errors (bad_input): class labels are needed and the data set `data` has none; smoothing that
// belongs to another loss or is out of range. They name --loss and --label-smoothing.
Expected<void> check_objective(const Objective& objective, const std::string& data);

// Mean over the batch, a scalar that autograd can follow. Classification: `output` [B, classes,
// target_shape...] are logits, `target` [B, target_shape...] int64; mse and bce compare each
// class's output with 1 for the label and 0 for others. Regression: `output` [B, outputs] against
// `target` [B, outputs]; bce takes logits, and targets from 0 to 1. bce: the binary cross-entropy.
at::Tensor batch_loss(const Objective& objective, const at::Tensor& output,
                      const at::Tensor& target);

// More of them are not sorted: the logits that are larger than the label's are counted.
inline constexpr std::int64_t kManyClasses = 4096;

// [2] float64 on the output's device, so that the host does not wait for it: the fractions top1 and
// top5 of the labels, in [0, 1]. Regression: NaN, but with bce top1 is the fraction of outputs on
// their target's side of 0.5. top5: NaN for fewer than 5 classes as well. Equal logits: for more
// than kManyClasses classes the lower class goes first; else any.
at::Tensor accuracy_figures(const Objective& objective, const at::Tensor& output,
                            const at::Tensor& target);

// For a batch without a requested accuracy: two NaNs instead of accuracy_figures().
at::Tensor no_accuracy_figures(const at::Tensor& output);

// The shape that a model must give for `batch` samples of this data.
std::vector<std::int64_t> output_shape(const DataInfo& info, std::int64_t batch);

inline constexpr std::int64_t kMostEvaluated = 256;                      // samples in a pass
inline constexpr std::int64_t kEvaluatedValues = std::int64_t{1} << 20;  // of input and output

// Samples in a pass of an evaluation: kMostEvaluated, or fewer where their input and output have
// more than kEvaluatedValues values; no fewer than `fit`, which are known to fit into memory.
std::int64_t evaluated_samples(const DataInfo& info, std::int64_t fit);

}  // namespace grapevine
