#include "apps/simulate/link_fit.hpp"

#include <algorithm>
#include <cmath>

namespace grapevine {
namespace {

constexpr std::size_t kMostSamples = 4096;  // of a size
constexpr std::int64_t kLeastMessages = 8;  // of a size

double quantile(std::vector<double> values, double q) {
  const auto at = static_cast<std::ptrdiff_t>(q * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

struct Point {
  double bytes = 0, seconds = 0;
};

// Least squares of the relative errors; neither figure is negative.
LinkModel line_through(const std::vector<Point>& points) {
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

}  // namespace

void LinkFit::add(std::uint64_t bytes, double seconds) {
  if (!(seconds > 0) || bytes == 0) return;
  Size& size = sizes_[static_cast<int>(std::floor(8 * std::log2(static_cast<double>(bytes))))];
  size.bytes += static_cast<double>(bytes);
  ++size.count;
  if (size.seconds.size() < kMostSamples) return size.seconds.push_back(seconds);
  const auto at = rng_() % static_cast<std::uint64_t>(size.count);
  if (at < kMostSamples) size.seconds[at] = seconds;
}

LinkFit::Result LinkFit::fit() const {
  Result result;
  std::vector<Point> points;
  double late = 0;
  for (const auto& [logarithm, size] : sizes_) {
    if (size.count < kLeastMessages) continue;
    const Point point{size.bytes / static_cast<double>(size.count), quantile(size.seconds, 0.1)};
    points.push_back(point);
    late += static_cast<double>(size.count) *
            std::max(0.0, quantile(size.seconds, 0.5) - point.seconds);
    result.messages += size.count;
  }
  result.sizes = static_cast<int>(points.size());
  if (points.empty()) return result;
  result.jitter = late / static_cast<double>(result.messages);
  if (points.size() == 1)
    result.link.beta = points.front().seconds / points.front().bytes;
  else
    result.link = line_through(points);
  return result;
}

}  // namespace grapevine
