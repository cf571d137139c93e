// A metrics.csv with a few columns, for tests.
#pragma once
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "apps/plot/metrics_table.hpp"

namespace grapevine::testing_apps {

inline constexpr char kMetricsHeader[] =
    "rank,epoch,step,time_s,batch_time_s,exchange_time_s,data_time_s,loss,top1,top5,lr,staleness,"
    "val_loss,val_top1,val_top5\n";

// A row of a step: its epoch is a quarter of the step.
inline std::string step_row(int rank, int step, double time_s, double loss) {
  std::ostringstream row;
  row << rank << ',' << step / 4.0 << ',' << step << ',' << time_s << ",0.1,0,0," << loss
      << ",0.5,1,0.03,0,,,\n";
  return row.str();
}

// `time_s`: a text, empty where the run did not measure it.
inline std::string validation_row(int epoch, int step, double loss,
                                  const std::string& time_s = "") {
  std::ostringstream row;
  row << "0," << epoch << ',' << step << ',' << time_s << ",,,,,,,,," << loss << ",0.75,1\n";
  return row.str();
}

inline MetricsTable table_of(const std::string& rows) {
  std::istringstream in(kMetricsHeader + rows);
  auto table = MetricsTable::read(in, "metrics.csv", {"loss", "val_loss", "val_top1"});
  EXPECT_TRUE(table.ok()) << table.error().message;
  return *std::move(table);
}

}  // namespace grapevine::testing_apps
