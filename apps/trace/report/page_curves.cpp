#include "apps/trace/report/page_curves.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <optional>
#include <string_view>

#include "apps/console/next_row.hpp"
#include "messages/text/parse_number.hpp"

namespace grapevine {
namespace {

constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

struct Column {
  enum { rank, step, time_s, loss, top1, val_loss, val_top1, count };
};
constexpr std::array<const char*, Column::count> kColumnNames = {
    "rank", "step", "time_s", "loss", "top1", "val_loss", "val_top1"};

using MetricsRow = std::array<double, Column::count>;

double cell_number(std::string_view text) { return number_in<double>(text).value_or(kNotMeasured); }

// Reads rows one after the other.
class MetricsReader {
 public:
  explicit MetricsReader(const std::string& path) : file_(path) {
    if (!file_) {
      problem_ = "'" + path + "' cannot be read";
      return;
    }
    std::string header;
    next_row(file_, header);
    split(header);
    for (std::size_t i = 0; i < Column::count; ++i) {
      const auto cell = std::find(cells_.begin(), cells_.end(), kColumnNames[i]);
      if (cell == cells_.end()) problem_ = "'" + path + "' has no column '" + kColumnNames[i] + "'";
      at_[i] = static_cast<std::size_t>(cell - cells_.begin());
    }
    width_ = cells_.size();
  }

  const std::string& problem() const { return problem_; }
  std::uint64_t damaged() const { return damaged_; }

  std::optional<MetricsRow> next() {
    // A row without a newline is being written, or was cut off.
    while (problem_.empty() && next_row(file_, line_) && !file_.eof()) {
      split(line_);
      MetricsRow row{};
      if (cells_.size() == width_)
        for (std::size_t i = 0; i < Column::count; ++i) row[i] = cell_number(cells_[at_[i]]);
      if (cells_.size() == width_ && row[Column::rank] >= 0 && row[Column::step] >= 0) return row;
      ++damaged_;
    }
    return std::nullopt;
  }

 private:
  void split(std::string_view line) {
    cells_.clear();
    for (std::size_t comma = 0; comma != std::string_view::npos; line.remove_prefix(comma + 1)) {
      comma = line.find(',');
      cells_.push_back(line.substr(0, comma));
      if (comma == std::string_view::npos) break;
    }
  }

  std::ifstream file_;
  std::string line_, problem_;
  std::vector<std::string_view> cells_;
  std::array<std::size_t, Column::count> at_{};
  std::size_t width_ = 0;
  std::uint64_t damaged_ = 0;
};

bool is_validation(const MetricsRow& row) {
  return std::isfinite(row[Column::val_loss]) || std::isfinite(row[Column::val_top1]);
}
bool is_of_step(const MetricsRow& row) {
  return std::isfinite(row[Column::time_s]) && !is_validation(row);
}

// Where the rows lie, from the first pass.
struct RowExtent {
  double last_step = 0, last_time_s = 0;
  std::vector<std::uint64_t> rows_of_rank;
  std::size_t validations = 0;

  void add(const MetricsRow& row) {
    if (is_validation(row)) ++validations;
    if (!is_of_step(row)) return;
    last_step = std::max(last_step, row[Column::step]);
    last_time_s = std::max(last_time_s, row[Column::time_s]);
    const auto index = static_cast<std::size_t>(std::min(row[Column::rank], 65535.0));
    if (index >= rows_of_rank.size()) rows_of_rank.resize(index + 1);
    ++rows_of_rank[index];
  }
  // So many that each has, on average, a row of every rank.
  std::size_t points() const {
    const auto most = std::max_element(rows_of_rank.begin(), rows_of_rank.end());
    const std::uint64_t rows = most == rows_of_rank.end() ? 0 : *most;
    return static_cast<std::size_t>(std::min<std::uint64_t>(rows, PageCurves::kMostPoints));
  }
};

class CurveBins {
 public:
  CurveBins(std::size_t count, double last) : points_(count), last_(last) {}

  void add(double position, const MetricsRow& row) {
    if (points_.empty()) return;
    const double share = last_ > 0 ? std::clamp(position / last_, 0.0, 1.0) : 0;
    const auto count = static_cast<double>(points_.size());
    Bin& bin = points_[static_cast<std::size_t>(std::min(share * count, count - 1))];
    ++bin.point.rows;
    bin.point.step += row[Column::step];
    bin.point.time_s += row[Column::time_s];
    if (std::isfinite(row[Column::loss])) {
      PagePoint& point = bin.point;
      point.lowest_loss =
          bin.losses == 0 ? row[Column::loss] : std::min(point.lowest_loss, row[Column::loss]);
      point.highest_loss =
          bin.losses == 0 ? row[Column::loss] : std::max(point.highest_loss, row[Column::loss]);
      point.loss += row[Column::loss];
      ++bin.losses;
    }
    if (std::isfinite(row[Column::top1])) {
      bin.point.top1 += row[Column::top1];
      ++bin.top1s;
    }
  }

  std::vector<PagePoint> take() const {
    std::vector<PagePoint> points;
    for (const Bin& bin : points_) {
      if (bin.point.rows == 0) continue;
      PagePoint point = bin.point;
      point.step /= static_cast<double>(point.rows);
      point.time_s /= static_cast<double>(point.rows);
      point.loss = bin.losses > 0 ? point.loss / static_cast<double>(bin.losses) : kNotMeasured;
      if (bin.losses == 0) point.lowest_loss = point.highest_loss = kNotMeasured;
      point.top1 = bin.top1s > 0 ? point.top1 / static_cast<double>(bin.top1s) : kNotMeasured;
      points.push_back(point);
    }
    return points;
  }

 private:
  struct Bin {
    PagePoint point;  // sums, until take()
    std::uint64_t losses = 0, top1s = 0;
  };
  std::vector<Bin> points_;
  const double last_;
};

}  // namespace

PageCurves read_page_curves(const std::string& path) {
  PageCurves curves;
  RowExtent extent;
  MetricsReader first(path);
  while (const auto row = first.next()) extent.add(*row);
  curves.problem = first.problem();
  curves.damaged_rows = first.damaged();
  if (!curves.problem.empty()) return curves;

  CurveBins by_step(extent.points(), extent.last_step),
      by_time(extent.points(), extent.last_time_s);
  const std::size_t every = extent.validations / PageCurves::kMostPoints + 1;
  std::size_t validation = 0;
  double head_time_s = kNotMeasured;  // of rank 0's newest row
  MetricsReader second(path);
  while (const auto row = second.next()) {
    if (is_of_step(*row)) {
      ++curves.rows;
      by_step.add((*row)[Column::step], *row);
      by_time.add((*row)[Column::time_s], *row);
      if ((*row)[Column::rank] == 0) head_time_s = (*row)[Column::time_s];
    }
    if (!is_validation(*row) || ++validation % every != 0) continue;
    const double own_time_s = (*row)[Column::time_s];
    curves.validations.push_back({(*row)[Column::step],
                                  std::isfinite(own_time_s) ? own_time_s : head_time_s,
                                  (*row)[Column::val_loss], (*row)[Column::val_top1]});
  }
  curves.by_step = by_step.take();
  curves.by_time = by_time.take();
  return curves;
}

}  // namespace grapevine
