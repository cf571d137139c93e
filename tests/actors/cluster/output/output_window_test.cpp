#include "actors/cluster/output/output_window.hpp"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace grapevine {
namespace output_window_test {

// How many lines a note of the pool says are missing; 0: it is another line.
std::int64_t missing_of(const JobLine& line) {
  return line.process < 0 ? std::stoll(line.text) : 0;
}

// A submitter that acknowledges when it likes: what it gets is in order, every line is sent or
// counted, and what is on its way is bounded.
TEST(OutputWindow, SendsABoundedNumberOfBytesAndCountsWhatItLeavesOut) {
  const std::uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    const std::size_t limit = 1 + random() % 4000;
    std::vector<JobLine> sent;
    std::size_t acknowledged = 0;
    bool over = false;
    const auto on_its_way = [&] {
      std::size_t bytes = 0;
      for (std::size_t i = acknowledged; i < sent.size(); ++i) bytes += cost_of(sent[i]);
      return bytes;
    };
    std::size_t longest = cost_of({-1, true, left_out(100)});
    OutputWindow window(limit, 1 + random() % 4000, [&](JobLine line) {
      sent.push_back(std::move(line));
      if (!over) {
        EXPECT_LT(on_its_way(), limit + 2 * longest);  // a line and a note
      }
    });
    std::int32_t added = 0;
    for (int turn = 0; turn < 100; ++turn) {
      const JobLine line{added++, false, std::string(random() % 300, 'x')};
      longest = std::max(longest, cost_of(line));
      window.add(line);
      if (random() % 3 == 0) {
        acknowledged += random() % (sent.size() - acknowledged + 1);
        window.acknowledge(static_cast<std::int64_t>(acknowledged));
      }
    }
    over = true;
    window.send_rest();
    std::int64_t next = 0;
    for (const JobLine& line : sent) {
      if (line.process >= 0) {
        EXPECT_EQ(line.process, next++);
      }
      next += missing_of(line);
    }
    EXPECT_EQ(next, added);
  }
}

TEST(OutputWindow, LeavesNothingOutForWhoKeepsUp) {
  std::vector<std::int32_t> sent;
  OutputWindow window(1000, 1, [&](const JobLine& line) { sent.push_back(line.process); });
  for (std::int32_t i = 0; i < 100; ++i) {
    window.add({i, false, std::string(300, 'x')});
    ASSERT_EQ(sent.size(), static_cast<std::size_t>(i) + 1);
    EXPECT_EQ(sent.back(), i);
    window.acknowledge(i - 1);  // one behind
  }
}

// A submitter cannot make room for what has not been sent.
TEST(OutputWindow, AcknowledgementsThatMakeNoSenseDoNoHarm) {
  int sent = 0;
  OutputWindow window(1000, 100'000, [&](const JobLine&) { ++sent; });
  for (const std::int64_t lines : {std::int64_t{1} << 62, std::int64_t{-1}})
    window.acknowledge(lines);
  for (int i = 0; i < 50; ++i) window.add({0, false, std::string(1000, 'x')});
  EXPECT_EQ(sent, 1);
  for (int i = 0; i < 3; ++i) window.acknowledge(1);
  EXPECT_EQ(sent, 2);
}

}  // namespace output_window_test
}  // namespace grapevine
