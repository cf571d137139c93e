// A data set of arrays: inputs and targets of a training and a test split.
#pragma once
#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <string>

#include "gpu/data/data_set.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// The names of the four arrays, in files and dicts.
inline constexpr std::array<const char*, 4> kArrayNames = {"train_x", "train_y", "test_x",
                                                           "test_y"};

struct Arrays {
  at::Tensor train_x, train_y;
  at::Tensor test_x, test_y;  // undefined: there is no test split
};

// Makes a data set of arrays [samples, …] on the CPU, which are read batch by batch.
//   x  uint8: divided by 255; floats: as they are; int16, int32 and int64 of shape
//      [samples, steps], none below 0, with labels: tokens; other integers and bool: as floats
//   y  integers [samples]: classes; integers [samples, steps]: a class for each step; floats
//      [samples] or [samples, outputs]: numbers to predict
// The number of classes is the largest label and one more, over both splits. `name` and `where` are
// for errors (bad_input): shapes that do not match, no samples, a negative label.
Expected<std::shared_ptr<const DataSet>> make_array_data(const std::string& name,
                                                         const std::string& where, Arrays arrays);

}  // namespace grapevine
