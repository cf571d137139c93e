// The confusion matrix as a picture.
#pragma once
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "apps/plot/figure.hpp"

namespace grapevine {

// The gnuplot script that draws `confusion` [classes, classes]: a row for each class, its colour
// the part of the row; numbers as well where they fit. `names`: of the classes, or empty. The
// script writes to its first argument, as those of gnuplot_script() do.
std::string confusion_script(const at::Tensor& confusion, const std::vector<std::string>& names,
                             FigureFormat format, const std::string& title);

}  // namespace grapevine
