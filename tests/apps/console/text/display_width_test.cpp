#include "apps/console/text/display_width.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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

}  // namespace display_width_test
}  // namespace grapevine
