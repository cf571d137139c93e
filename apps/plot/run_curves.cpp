#include "apps/plot/run_curves.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <utility>

namespace grapevine {
namespace {

// A value of one rank at one step.
struct RankValue {
  double step = 0;
  double rank = 0;
  double x = 0;
  double y = 0;
};

bool by_step_and_rank(const RankValue& a, const RankValue& b) {
  return a.step != b.step ? a.step < b.step : a.rank < b.rank;
}

const std::vector<double>& x_column(const MetricsTable& table, PlotX x) {
  // Bytes are found by their time.
  return table.column(x == PlotX::step ? "step" : x == PlotX::epoch ? "epoch" : "time_s");
}

// In the order of steps; of a rank and step that were written twice, the later row.
std::vector<RankValue> rank_values(const MetricsTable& table, const std::vector<double>& xs,
                                   const std::vector<double>& ys) {
  const auto& ranks = table.column("rank");
  const auto& steps = table.column("step");
  std::vector<RankValue> values;
  for (std::size_t row = 0; row < table.rows(); ++row)
    if (!std::isnan(xs[row]) && !std::isnan(ys[row]))
      values.push_back({steps[row], ranks[row], xs[row], ys[row]});
  std::stable_sort(values.begin(), values.end(), by_step_and_rank);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool again = kept > 0 && !by_step_and_rank(values[kept - 1], values[i]);
    values[again ? kept - 1 : kept++] = values[i];
  }
  values.resize(kept);
  return values;
}

CurvePoint mean_of(const RankValue* begin, const RankValue* end) {
  CurvePoint point{0, 0, begin->y, begin->y};
  for (const RankValue* value = begin; value != end; ++value) {
    point.x += value->x;
    point.mean += value->y;
    point.low = std::min(point.low, value->y);
    point.high = std::max(point.high, value->y);
  }
  const auto count = static_cast<double>(end - begin);
  point.x /= count;
  point.mean /= count;
  return point;
}

// Means over the ranks of each step.
CurvePoints by_step(const std::vector<RankValue>& values) {
  CurvePoints points;
  for (std::size_t begin = 0, end = 0; begin < values.size(); begin = end) {
    while (end < values.size() && values[end].step == values[begin].step) ++end;
    points.push_back(mean_of(values.data() + begin, values.data() + end));
  }
  return points;
}

// Means of as many values as there are ranks, in the order of time. Ranks that do not wait for each
// other reach a step at very different times: a mean over a step would show a time at which none of
// them was there.
CurvePoints by_time(std::vector<RankValue> values) {
  std::set<double> ranks;
  for (const RankValue& value : values) ranks.insert(value.rank);
  std::stable_sort(values.begin(), values.end(),
                   [](const RankValue& a, const RankValue& b) { return a.x < b.x; });
  CurvePoints points;
  for (std::size_t begin = 0, end = 0; begin < values.size(); begin = end) {
    end = std::min(values.size(), begin + ranks.size());
    points.push_back(mean_of(values.data() + begin, values.data() + end));
  }
  return points;
}

// A piecewise linear function, which its outer pieces continue. `xs` ascends strictly.
double value_on_line(const std::vector<double>& xs, const std::vector<double>& ys, double x) {
  if (xs.size() < 2) return ys.front();
  const auto next = std::upper_bound(xs.begin() + 1, xs.end() - 1, x) - xs.begin();
  const auto right = static_cast<std::size_t>(next), left = right - 1;
  return ys[left] + (ys[right] - ys[left]) * (x - xs[left]) / (xs[right] - xs[left]);
}

// Where rank `rank` was at each of its steps; the time and the epoch in rows of validations have
// other meanings.
struct RankLine {
  std::vector<double> steps, xs;
};

RankLine line_of_rank(const MetricsTable& table, PlotX x, double rank) {
  std::vector<double> xs = x_column(table, x);
  for (std::size_t row = 0; row < table.rows(); ++row)
    if (table.is_validation(row)) xs[row] = std::numeric_limits<double>::quiet_NaN();
  RankLine line;
  for (const RankValue& place : rank_values(table, table.column("time_s"), xs)) {
    if (place.rank != rank) continue;
    line.steps.push_back(place.step);
    line.xs.push_back(place.y);
  }
  return line;
}

// The last validation of each epoch, at its own time where it has one, else at the place where its
// rank had taken its step.
CurvePoints validations(const MetricsTable& table, PlotX x, const std::vector<double>& ys) {
  const auto& steps = table.column("step");
  const auto& epochs = table.column("epoch");
  const auto& times = table.column("time_s");
  std::map<double, std::size_t> rows;  // by epoch
  for (std::size_t row = 0; row < table.rows(); ++row)
    if (!std::isnan(ys[row])) rows[epochs[row]] = row;
  if (rows.empty()) return {};
  const RankLine line = line_of_rank(table, x, table.column("rank")[rows.begin()->second]);
  if (line.xs.empty()) return {};
  const double after = x == PlotX::epoch ? 1 : 0;
  CurvePoints points;
  for (const auto& [epoch, row] : rows) {
    const bool own_time = means_follow_time(x) && !std::isnan(times[row]);
    const double at =
        own_time ? times[row] : value_on_line(line.steps, line.xs, steps[row] + after);
    points.push_back({at, ys[row], ys[row], ys[row]});
  }
  return points;
}

CurvePoints steps_of_ranks(const MetricsTable& table, PlotX x, const std::vector<double>& ys) {
  std::vector<RankValue> values = rank_values(table, x_column(table, x), ys);
  return means_follow_time(x) ? by_time(std::move(values)) : by_step(values);
}

CurvePoints forward_only(const CurvePoints& points) {
  CurvePoints kept;
  for (const CurvePoint& point : points)
    if (kept.empty() || point.x >= kept.back().x) kept.push_back(point);
  return kept;
}

void average_into(CurvePoint& point, const CurvePoint* begin, const CurvePoint* end) {
  point.mean = point.low = point.high = 0;
  for (const CurvePoint* other = begin; other != end; ++other) {
    point.mean += other->mean;
    point.low += other->low;
    point.high += other->high;
  }
  const auto count = static_cast<double>(end - begin);
  point.mean /= count;
  point.low /= count;
  point.high /= count;
}

// Averages around each point, of as many points on its left as on its right but for the ends.
CurvePoints smoothed(const CurvePoints& points, std::int64_t window) {
  const auto all = static_cast<std::int64_t>(points.size());
  CurvePoints result = points;
  for (std::int64_t i = 0; i < all; ++i) {
    const std::int64_t begin = std::max<std::int64_t>(0, i - window / 2);
    const std::int64_t end = std::min(all, i + (window + 1) / 2);
    average_into(result[static_cast<std::size_t>(i)], points.data() + begin, points.data() + end);
  }
  return result;
}

void to_bytes(CurvePoints& points, const std::vector<BytesAt>& bytes) {
  std::vector<double> times, sums;
  for (const BytesAt& at : bytes) {
    if (!times.empty() && at.time_s <= times.back()) {
      sums.back() = at.bytes;
      continue;
    }
    times.push_back(at.time_s);
    sums.push_back(at.bytes);
  }
  for (CurvePoint& point : points)
    point.x = value_on_line(times, sums, std::clamp(point.x, times.front(), times.back()));
}

}  // namespace

