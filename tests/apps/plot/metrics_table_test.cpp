#include "apps/plot/metrics_table.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "tests/apps/plot/metrics_file.hpp"

namespace grapevine {
namespace metrics_table_test {

using testing_apps::kMetricsHeader;
using testing_apps::step_row;
using testing_apps::table_of;
using testing_apps::validation_row;

std::string refusal(const std::string& text, const std::string& column = "loss") {
  std::istringstream in(text);
  const auto table = MetricsTable::read(in, "a/metrics.csv", {column});
  EXPECT_FALSE(table.ok());
  return table.ok() ? "" : table.error().message;
}

TEST(MetricsTable, ReadsColumnsByName) {
  const MetricsTable table = table_of(step_row(3, 8, 1.5, 0.25));
  EXPECT_EQ(table.rows(), 1U);
  EXPECT_EQ(table.column("rank").at(0), 3);
  EXPECT_EQ(table.column("epoch").at(0), 2);
  EXPECT_EQ(table.column("step").at(0), 8);
  EXPECT_EQ(table.column("time_s").at(0), 1.5);
  EXPECT_EQ(table.column("loss").at(0), 0.25);
  EXPECT_TRUE(std::isnan(table.column("val_loss").at(0)));
}

// A column that later versions add, or another order, is no obstacle.
TEST(MetricsTable, TheHeaderGivesThePlaces) {
  std::istringstream in("rank,epoch,step,new,loss,time_s\n0,0,1,9,0.5,2\n");
  const auto table = MetricsTable::read(in, "metrics.csv", {"loss"});
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_EQ(table->column("loss").at(0), 0.5);
  EXPECT_EQ(table->column("time_s").at(0), 2);
}

// A program for tables has written the file anew.
TEST(MetricsTable, LinesMayEndAsOnOtherSystems) {
  std::string text = kMetricsHeader + step_row(0, 0, 1, 2) + validation_row(0, 3, 0.5, "1.5");
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 2)
    text.insert(at, 1, '\r');
  std::istringstream in(text);
  const auto table = MetricsTable::read(in, "metrics.csv", {"loss", "val_loss", "val_top5"});
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_EQ(table->rows(), 2U);
  EXPECT_FALSE(table->is_validation(0));
  EXPECT_TRUE(table->is_validation(1));
  EXPECT_EQ(table->column("val_top5").at(1), 1);
}

// A process was killed while it wrote, or writes at this moment: every cut gives the rows before
// it.
TEST(MetricsTable, ACutLastLineIsLeftOut) {
  const std::string whole = step_row(0, 0, 1, 2) + step_row(0, 1, 2, 1);
  const std::string last = step_row(0, 2, 3, 12.5);
  for (std::size_t length = 0; length < last.size(); ++length) {
    const MetricsTable table = table_of(whole + last.substr(0, length));
    EXPECT_EQ(table.rows(), 2U) << last.substr(0, length);
    EXPECT_EQ(table.skipped(), 0);
  }
  EXPECT_EQ(table_of(whole + last).rows(), 3U);
}

TEST(MetricsTable, DamagedLinesAreCounted) {
  const MetricsTable table =
      table_of(step_row(0, 0, 1, 2) + "0,0.1,1,0.5\n" + "0,0,1,1,1,1,1,many,1,1,1,1,,,\n" +
               ",,,,,,,,,,,,,,\n" + std::string("\0\0\n", 3) + step_row(0, 2, 3, 1));
  EXPECT_EQ(table.rows(), 2U);
  EXPECT_EQ(table.skipped(), 4);
}

TEST(MetricsTable, OtherFilesAreRefused) {
  for (const std::string& text :
       {std::string(), std::string("rank"), std::string("rank,epoch,step,"),
        std::string("rank,epoch,step,time_s,loss"),
        std::string("\x7f"
                    "ELF, and so on without an end")})
    EXPECT_NE(refusal(text).find("a/metrics.csv: does not begin as"), std::string::npos) << text;
  EXPECT_NE(refusal(kMetricsHeader).find("has no rows"), std::string::npos);
  EXPECT_NE(refusal("rank,epoch,step,time_s\n0,0,0,0\n").find("has no column loss"),
            std::string::npos);
}

}  // namespace metrics_table_test
}  // namespace grapevine
