// grapevine plot: curves of runs as a figure.
#pragma once
#include <memory>

#include "apps/console/command.hpp"

namespace grapevine {

// plot RUN… --x time|step|epoch|bytes --y COLUMN[,COLUMN…] --out FILE.svg|FILE.png [--json]. Errors
// (bad_input): unknown names, folders that are not runs, a column without values; those of
// run_gnuplot.
std::unique_ptr<Command> make_plot_command();

}  // namespace grapevine
