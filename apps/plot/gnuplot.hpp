// gnuplot, as a child process that draws one figure.
#pragma once
#include <chrono>
#include <string>

#include "messages/expected.hpp"

namespace grapevine {

struct GnuplotProgram {
  std::string name = "gnuplot";  // a path, or a name to find in PATH
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
};

// Errors (unavailable): it is not installed, and the package to install.
Expected<void> find_gnuplot(const GnuplotProgram& program = {});

// Runs a script, without a shell, the user's settings or a window, and returns the content of the
// file that it writes: the one in its first argument. Script and file are in the system's folder
// for temporary files meanwhile. Errors (unavailable): gnuplot is not installed; (timeout): it was
// killed after its time; (failed): what it said; (io).
Expected<std::string> run_gnuplot(const std::string& script, const GnuplotProgram& program = {});

}  // namespace grapevine
