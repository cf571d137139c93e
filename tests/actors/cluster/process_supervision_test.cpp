#include "actors/cluster/process_supervision.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <tuple>
#include <vector>

namespace grapevine {
namespace process_supervision_test {

using namespace std::chrono_literals;
using Due = GracePeriod::Due;

const GracePeriod::Time kStart{};

TEST(ProcessEnd, TextNamesTheSignalOrTheCode) {
  EXPECT_EQ(end_text("rank 1 on here", {-1, SIGKILL}),
            "rank 1 on here was killed by signal 9 (SIGKILL)");
  EXPECT_EQ(end_text("rank 1 on here", {3, 0}), "rank 1 on here exited with code 3");
}

TEST(RunBegin, TheTextIsReadAsItIsWritten) {
  const auto read = parse_run_begin(text_of(RunBegin{3, 8, 2}));
  ASSERT_TRUE(read);
  EXPECT_EQ(std::make_tuple(read->processes, read->places, read->least), std::make_tuple(3, 8, 2));
  for (const RunBegin& senseless : {RunBegin{0, 1, 1}, RunBegin{3, 2, 1}, RunBegin{3, 3, 0}})
    EXPECT_FALSE(parse_run_begin(text_of(senseless)));
  for (const std::string& other :
       {std::string(), std::string("run: the beginning"), text_of(RunBegin{3, 8, 2}) + " ",
        std::string("run: 3 of 8 processes have joined"), "[0] " + text_of(RunBegin{3, 8, 2})})
    EXPECT_FALSE(parse_run_begin(other)) << other;
}

TEST(HeldError, HoldsTheLastErrorBackUntilTheNextLine) {
  std::vector<std::string> written;
  const auto write = [&](std::string line) { written.push_back(std::move(line)); };
  HeldError held;
  held.add("loading", write);
  held.add("error: rank 2 is lost", write);
  EXPECT_EQ(written, std::vector<std::string>{"loading"});
  EXPECT_EQ(held.line(), "error: rank 2 is lost");
  EXPECT_EQ(held.text(), "rank 2 is lost");
  held.add("error: rank 3 is lost", write);
  EXPECT_EQ(written.back(), "error: rank 2 is lost");
  held.release(write);
  EXPECT_EQ(written.back(), "error: rank 3 is lost");
  held.release(write);
  EXPECT_EQ(written.size(), 3U) << "a line is written once";
}

TEST(HeldError, ADroppedErrorIsNotWritten) {
  std::vector<std::string> written;
  const auto write = [&](std::string line) { written.push_back(std::move(line)); };
  HeldError held;
  held.add("error: rank 2 is lost", write);
  held.drop();
  EXPECT_EQ(held.text(), "");
  held.add("later", write);
  EXPECT_EQ(written, std::vector<std::string>{"later"});
}

TEST(GracePeriod, NothingIsDueBeforeTheProcessIsAskedToEnd) {
  const GracePeriod grace;
  EXPECT_EQ(grace.due(kStart + 1000h), Due::nothing);
  EXPECT_FALSE(grace.kill_at());
}

TEST(GracePeriod, TheEarliestEndCounts) {
  GracePeriod grace;
  EXPECT_TRUE(grace.begin(kStart, 60s));
  EXPECT_TRUE(grace.begin(kStart + 5s, 10s));
  EXPECT_FALSE(grace.begin(kStart + 6s, 10s)) << "it ends later";
  EXPECT_EQ(grace.due(kStart + 15s - 1ns), Due::nothing);
  EXPECT_EQ(grace.due(kStart + 15s), Due::kill);
}

TEST(GracePeriod, AKilledProcessIsGivenUpAfterTheLastTimeout) {
  GracePeriod grace(2s);
  grace.begin(kStart, 1s);
  EXPECT_FALSE(grace.killed());
  grace.kill(kStart + 3s);
  EXPECT_TRUE(grace.killed());
  EXPECT_FALSE(grace.begin(kStart + 3s, 0s)) << "SIGKILL was sent";
  EXPECT_FALSE(grace.kill_at());
  EXPECT_EQ(grace.due(kStart + 5s - 1ns), Due::nothing);
  EXPECT_EQ(grace.due(kStart + 5s), Due::give_up);
}

}  // namespace process_supervision_test
}  // namespace grapevine
