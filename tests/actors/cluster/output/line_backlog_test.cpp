#include "actors/cluster/output/line_backlog.hpp"

#include <gtest/gtest.h>

#include <random>

namespace grapevine {
namespace line_backlog_test {

// What comes out is an unbroken end of what went in, and the rest is counted.
TEST(LineBacklog, LosesTheOldestLinesAndCountsThem) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const std::size_t limit = 1 + random() % 4000;
    LineBacklog backlog(limit);
    std::int32_t added = 0, shown = 0;
    for (int turn = 0; turn < 5; ++turn) {
      const int lines = static_cast<int>(random() % 60);
      for (int i = 0; i < lines; ++i)
        EXPECT_EQ(backlog.add({added++, false, std::string(random() % 200, 'x')}), i == 0);
      const auto waiting = backlog.take();
      std::size_t bytes = 0;
      shown += static_cast<std::int32_t>(waiting.dropped);
      for (const JobLine& line : waiting.lines) {
        EXPECT_EQ(line.process, shown++);
        bytes += line.text.size();
      }
      EXPECT_EQ(shown, added);
      EXPECT_EQ(waiting.lines.empty(), lines == 0);
      if (waiting.lines.size() > 1) {
        EXPECT_LE(bytes, limit);
      }
    }
  }
}

TEST(LineBacklog, KeepsWhatFits) {
  LineBacklog backlog(1 << 20);
  for (std::int32_t i = 0; i < 100; ++i) backlog.add({i, true, "line"});
  const auto waiting = backlog.take();
  EXPECT_EQ(waiting.lines.size(), 100U);
  EXPECT_EQ(waiting.dropped, 0);
}

TEST(LineBacklog, GivesTheOldestAlone) {
  LineBacklog backlog(1 << 20);
  const JobLine line{0, false, "line"};
  for (std::int32_t i = 0; i < 10; ++i) backlog.add({i, false, line.text});
  EXPECT_TRUE(backlog.take(0).lines.empty());
  EXPECT_EQ(backlog.take(2 * cost_of(line)).lines.size(), 2U);
  EXPECT_EQ(backlog.take(2 * cost_of(line) + 1).lines.size(), 3U);
  EXPECT_EQ(backlog.bytes(), 5 * cost_of(line));
  EXPECT_FALSE(backlog.add(line));
  EXPECT_EQ(backlog.take().lines.front().process, 5);
  EXPECT_EQ(backlog.bytes(), 0U);
}

TEST(LineBacklog, ALineLongerThanTheBoundIsShownAlone) {
  LineBacklog backlog(10);
  backlog.add({0, false, "first"});
  EXPECT_FALSE(backlog.add({0, false, std::string(1000, 'x')}));
  const auto waiting = backlog.take();
  ASSERT_EQ(waiting.lines.size(), 1U);
  EXPECT_EQ(waiting.lines[0].text.size(), 1000U);
  EXPECT_EQ(waiting.dropped, 1);
}

}  // namespace line_backlog_test
}  // namespace grapevine
