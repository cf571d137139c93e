#include "actors/cluster/output/line_parts.hpp"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace grapevine {
namespace line_parts_test {

std::string letters(std::size_t bytes) {
  std::string text(bytes, ' ');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + i % 23);
  return text;
}

TEST(LineParts, AreJoinedToTheLineThatWasSplit) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::size_t{1}, kLongestOutputLine - 1, kLongestOutputLine,
        kLongestOutputLine + 1, 2 * kLongestOutputLine, 5 * kLongestOutputLine + 7}) {
    SCOPED_TRACE(bytes);
    const std::string line = letters(bytes);
    LineJoiner joiner;
    std::size_t parts = 0;
    std::vector<std::string> joined;
    split_line(line, [&](std::string part, bool continues) {
      ++parts;
      EXPECT_LE(part.size(), kLongestOutputLine);
      auto whole = joiner.add(std::move(part), continues);
      EXPECT_NE(whole.has_value(), continues);
      if (whole) joined.push_back(*std::move(whole));
    });
    EXPECT_EQ(parts, bytes == 0 ? 1 : (bytes + kLongestOutputLine - 1) / kLongestOutputLine);
    EXPECT_EQ(joined, std::vector<std::string>{line});
    EXPECT_FALSE(joiner.take_rest());
  }
}

// A sender that never ends its line costs a bounded amount of memory.
TEST(LineParts, EndAtABound) {
  LineJoiner joiner(10);
  EXPECT_FALSE(joiner.add("123456789", true));
  EXPECT_EQ(joiner.add("abc", true), "123456789abc");
  EXPECT_FALSE(joiner.add("d", true));
  EXPECT_EQ(joiner.add("", false), "d");
}

TEST(LineParts, OfALineWithoutItsEndAreNotLost) {
  LineJoiner joiner;
  EXPECT_FALSE(joiner.take_rest());
  EXPECT_FALSE(joiner.add("begun", true));
  EXPECT_EQ(joiner.take_rest(), "begun");
  EXPECT_FALSE(joiner.take_rest());
}

}  // namespace line_parts_test
}  // namespace grapevine
