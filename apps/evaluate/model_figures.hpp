// The figures of a model on a split of a data set.
#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <limits>
#include <vector>

#include "gpu/data/data_set.hpp"
#include "gpu/model/model.hpp"
#include "gpu/model/objective.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// With more classes than that there is no confusion matrix: it would have a million entries.
inline constexpr std::int64_t kMostConfusedClasses = 1000;

struct ModelFigures {
  double loss = 0;
  double top1 = std::numeric_limits<double>::quiet_NaN();  // see accuracy_figures()
  double top5 = std::numeric_limits<double>::quiet_NaN();
  std::int64_t samples = 0;
  // By class; empty for regression. Labels of it, labels of it that were recognised, and labels of
  // any class for which it was taken.
  std::vector<std::int64_t> labels, hits, taken;
  // [classes, classes] int64: the number of labels of class i that were taken for class j.
  // Undefined for regression and for too many classes.
  at::Tensor confusion;
};

struct FigureOptions {
  Split split = Split::test;
  LossKind loss = LossKind::by_task;
  std::int64_t batch_size = 256;
  at::Device device = at::kCPU;
};

// In evaluation mode, without gradients. The model's tensors are on the device afterwards. Errors:
// (bad_input) the split is empty, the model does not fit the data, the loss does not fit it; those
// of the data; (failed) the model throws.
Expected<ModelFigures> figures_of_model(Model& model, const DataSet& data,
                                        const FigureOptions& options);

}  // namespace grapevine
