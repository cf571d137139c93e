#include "apps/simulate/link_fit.hpp"

#include <algorithm>
#include <cmath>

#include "apps/console/text/figures.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

constexpr std::size_t kMostSamples = 4096;  // of a size
constexpr std::int64_t kLeastMessages = 8;  // of a size
constexpr double kOneSize = 1.5;            // sizes that differ by less are one
constexpr double kLeastGap = 0.1;  // of t: where less, messages did not share a NIC in turn

double quantile(std::vector<double> values, double q) {
  const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

}  // namespace

// Least squares of the relative errors; neither figure is negative.
LinkModel LinkFit::line_through(const std::vector<Point>& points) {
  double w = 0, wx = 0, wy = 0, wxx = 0, wxy = 0;
  for (const Point& point : points) {
    const double weight = 1 / (point.seconds * point.seconds);
    w += weight;
    wx += weight * point.bytes;
    wy += weight * point.seconds;
    wxx += weight * point.bytes * point.bytes;
    wxy += weight * point.bytes * point.seconds;
  }
  const double spread = w * wxx - wx * wx;
  const double beta = spread > 0 ? (w * wxy - wx * wy) / spread : 0;
  const double alpha = (wy - beta * wx) / w;
  if (beta < 0) return {wy / w, 0};
  if (alpha < 0) return {0, wxy / wxx};
  return {alpha, beta};
}

void LinkFit::keep(Times& times, double seconds) {
  ++times.count;
  if (times.seconds.size() < kMostSamples) return times.seconds.push_back(seconds);
  const auto at = rng_() % static_cast<std::uint64_t>(times.count);
  if (at < kMostSamples) times.seconds[at] = seconds;
}

void LinkFit::add(std::uint64_t bytes, double seconds, bool alone) {
  if (!(seconds > 0) || bytes == 0) return;
  Size& size = sizes_[static_cast<int>(std::floor(8 * std::log2(static_cast<double>(bytes))))];
  size.bytes += static_cast<double>(bytes);
  size.least = size.all.count == 0 ? seconds : std::min(size.least, seconds);
  keep(size.all, seconds);
  if (alone) keep(size.alone, seconds);
}

void LinkFit::add_gap(std::uint64_t bytes, double seconds) {
  if (!(seconds >= 0) || bytes == 0) return;
  const double beta = seconds / static_cast<double>(bytes);
  ++gap_count_;
  if (gaps_.size() < kMostSamples) return gaps_.push_back(beta);
  const auto at = rng_() % static_cast<std::uint64_t>(gap_count_);
  if (at < kMostSamples) gaps_[at] = beta;
}

LinkFit::Result LinkFit::fit() const {
  Result result;
  std::vector<Point> points;
  // Sums of all messages, and of those that were alone.
  double late = 0, late_alone = 0, alone = 0;
  for (const auto& [logarithm, size] : sizes_) {
    const auto count = static_cast<double>(size.all.count);
    if (size.all.count < kLeastMessages) continue;
    const bool knows = size.alone.count >= kLeastMessages;
    const std::vector<double>& seconds = knows ? size.alone.seconds : size.all.seconds;
    const Point point{size.bytes / count, quantile(seconds, 0.1)};
    points.push_back(point);
    const double over = std::max(0.0, quantile(seconds, 0.5) - point.seconds);
    late += count * over;
    if (knows) late_alone += static_cast<double>(size.alone.count) * over;
    if (knows) alone += static_cast<double>(size.alone.count);
    result.messages += size.all.count;
  }
  result.sizes = static_cast<int>(points.size());
  if (points.empty()) return result;
  result.jitter = alone > 0 ? late_alone / alone : late / static_cast<double>(result.messages);
  if (points.back().bytes < kOneSize * points.front().bytes)
    split_one_size(points, result);
  else
    result.link = line_through(points);
  return result;
}

void LinkFit::split_one_size(const std::vector<Point>& points, Result& result) const {
  Point usual;
  for (const Point& point : points) {
    usual.bytes += point.bytes / static_cast<double>(points.size());
    usual.seconds += point.seconds / static_cast<double>(points.size());
  }
  result.sizes = 1;
  result.seconds = usual.seconds;
  if (split_by_small(usual, result) || split_by_gaps(usual, result)) return;
  result.split = Split::assumed;
  result.link.alpha = std::min(kUsualAlpha, usual.seconds / 2);
  result.link.beta = (usual.seconds - result.link.alpha) / usual.bytes;
}

// The smallest ones that did not wait behind a usual one, as it seems.
bool LinkFit::split_by_small(const Point& usual, Result& result) const {
  for (const auto& [logarithm, size] : sizes_) {
    const Point small{size.bytes / static_cast<double>(size.all.count), size.least};
    if (kOneSize * small.bytes >= usual.bytes) return false;
    if (small.seconds >= usual.seconds) continue;
    result.split = Split::small;
    result.split_by = size.all.count;
    result.link = line_through({small, usual});
    return true;
  }
  return false;
}

bool LinkFit::split_by_gaps(const Point& usual, Result& result) const {
  if (gap_count_ < kLeastMessages) return false;
  const double beta = quantile(gaps_, 0.5);
  if (beta * usual.bytes < kLeastGap * usual.seconds) return false;
  result.split = Split::gaps;
  result.split_by = gap_count_;
  result.link.beta = std::min(beta, usual.seconds / usual.bytes);
  result.link.alpha = std::max(0.0, usual.seconds - result.link.beta * usual.bytes);
  return true;
}

std::string LinkFit::Result::note() const {
  const std::string all =
      "messages had one size and took " + format_duration(from_seconds(seconds));
  const std::string alpha = format_duration(from_seconds(link.alpha));
  switch (split) {
    case Split::sizes:
      return "";
    case Split::small:
      return all + ": alpha " + alpha + " follows from the fastest of " + format_count(split_by) +
             " small ones";
    case Split::gaps:
      return all + ": beta is what " + format_count(split_by) +
             " of them waited for one before them, alpha " + alpha + " is the rest";
    case Split::assumed:
      return all + ": alpha " + alpha +
             " of it is assumed, the trace has nothing to derive it from";
  }
  GRAPEVINE_CHECK(false, "a split of the time of messages");
  return "";
}

}  // namespace grapevine
