// The curves of a run: metrics.csv, and what it shows against what. Without I/O.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "apps/plot/bytes_over_time.hpp"
#include "apps/plot/metrics_table.hpp"
#include "apps/plot/plot_axes.hpp"

namespace grapevine {

struct CurvePoint {
  double x = 0;
  double mean = 0;
  double low = 0;  // of the values behind the mean
  double high = 0;
};
using CurvePoints = std::vector<CurvePoint>;  // x ascends

struct CurveSettings {
  PlotX x = PlotX::time;
  PlotY y;
  std::int64_t smooth = 1;  // points in the average around each one; not for validations
  const std::vector<BytesAt>* bytes = nullptr;  // with PlotX::bytes
};

// Whether a point is the mean of as many steps, in the order of time, as there are ranks. Otherwise
// it is the mean over the ranks at one logged step.
bool means_follow_time(PlotX x);

// A step that was written twice counts as it was written last. Points that would lead backward are
// left out.
//
// A validation stands at the time of its row, that at which the last rank had ended the epoch. On
// the axis of epochs it stands at the end of its rank's step. Rows without a time are those of
// earlier versions: there its x is that of its rank at its step.
//
// Empty where the column has no values. x and y have the units of the labels, but for x in seconds
// and bytes. REQUIRES: the table has the column.
CurvePoints curve_of(const MetricsTable& table, const CurveSettings& settings);

// The means of neighbours, so that at most `most` points remain; the low of these is the mean of
// their lows, too. REQUIRES: most > 0.
CurvePoints thinned(const CurvePoints& points, std::size_t most);

}  // namespace grapevine
