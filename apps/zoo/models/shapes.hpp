// Checks of a data set's shape against what a model can take.
#pragma once
#include <cstdint>
#include <string>

#include "gpu/data_set.hpp"
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

}  // namespace grapevine
