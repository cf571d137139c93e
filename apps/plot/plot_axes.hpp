// What a figure can show: the names of --x and --y, their columns in metrics.csv, their units.
#pragma once
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

enum class PlotX { time, step, epoch, bytes };

// A column of metrics.csv that a panel can show.
struct PlotY {
  std::string column;
  std::string label;        // with its unit
  double scale = 1;         // from the file's unit to that of the label
  bool validation = false;  // in rows of their own
};

// Errors (bad_input): no such name, with the nearest one; a quantity that metrics.csv cannot give.
Expected<PlotX> find_plot_x(const std::string& name);
Expected<PlotY> find_plot_y(const std::string& name);
// The names that find_plot_y takes.
std::vector<std::string> plot_y_names();

// The unit of an x axis that ends at `largest`.
struct XUnit {
  std::string label;
  double divisor = 1;
};
XUnit unit_of(PlotX x, double largest);

}  // namespace grapevine
