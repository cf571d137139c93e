// Figure: the content of a figure, and the gnuplot script that draws it. Without I/O.
#pragma once
#include <string>
#include <vector>

#include "apps/plot/run_curves.hpp"
#include "messages/expected.hpp"

namespace grapevine {

enum class FigureFormat { svg, png };

struct FigurePanel {
  std::string y_label;
  std::vector<CurvePoints> curves;  // by run; none is empty
};

// Panels one below the other, over one x axis. All texts are shown as they are, but for control
// characters and bytes that are not UTF-8, which become '?' and U+FFFD.
struct Figure {
  FigureFormat format = FigureFormat::svg;
  int width = 900;    // pixels
  int height = 0;     // 0: as high as reads well
  std::string title;  // empty: none
  std::string note;   // below the axis, small; empty: none
  std::string x_label;
  std::vector<std::string> legend;  // by run
  std::vector<FigurePanel> panels;
  bool log_y = false;
  bool band = false;  // from low to high
};

// Runs that colours and dashes can tell apart.
inline constexpr std::size_t kMostRunsInFigure = 28;

// The script writes to the file that is its first argument (ARG1). It has numbers and texts in
// single quotes only, which gnuplot does not expand: no command, variable or markup of a text has a
// meaning. Errors (bad_input): the legend or the panels do not fit into the width or height.
Expected<std::string> gnuplot_script(Figure figure);

}  // namespace grapevine
