#include "apps/plot/axis_range.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace grapevine {
namespace {

// Of all values that are drawn.
AxisRange drawn_range(const Figure& figure, const FigurePanel& panel) {
  AxisRange range;
  for (const CurvePoints& curve : panel.curves)
    for (const CurvePoint& point : curve)
      for (const double value : {point.mean, figure.band ? point.low : point.mean,
                                 figure.band ? point.high : point.mean})
        if (!figure.log_y || value > 0) range.add(value);
  return range;
}

// The tics that gnuplot chooses, at an eighth to a twentieth of the axis: it chooses fewer of them,
// with rounder numbers, where an axis is low.
std::vector<double> usual_tics(const AxisRange& y) {
  const double rough = (y.high - y.low) / 20;
  const double unit = std::pow(10.0, std::floor(std::log10(rough)));
  const double step = unit * (rough > 5 * unit ? 10 : rough > 2 * unit ? 5 : 2);
  const double first = std::ceil(y.low / step);
  std::vector<double> tics;
  for (int k = 0; (first + k) * step <= y.high; ++k) tics.push_back((first + k) * step);
  return tics;
}

std::vector<double> tics_of(const Figure& figure, const AxisRange& y) {
  if (!figure.log_y) return usual_tics(y);
  if (has_short_log_axis(figure, y)) return short_log_tics(y);
  return {y.low > 0 ? std::pow(10.0, std::floor(std::log10(y.low))) : 1,
          std::pow(10.0, std::floor(std::log10(y.high)))};
}

}  // namespace

AxisRange y_range(const Figure& figure, const FigurePanel& panel) {
  constexpr double kSpace = 0.05;
  const AxisRange drawn = drawn_range(figure, panel);
  if (figure.log_y) {
    const double factor = drawn.low * (1 + 1e-9) < drawn.high
                              ? std::pow(drawn.high / drawn.low, kSpace)
                              : std::sqrt(10.0);
    return {drawn.low / factor, drawn.high * factor};
  }
  // Means of equal numbers may differ in their last digits.
  if (drawn.high - drawn.low <= 1e-9 * std::max(std::abs(drawn.low), std::abs(drawn.high)))
    return drawn.low == 0 ? AxisRange{0, 1}
                          : AxisRange{std::min(0.0, 2 * drawn.low), std::max(0.0, 2 * drawn.low)};
  const double space = kSpace * (drawn.high - drawn.low);
  // No negative numbers on the axis of a quantity that has none.
  const double low = drawn.low >= 0 ? std::max(0.0, drawn.low - space) : drawn.low - space;
  return {low, drawn.high + space};
}

AxisRange x_range(const Figure& figure) {
  AxisRange range;
  for (const FigurePanel& panel : figure.panels)
    for (const CurvePoints& curve : panel.curves) {
      range.add(curve.front().x);
      range.add(curve.back().x);
    }
  // Curves begin soon after zero: the axis begins there, as one expects.
  if (range.low > 0 && range.low < range.high / 4) range.low = 0;
  if (range.low == range.high) return {range.low - 0.5, range.high + 0.5};
  return range;
}

std::vector<double> short_log_tics(const AxisRange& y) {
  constexpr double kNarrow = 3;  // from its lower to its upper end
  const auto power_of_ten = [](double value) {
    return static_cast<int>(std::floor(std::log10(value)));
  };
  std::vector<double> tics;
  if (y.high / y.low < kNarrow) {
    const double rough = (y.high - y.low) / 3, unit = std::pow(10.0, power_of_ten(rough));
    const double step = unit * (rough >= 5 * unit ? 5 : rough >= 2 * unit ? 2 : 1);
    const double first = std::ceil(y.low / step) * step;
    for (int k = 0; first + k * step <= y.high; ++k) tics.push_back(first + k * step);
    return tics;
  }
  for (int power = power_of_ten(y.low); power <= power_of_ten(y.high); ++power)
    for (const int digit : {1, 2, 5})
      if (const double tic = digit * std::pow(10.0, power); tic >= y.low && tic <= y.high)
        tics.push_back(tic);
  return tics;
}

bool has_short_log_axis(const Figure& figure, const AxisRange& y) {
  constexpr double kShort = 100;  // from its lower to its upper end
  return figure.log_y && y.high / y.low < kShort;
}

std::size_t longest_y_number(const Figure& figure, const FigurePanel& panel) {
  std::size_t longest = 0;
  for (const double tic : tics_of(figure, y_range(figure, panel)))
    longest = std::max(longest, fmt::format("{:g}", tic).size());
  return longest;
}

}  // namespace grapevine
