// What connect() waits for where a process joins a run, and others are lost meanwhile.
#include "net/process_links.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace grapevine {
namespace process_links_test {

using Clock = ProcessLinks::Clock;

constexpr auto kDeadline = std::chrono::seconds(60);  // only a hang reaches it

// This is process 1 of 3.
std::unique_ptr<ProcessLinks> links() {
  Placement placement;
  placement.process_of = {0, 1, 2};
  placement.host_of = {"a", "b", "c"};
  placement.own_process = 1;
  return std::make_unique<ProcessLinks>(
      placement, std::vector<std::string>{"process 0", "itself", "process 2"},
      std::vector<std::int32_t>{});
}

Expected<void> wait(ProcessLinks& links, const LostMeanwhile& lost) {
  return links.wait_connected(Clock::now() + kDeadline, "60 s", nullptr, lost);
}

// Connected before, or not yet.
TEST(ProcessLinks, AProcessThatTheRunHasLostIsNotAwaited) {
  for (const bool connected : {true, false}) {
    const auto mine = links();
    mine->open(0);
    if (connected) {
      mine->open(2);
      mine->lose(2);
    }
    int polls = 0;
    const auto waited =
        wait(*mine, [&](std::int32_t process) { return process == 2 && ++polls > 2; });
    EXPECT_TRUE(waited.ok()) << waited.error().message;
    EXPECT_EQ(polls, 3) << "the run knew it then";
    mine->expect(2);
    EXPECT_TRUE(mine->open(2)) << "it may return";
  }
}

// Both ends of a broken link live: without it, they would wait for each other.
TEST(ProcessLinks, ABrokenLinkToAProcessThatIsNotLostIsAnError) {
  const auto mine = links();
  mine->open(0);
  mine->open(2);
  mine->lose(2);
  int polls = 0;
  const auto waited = wait(*mine, [&](std::int32_t) { return ++polls, false; });
  ASSERT_FALSE(waited.ok());
  EXPECT_EQ(waited.error().code, Errc::peer_down);
  EXPECT_NE(waited.error().message.find("process 2"), std::string::npos) << waited.error().message;
  EXPECT_GT(polls, 10) << "the run had time to know it";
}

// Process 2 dials the wrong address. That is no second process of its index, and no loss.
TEST(ProcessLinks, AProcessThatMeansAnotherOneIsRefusedWhateverItsLink) {
  const auto mine = links();
  const auto judge = [&](std::int32_t to) {
    return mine->judge(2, placement_digest({{0, 1, 2}, {"a", "b", "c"}, 1}), to);
  };
  for (const std::int32_t to : {0, 2, -1}) EXPECT_EQ(judge(to), Refusal::other_process) << to;
  EXPECT_EQ(judge(1), Refusal::none);
  mine->open(2);
  EXPECT_EQ(judge(0), Refusal::other_process);
  mine->open(0);
  EXPECT_TRUE(wait(*mine, nullptr).ok());
  mine->lose(2);
  EXPECT_EQ(judge(0), Refusal::other_process);
  mine->expect(2);
  EXPECT_EQ(judge(0), Refusal::other_process);
  EXPECT_EQ(judge(1), Refusal::none);
}

// At the start of a run nobody knows of losses.
TEST(ProcessLinks, AtTheStartALossEndsTheWaitAtOnce) {
  const auto mine = links();
  mine->open(2);
  mine->lose(2);
  const auto waited = wait(*mine, nullptr);
  ASSERT_FALSE(waited.ok());
  EXPECT_EQ(waited.error().code, Errc::peer_down);
}

}  // namespace process_links_test
}  // namespace grapevine
