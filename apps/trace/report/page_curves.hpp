// PageCurves: loss and accuracy of a run, from its metrics.csv.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace grapevine {

// The rows of some neighbouring steps, or of a span of time, of all ranks.
struct PagePoint {
  double step = 0;    // mean over the rows
  double time_s = 0;  // the same
  double loss = 0, lowest_loss = 0, highest_loss = 0;
  double top1 = 0;  // NaN where no row has it, as loss is
  std::uint64_t rows = 0;
};

struct ValidationPoint {
  double step = 0;
  double time_s = 0;  // of its row, else of rank 0's newest row before it; NaN: there is none
  double loss = 0;    // NaN: not measured, as top1 is
  double top1 = 0;
};

struct PageCurves {
  static constexpr std::size_t kMostPoints = 300;  // in each list

  std::vector<PagePoint> by_step, by_time;  // increasing
  std::vector<ValidationPoint> validations;
  std::uint64_t rows = 0;          // of steps
  std::uint64_t damaged_rows = 0;  // left out
  std::string problem;             // why there is no curve; empty: nothing is wrong
};

// Reads the file twice, and keeps no row. An incomplete last row is left out.
PageCurves read_page_curves(const std::string& path);

}  // namespace grapevine
