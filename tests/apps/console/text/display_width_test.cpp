#include "apps/console/text/display_width.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace grapevine {
namespace display_width_test {

using ::testing::StartsWith;

TEST(TextTest, WidthCountsColumnsNotBytes) {
  EXPECT_EQ(display_width("plain"), 5);
  EXPECT_EQ(display_width("µs λ₂ ×"), 7);
  EXPECT_EQ(display_width("e\u0301"), 1) << "a combining mark";
  EXPECT_EQ(display_width("日本"), 4);
  EXPECT_EQ(display_width("🍇"), 2);
  EXPECT_EQ(display_width("\xff\xc3"), 2) << "bytes that are no UTF-8";
  EXPECT_EQ(display_width(""), 0);
}

TEST(TextTest, TruncationNeverSplitsACharacterOrExceedsTheWidth) {
  const std::string text = "aµ日e\u0301🍇z\xff";
  for (int columns = 0; columns <= display_width(text) + 1; ++columns) {
    const std::string cut = truncate_to_width(text, columns);
    EXPECT_LE(display_width(cut), columns);
    EXPECT_GE(display_width(cut), std::min(columns, display_width(text)) - 1);
    EXPECT_THAT(text, StartsWith(cut));
  }
  EXPECT_EQ(truncate_to_width("日本", 3), "日");
}

TEST(TextTest, WrappedLinesKeepTheirWordsAndBlanks) {
  using Lines = std::vector<std::string>;
  EXPECT_EQ(wrapped_lines("", 10, "  "), Lines({""}));
  EXPECT_EQ(wrapped_lines("one two three", 8, ""), Lines({"one two", "three"}));
  EXPECT_EQ(wrapped_lines("  one two three", 9, "    "), Lines({"  one two", "    three"}))
      << "the first line keeps its own indent";
  EXPECT_EQ(wrapped_lines("a verylongword b", 6, "  "), Lines({"a", "  verylongword", "  b"}))
      << "a word is never broken";
  EXPECT_EQ(wrapped_lines("key   value", 20, ""), Lines({"key   value"})) << "columns stay columns";
  EXPECT_EQ(wrapped_lines("日本 日本", 8, ""), Lines({"日本", "日本"})) << "columns, not bytes";
}

TEST(TextTest, WrappedLinesFitWhereWordsDo) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    std::string text;
    for (std::uint32_t words = random() % 20 + 1; words > 0; --words)
      text += std::string(random() % 9 + 1, 'x') + (words > 1 ? " " : "");
    const int columns = static_cast<int>(random() % 30) + 12;
    std::string joined;
    for (const std::string& line : wrapped_lines(text, columns, "  ")) {
      EXPECT_LE(display_width(line), columns) << text;
      joined += (joined.empty() ? line : " " + line.substr(2));
    }
    EXPECT_EQ(joined, text);
  }
}

}  // namespace display_width_test
}  // namespace grapevine
