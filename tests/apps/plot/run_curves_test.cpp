#include "apps/plot/run_curves.hpp"

#include <gtest/gtest.h>

#include "tests/apps/plot/metrics_file.hpp"

namespace grapevine {
namespace run_curves_test {

using testing_apps::step_row;
using testing_apps::table_of;
using testing_apps::validation_row;

CurvePoints curve(const std::string& rows, PlotX x, const std::string& y = "loss",
                  std::int64_t smooth = 1) {
  const auto column = find_plot_y(y);
  EXPECT_TRUE(column.ok());
  return curve_of(table_of(rows), {x, *column, smooth, nullptr});
}

std::vector<double> means(const CurvePoints& points) {
  std::vector<double> values;
  for (const CurvePoint& point : points) values.push_back(point.mean);
  return values;
}

std::vector<double> xs(const CurvePoints& points) {
  std::vector<double> values;
  for (const CurvePoint& point : points) values.push_back(point.x);
  return values;
}

using Values = std::vector<double>;

TEST(RunCurves, APointIsTheMeanOverTheRanksOfAStep) {
  const std::string rows =
      step_row(1, 0, 2, 8) + step_row(0, 0, 1, 4) + step_row(0, 1, 3, 1) + step_row(1, 1, 5, 2);
  const CurvePoints points = curve(rows, PlotX::time);
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].x, 1.5);
  EXPECT_EQ(points[0].mean, 6);
  EXPECT_EQ(points[0].low, 4);
  EXPECT_EQ(points[0].high, 8);
  EXPECT_EQ(xs(points), (Values{1.5, 4}));
  EXPECT_EQ(xs(curve(rows, PlotX::step)), (Values{0, 1}));
  EXPECT_EQ(xs(curve(rows, PlotX::epoch)), (Values{0, 0.25}));
}

TEST(RunCurves, TheLaterOfTwoRowsCounts) {
  const std::string rows = step_row(0, 0, 1, 8) + step_row(0, 1, 2, 6) + step_row(0, 2, 3, 5) +
                           step_row(0, 1, 2.5, 4) + step_row(0, 2, 3.5, 3);
  EXPECT_EQ(means(curve(rows, PlotX::time)), (Values{8, 4, 3}));
  EXPECT_EQ(xs(curve(rows, PlotX::time)), (Values{1, 2.5, 3.5}));
}

// One rank takes ten times as long as the other: a mean over a step would stand where neither was.
TEST(RunCurves, ByTimeAPointIsTheMeanOfNeighboursInTime) {
  std::string rows;
  for (int step = 0; step < 4; ++step) rows += step_row(0, step, step + 1, 8 - 2 * step);
  rows += step_row(1, 0, 10, 7) + step_row(1, 1, 20, 5);
  const CurvePoints points = curve(rows, PlotX::time);
  EXPECT_EQ(xs(points), (Values{1.5, 3.5, 15}));
  EXPECT_EQ(means(points), (Values{7, 3, 6}));
  EXPECT_EQ(points[2].low, 5);
  EXPECT_EQ(points[2].high, 7);
  EXPECT_EQ(xs(curve(rows, PlotX::step)), (Values{0, 1, 2, 3}));
  EXPECT_EQ(means(curve(rows, PlotX::step)), (Values{7.5, 5.5, 4, 2}));
}

// A rank that was lost, or that a killed run did not report.
TEST(RunCurves, TheLastPointMayHaveFewerValues) {
  const std::string rows = step_row(0, 0, 1, 8) + step_row(1, 0, 3, 6) + step_row(0, 1, 5, 4);
  EXPECT_EQ(xs(curve(rows, PlotX::time)), (Values{2, 5}));
  EXPECT_EQ(means(curve(rows, PlotX::time)), (Values{7, 4}));
}

TEST(RunCurves, NoPointLeadsBackward) {
  const std::string rows =
      "0,3,0,1,1,0,0,9,1,1,1,0,,,\n0,2,1,2,1,0,0,8,1,1,1,0,,,\n"
      "0,4,2,3,1,0,0,7,1,1,1,0,,,\n";
  EXPECT_EQ(xs(curve(rows, PlotX::epoch)), (Values{3, 4}));
}

TEST(RunCurves, AValidationStandsAtItsStep) {
  const std::string rows = step_row(0, 0, 1, 8) + step_row(0, 3, 4, 7) + validation_row(0, 3, 5) +
                           step_row(0, 4, 5, 7) + step_row(1, 3, 50, 7) + step_row(0, 6, 9, 6) +
                           validation_row(1, 7, 4);
  EXPECT_EQ(means(curve(rows, PlotX::time, "val_loss")), (Values{5, 4}));
  EXPECT_EQ(xs(curve(rows, PlotX::step, "val_loss")), (Values{3, 7}));
  // Step 7 was not logged: one more step of two seconds.
  EXPECT_EQ(xs(curve(rows, PlotX::time, "val_loss")), (Values{4, 11}));
  // Four steps are an epoch: these end with the steps.
  EXPECT_EQ(xs(curve(rows, PlotX::epoch, "val_loss")), (Values{1, 2}));
  EXPECT_EQ(means(curve(rows, PlotX::step, "val_top1")), (Values{75, 75})) << "in percent";
}

