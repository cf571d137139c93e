#include "apps/launch/child_group.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <map>

namespace grapevine {
namespace child_group_test {

constexpr int kTimeoutMs = 60'000;  // only a hang reaches it

ChildCommand shell(const std::string& script) { return {{"/bin/sh", "-c", script}, {}, false, ""}; }

class ChildGroupTest : public testing::Test {
 protected:
  // One poll().
  void turn(bool reads = true) {
    std::vector<pollfd> waits;
    group_.add_to(waits, reads);
    ASSERT_GT(::poll(waits.data(), waits.size(), kTimeoutMs), 0);
    for (const auto& [child, end] : group_.handle(waits)) ends_.emplace(child, end);
  }

  std::map<std::pair<std::size_t, bool>, std::string> lines_;  // by child and stderr
  ChildGroup group_{[this](std::size_t child, bool to_err, const std::string& line) {
    lines_[{child, to_err}] += line + "\n";
  }};
  std::map<std::size_t, ProcessEnd> ends_;
};

TEST_F(ChildGroupTest, ReadsAndReapsEachChild) {
  ASSERT_TRUE(group_.start(shell("echo out; echo err >&2; exit 3")));
  ASSERT_TRUE(group_.start(shell("echo second; kill -KILL $$")));
  EXPECT_TRUE(group_.running());
  while (group_.running()) turn();
  ASSERT_EQ(ends_.size(), 2U);
  EXPECT_EQ(ends_[0].exit_code, 3);
  EXPECT_EQ(ends_[1].signal, SIGKILL);
  EXPECT_EQ((lines_[{0, false}]), "out\n");
  EXPECT_EQ((lines_[{0, true}]), "err\n");
  EXPECT_EQ((lines_[{1, false}]), "second\n");
}

TEST_F(ChildGroupTest, OutputThatIsNotPolledForComesWithTheEnd) {
  ASSERT_TRUE(group_.start(shell("echo late")));
  while (group_.running()) turn(false);
  EXPECT_EQ((lines_[{0, false}]), "late\n");
}

// A node starts a job between its poll() and the handling of what was ready.
TEST_F(ChildGroupTest, AnEarlierPollTellsNothingOfLaterChildren) {
  ASSERT_TRUE(group_.start(shell("exit 0")));
  std::vector<pollfd> waits;
  group_.add_to(waits, true);
  ASSERT_GT(::poll(waits.data(), waits.size(), kTimeoutMs), 0);
  group_.clear();
  EXPECT_FALSE(group_.running());
  ASSERT_TRUE(group_.start(shell("exec sleep 1000")));
  ASSERT_TRUE(group_.start(shell("exit 5")));
  EXPECT_TRUE(group_.handle(waits).empty());
  EXPECT_TRUE(group_.running());
  group_.signal(SIGTERM);
  while (group_.running()) turn();
  EXPECT_EQ(ends_[0].signal, SIGTERM);
}

TEST_F(ChildGroupTest, AProgramThatDoesNotExistIsNoChild) {
  EXPECT_FALSE(group_.start({{"/no/such/program"}, {}, false, ""}));
  EXPECT_FALSE(group_.running());
  ASSERT_TRUE(group_.start(shell("exit 7")));
  while (group_.running()) turn();
  EXPECT_EQ(ends_[0].exit_code, 7);
}

}  // namespace child_group_test
}  // namespace grapevine
