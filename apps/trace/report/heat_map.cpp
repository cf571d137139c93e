#include "apps/trace/report/heat_map.hpp"

#include <algorithm>

#include "messages/check.hpp"

namespace grapevine {
namespace {

std::int32_t quotient_up(std::int32_t value, std::size_t by) {
  const auto divisor = static_cast<std::int32_t>(by);
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

HeatMap::Cell sum_of_cells(const HeatMap::Cell& a, const HeatMap::Cell& b) {
  return {a.staleness + b.staleness, a.applied + b.applied, a.waited_ns + b.waited_ns};
}

}  // namespace

HeatMap::HeatMap(std::int32_t ranks)
    : ranks_(ranks),
      ranks_per_row_(quotient_up(ranks, kMostRows)),
      rows_(ranks > 0 ? static_cast<std::size_t>((ranks - 1) / ranks_per_row_) + 1 : 0),
      cells_(rows_ * kMostBins) {
  GRAPEVINE_CHECK(ranks > 0, "a heat map needs a rank");
}

HeatMap::Cell& HeatMap::cell_of(Rank rank, std::size_t bin) {
  return cells_[static_cast<std::size_t>(rank / ranks_per_row_) * kMostBins + bin];
}

void HeatMap::merge_bins() {
  for (std::size_t row = 0; row < rows_; ++row) {
    Cell* cells = &cells_[row * kMostBins];
    for (std::size_t bin = 0; bin < kMostBins / 2; ++bin)
      cells[bin] = sum_of_cells(cells[2 * bin], cells[2 * bin + 1]);
    std::fill(cells + kMostBins / 2, cells + kMostBins, Cell{});
  }
  bins_ = (bins_ + 1) / 2;
  width_ns_ *= 2;
}

std::size_t HeatMap::bin_of(std::int64_t time_ns) {
  const std::int64_t time = std::max<std::int64_t>(0, time_ns);
  while (time / width_ns_ >= static_cast<std::int64_t>(kMostBins)) merge_bins();
  const auto bin = static_cast<std::size_t>(time / width_ns_);
  bins_ = std::max(bins_, bin + 1);
  return bin;
}

void HeatMap::add_applied(Rank rank, std::int64_t time_ns, std::int64_t staleness) {
  if (!has(rank)) return;
  Cell& cell = cell_of(rank, bin_of(time_ns));
  cell.staleness += static_cast<double>(staleness);
  ++cell.applied;
}

void HeatMap::add_wait(Rank rank, std::int64_t begin_ns, std::int64_t end_ns) {
  std::int64_t from = std::max<std::int64_t>(0, begin_ns);
  if (!has(rank) || end_ns <= from) return;
  bin_of(end_ns - 1);  // all bins have their width from here on
  while (from < end_ns) {
    const std::size_t bin = bin_of(from);
    const std::int64_t until =
        std::min(end_ns, static_cast<std::int64_t>(bin) * width_ns_ + width_ns_);
    cell_of(rank, bin).waited_ns += until - from;
    from = until;
  }
}

}  // namespace grapevine
