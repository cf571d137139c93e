#include "apps/console/text/figures.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>

namespace grapevine {
namespace {

// Divides by 1000 until three figures are left in front of the point. `index` of the unit is chosen
// after rounding, so that 999,999 is "1.0M" and never "1000k".
std::pair<std::string, std::size_t> scaled(double value, std::size_t units) {
  std::size_t index = 0;
  while (index + 1 < units && value >= 999.5) {
    value /= 1000;
    ++index;
  }
  const int decimals = index > 0 && value < 99.95 ? 1 : 0;
  return {fmt::format("{:.{}f}", value, decimals), index};
}

}  // namespace

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<const char*, 7> kUnits{"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  const auto [figure, unit] = scaled(static_cast<double>(bytes), kUnits.size());
  return figure + " " + kUnits[unit];
}

std::string format_duration(Duration duration) {
  // The most negative duration has no positive twin; one nanosecond in 292 years is not missed.
  if (duration == Duration::min()) duration += Duration(1);
  if (duration < Duration::zero()) return "-" + format_duration(-duration);
  const double seconds = to_seconds(duration);
  if (duration == Duration::zero()) return "0s";
  if (seconds < 999.5e-9) return std::to_string(duration.count()) + "ns";
  if (seconds < 999.5e-6) return fmt::format("{:.0f}µs", seconds * 1e6);
  if (seconds < 0.9995) return fmt::format("{:.0f}ms", seconds * 1e3);
  if (seconds < 59.95) return fmt::format("{:.1f}s", seconds);
  const auto two = [](std::int64_t high, const char* high_unit, std::int64_t low,
                      const char* low_unit) {
    return std::to_string(high) + high_unit + (low < 10 ? " 0" : " ") + std::to_string(low) +
           low_unit;
  };
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole < 3600) return two(whole / 60, "m", whole % 60, "s");
  const std::int64_t minutes = whole / 60;
  if (minutes < 24 * 60) return two(minutes / 60, "h", minutes % 60, "m");
  return two(minutes / (24 * 60), "d", minutes / 60 % 24, "h");
}

std::string format_count(std::int64_t count) {
  std::string text = std::to_string(count);
  const std::size_t sign = count < 0 ? 1 : 0;
  for (std::size_t at = text.size(); at > sign + 3;) {
    at -= 3;
    text.insert(at, ",");
  }
  return text;
}

std::string format_rate(double per_second) {
  static constexpr std::array<const char*, 6> kUnits{"", "k", "M", "G", "T", "P"};
  if (!std::isfinite(per_second)) return "-";
  if (per_second < 0) return "-" + format_rate(-per_second);
  if (per_second < 9.995) return fmt::format("{:.2f}", per_second);
  if (per_second < 99.95) return fmt::format("{:.1f}", per_second);
  const auto [figure, unit] = scaled(per_second, kUnits.size());
  return figure + kUnits[unit];
}

std::string format_number(double value, int decimals) {
  if (!std::isfinite(value)) return "-";
  constexpr double kWidest = 1e6;  // of a column
  if (std::abs(value) < kWidest) return fmt::format("{:.{}f}", value, decimals);
  return fmt::format("{:.{}g}", value, std::max(decimals, 3));
}

}  // namespace grapevine
