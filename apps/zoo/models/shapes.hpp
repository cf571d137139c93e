// Checks of a data set's shape against what a model can take.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "gpu/data/data_set.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// Number of values of one sample. Errors (bad_input): a dimension that is not fixed (<= 0), no
// classes or outputs.
Expected<std::int64_t> sample_size(const std::string& model, const DataInfo& info);

struct ImageShape {
  std::int64_t channels = 0;
  std::int64_t height = 0;
  std::int64_t width = 0;
};

// Errors (bad_input): as above; samples that are not [channels, height, width] with both sides at
// least `smallest`.
Expected<ImageShape> image_shape(const std::string& model, const DataInfo& info,
                                 std::int64_t smallest);

struct SequenceShape {
  std::int64_t features = 0;    // of a time step, without the one that tells steps from padding
  std::int64_t vocabulary = 0;  // more than 0: samples are tokens, and each step has a label
  std::int64_t classes = 0;
};

// Errors (bad_input): samples that are neither [kTimeSteps, features] with one label nor tokens
// with one label at each step.
Expected<SequenceShape> sequence_shape(const std::string& model, const DataInfo& info);

// What `output` [B, T, n] holds at the last step of each sample: [B, n]. `input`: the batch of
// features [B, T, features] that it was computed from (DataSet::batch).
at::Tensor at_last_step(const at::Tensor& output, const at::Tensor& input);

}  // namespace grapevine
