// The ends and the numbers of a figure's axes.
#pragma once
#include <cstddef>
#include <limits>
#include <vector>

#include "apps/plot/figure.hpp"

namespace grapevine {

struct AxisRange {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void add(double value) {
    low = value < low ? value : low;
    high = value > high ? value : high;
  }
};

// From the first point to the last one, or from zero.
AxisRange x_range(const Figure& figure);
// With space around the values; an axis of values that are all the same begins at zero.
AxisRange y_range(const Figure& figure, const FigurePanel& panel);

// Of a short logarithmic axis, where the powers of ten are too few: 1, 2 and 5 times each, or steps
// of the same size. REQUIRES: 0 < low < high.
std::vector<double> short_log_tics(const AxisRange& y);
bool has_short_log_axis(const Figure& figure, const AxisRange& y);

// The characters of the longest number beside the y axis of a panel, with "%g".
std::size_t longest_y_number(const Figure& figure, const FigurePanel& panel);

}  // namespace grapevine
