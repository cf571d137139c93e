#include "apps/console/text/table.hpp"

#include <gtest/gtest.h>

#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "apps/console/text/display_width.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace table_test {

TEST(TableTest, AlignsFiguresRightAndTextLeft) {
  Table table({"preset", "time", "sent", "accuracy"});
  table.add_row({"ar", "1m 03s", "1.2 MB", "97.5%"});
  table.add_row({"osgp-λ", "9.5s", "123 kB", "-"});
  EXPECT_EQ(table.to_string(),
            "preset    time    sent  accuracy\n"
            "------  ------  ------  --------\n"
            "ar      1m 03s  1.2 MB     97.5%\n"
            "osgp-λ    9.5s  123 kB         -\n");
}

TEST(TableTest, FiguresAreRecognised) {
  const auto is_right = [](const std::string& cell) {
    Table table({"a rather long header"});
    table.add_row({cell});
    return table.to_string().find("\n  ") != std::string::npos;
  };
  for (const char* cell : {"0", "-1", "+3", "1,234", "1.5e-3", "2E8", "97%", "12µs", "3d 04h",
                           "1.2k samples/s", "4.2 GB/s", "-"}) {
    EXPECT_TRUE(is_right(cell)) << cell;
  }
  for (const char* cell : {"ring", "10.0.0.1:90", "0:1,30:2", "a1", "1.", "--", "e5", "1 2:3"}) {
    EXPECT_FALSE(is_right(cell)) << cell;
  }
}

TEST(TableTest, EveryLineOfAnyTableHasTheSameColumns) {
  std::mt19937 rng(3);
  SCOPED_TRACE("seed 3");
  const std::vector<std::string> words{"", "x", "日本", "µ", "12", "3.5 MB", "🍇 grape"};
  Table table({"日", "b", "long header"});
  for (int r = 0; r < 50; ++r) {
    // A last column of one width keeps the trailing blanks from being trimmed.
    table.add_row({words[rng() % words.size()], words[rng() % words.size()], "................"});
  }
  std::istringstream lines(table.to_string());
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  const int width = display_width(line);
  while (std::getline(lines, line)) EXPECT_EQ(display_width(line), width) << line;
}

TEST(TableTest, CellsCannotSteerTheTerminal) {
  Table table({"name"});
  table.add_row({"\x1b[2J\nnext\r\x7f"});
  EXPECT_EQ(table.to_string(), "name\n-----------\n?[2J?next??\n");
}

TEST(TableTest, HeaderAloneAndWrongRows) {
  Table table({"a", "b"});
  EXPECT_EQ(table.to_string(), "a  b\n-  -\n");
  EXPECT_THROW(table.add_row({"one"}), InvariantBroken);
}

}  // namespace table_test
}  // namespace grapevine
