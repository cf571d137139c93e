// Quantiles of measured times, as `bench` reports them.
#pragma once
#include <algorithm>
#include <vector>

namespace grapevine {

struct Quantiles {
  double median = 0, p10 = 0, p99 = 0;  // in the unit of the measurements
};

// The median of an even number is the mean of the two in the middle; the others are among the
// values. REQUIRES: at least one value.
inline Quantiles quantiles_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t n = values.size();
  const auto at = [&](double part) {
    return values[std::min(n - 1, static_cast<std::size_t>(part * static_cast<double>(n)))];
  };
  return {(values[(n - 1) / 2] + values[n / 2]) / 2, at(0.10), at(0.99)};
}

}  // namespace grapevine