bool means_follow_time(PlotX x) { return x == PlotX::time || x == PlotX::bytes; }

CurvePoints curve_of(const MetricsTable& table, const CurveSettings& settings) {
  const std::vector<double>& ys = table.column(settings.y.column);
  CurvePoints points = settings.y.validation ? validations(table, settings.x, ys)
                                             : steps_of_ranks(table, settings.x, ys);
  points = forward_only(points);
  if (settings.bytes != nullptr) to_bytes(points, *settings.bytes);
  if (settings.smooth > 1 && !settings.y.validation) points = smoothed(points, settings.smooth);
  for (CurvePoint& point : points) {
    point.mean *= settings.y.scale;
    point.low *= settings.y.scale;
    point.high *= settings.y.scale;
  }
  return points;
}

CurvePoints thinned(const CurvePoints& points, std::size_t most) {
  if (points.size() <= most) return points;
  const std::size_t block = (points.size() + most - 1) / most;
  CurvePoints result;
  for (std::size_t begin = 0; begin < points.size(); begin += block) {
    const std::size_t end = std::min(points.size(), begin + block);
    CurvePoint point;
    average_into(point, points.data() + begin, points.data() + end);
    for (std::size_t i = begin; i < end; ++i) point.x += points[i].x;
    point.x /= static_cast<double>(end - begin);
    result.push_back(point);
  }
  return result;
}

}  // namespace grapevine