// Their times are those at which the last rank had ended the epoch. Every second step is logged.
TEST(RunCurves, AValidationWithATimeIsNoStepOfItsRank) {
  const std::string rows = step_row(0, 0, 1, 8) + step_row(0, 2, 3, 7) +
                           validation_row(0, 3, 5, "4.5") + step_row(0, 4, 5, 7) +
                           step_row(0, 6, 7, 6) + validation_row(1, 7, 4, "9");
  EXPECT_EQ(xs(curve(rows, PlotX::epoch, "val_loss")), (Values{1, 2}));
  EXPECT_EQ(means(curve(rows, PlotX::epoch, "val_loss")), (Values{5, 4}));
  EXPECT_EQ(xs(curve(rows, PlotX::step, "val_loss")), (Values{3, 7}));
  EXPECT_EQ(xs(curve(rows, PlotX::time, "val_loss")), (Values{4.5, 9}));
  EXPECT_EQ(xs(curve(rows, PlotX::time)), (Values{1, 3, 5, 7}));
}

// A loss that is no number is an empty cell; the row is that of a validation all the same.
TEST(RunCurves, AValidationWithoutItsLossIsNoStepEither) {
  const std::string rows = step_row(0, 2, 3, 7) + "0,0,3,4.5,,,,,,,,,,0.75,1\n" +
                           step_row(0, 6, 7, 6) + validation_row(1, 7, 4, "9");
  EXPECT_EQ(xs(curve(rows, PlotX::epoch, "val_loss")), (Values{2}));
}

TEST(RunCurves, AnEpochThatWasValidatedTwiceCountsOnce) {
  const std::string rows = step_row(0, 3, 4, 7) + validation_row(0, 3, 5) + validation_row(0, 3, 4);
  EXPECT_EQ(means(curve(rows, PlotX::time, "val_loss")), (Values{4}));
}

TEST(RunCurves, AColumnWithoutValuesIsAnEmptyCurve) {
  EXPECT_TRUE(curve(step_row(0, 0, 1, 8), PlotX::time, "val_loss").empty());
  EXPECT_TRUE(curve(validation_row(0, 3, 5), PlotX::time).empty());
  EXPECT_TRUE(curve(validation_row(0, 3, 5), PlotX::time, "val_loss").empty())
      << "no step tells when it was";
}

TEST(RunCurves, SmoothingAveragesAroundAPoint) {
  std::string rows;
  for (int step = 0; step < 6; ++step) rows += step_row(0, step, step, step * step);
  EXPECT_EQ(means(curve(rows, PlotX::step, "loss", 1)), (Values{0, 1, 4, 9, 16, 25}));
  EXPECT_EQ(means(curve(rows, PlotX::step, "loss", 2)), (Values{0, 0.5, 2.5, 6.5, 12.5, 20.5}));
  EXPECT_EQ(means(curve(rows, PlotX::step, "loss", 3)),
            (Values{0.5, 5. / 3, 14. / 3, 29. / 3, 50. / 3, 20.5}));
  EXPECT_EQ(means(curve(rows, PlotX::step, "loss", 10000)), Values(6, 55. / 6));
  rows += validation_row(0, 3, 5) + validation_row(1, 5, 3);
  EXPECT_EQ(means(curve(rows, PlotX::step, "val_loss", 10000)), (Values{5, 3}));
}

TEST(RunCurves, BytesAreFoundByTime) {
  const std::vector<BytesAt> bytes = {{1, 0}, {3, 200}, {3, 400}, {4, 1000}};
  std::string rows;
  for (const double time : {0.0, 2.0, 3.5, 9.0})
    rows += step_row(0, static_cast<int>(2 * time), time, 1);
  const CurvePoints points =
      curve_of(table_of(rows), {PlotX::bytes, *find_plot_y("loss"), 1, &bytes});
  EXPECT_EQ(xs(points), (Values{0, 200, 700, 1000}));
}

TEST(RunCurves, ThinningAveragesNeighbours) {
  CurvePoints points;
  for (int i = 0; i < 10; ++i) {
    const double x = i;
    points.push_back({x, 2 * x, x, 3 * x});
  }
  EXPECT_EQ(xs(thinned(points, 10)), xs(points));
  const CurvePoints few = thinned(points, 4);
  EXPECT_EQ(xs(few), (Values{1, 4, 7, 9}));
  EXPECT_EQ(means(few), (Values{2, 8, 14, 18}));
  EXPECT_EQ(few[1].low, 4);
  EXPECT_EQ(few[1].high, 12);
  EXPECT_EQ(thinned(points, 1).size(), 1U);
}

TEST(PlotAxes, UnitsFollowTheLength) {
  EXPECT_EQ(unit_of(PlotX::time, 599).label, "time of training (s)");
  EXPECT_EQ(unit_of(PlotX::time, 600).label, "time of training (min)");
  EXPECT_EQ(unit_of(PlotX::time, 600).divisor, 60);
  EXPECT_EQ(unit_of(PlotX::time, 3 * 3600).label, "time of training (h)");
  EXPECT_EQ(unit_of(PlotX::bytes, 2e9).label, "bytes sent by all ranks (GB)");
  EXPECT_EQ(unit_of(PlotX::bytes, 2e9).divisor, 1e9);
  EXPECT_EQ(unit_of(PlotX::epoch, 2e9).divisor, 1);
}

}  // namespace run_curves_test
}  // namespace grapevine
