// The folders of runs: whether they are some, and their names in a legend.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "messages/expected.hpp"

namespace grapevine {

struct PlottedRun {
  std::string given;             // as the user wrote it
  std::filesystem::path folder;  // the same
  std::string algorithm;         // empty: not known
  std::string legend;            // unique among the runs
};

// Errors (bad_input): no such folder, one without metrics.csv, one that is given twice.
Expected<std::vector<PlottedRun>> find_runs(const std::vector<std::string>& given);

// Names for the legend: algorithm and folder, with as many folders above it as tell the runs apart.
// Exposed for tests. REQUIRES: the folders differ.
std::vector<std::string> legend_names(const std::vector<PlottedRun>& runs);

}  // namespace grapevine
