// HeatMap: staleness and waits by rank and time, in an amount of memory that does not grow.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "messages/ids.hpp"

namespace grapevine {

// At most kMostRows rows of neighbouring ranks and kMostBins bins of time. Where the run outgrows
// the bins, each two become one of twice the width. Not thread-safe.
class HeatMap {
 public:
  static constexpr std::size_t kMostRows = 256;
  static constexpr std::size_t kMostBins = 240;
  static constexpr std::int64_t kFirstWidthNs = 1 << 20;  // of a bin: about 1 ms

  struct Cell {
    double staleness = 0;        // sum over the applied updates
    std::uint64_t applied = 0;   // updates
    std::int64_t waited_ns = 0;  // sum over the ranks of the row
  };

  // REQUIRES: ranks > 0.
  explicit HeatMap(std::int32_t ranks);

  // Ranks that the run does not have are left out; times before 0 count as 0.
  void add_applied(Rank rank, std::int64_t time_ns, std::int64_t staleness);
  void add_wait(Rank rank, std::int64_t begin_ns, std::int64_t end_ns);

  std::int32_t ranks() const { return ranks_; }
  std::int32_t ranks_per_row() const { return ranks_per_row_; }
  std::size_t rows() const { return rows_; }
  std::size_t bins() const { return bins_; }  // up to the last one that has a record
  std::int64_t bin_width_ns() const { return width_ns_; }
  // Each two bins become one.
  void merge_bins();
  const Cell& cell(std::size_t row, std::size_t bin) const { return cells_[row * kMostBins + bin]; }

 private:
  bool has(Rank rank) const { return rank >= 0 && rank < ranks_; }
  // Makes room for a time, and returns its bin.
  std::size_t bin_of(std::int64_t time_ns);
  Cell& cell_of(Rank rank, std::size_t bin);

  const std::int32_t ranks_;
  const std::int32_t ranks_per_row_;
  const std::size_t rows_;
  std::size_t bins_ = 0;
  std::int64_t width_ns_ = kFirstWidthNs;
  std::vector<Cell> cells_;  // rows_ * kMostBins
};

}  // namespace grapevine
