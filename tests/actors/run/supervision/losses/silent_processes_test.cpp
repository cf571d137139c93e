// A process is lost by its silence alone: after a limit that follows its pace, and never while it
// answers.
#include "actors/run/supervision/losses/silent_processes.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "messages/random.hpp"

namespace grapevine {
namespace silent_processes_test {

constexpr Duration kSecond = std::chrono::seconds(1);
constexpr Duration kTick = std::chrono::milliseconds(125);
constexpr Duration kLeast = 3 * kSecond, kMost = 60 * kSecond;

SilentProcesses::PaceOf pace(std::optional<Duration> usual) {
  return [usual](std::int32_t) { return usual; };
}

// The caller's loop: it looks, then it asks.
std::vector<SilentProcesses::Silence> look(SilentProcesses& processes, Timestamp now,
                                           std::optional<Duration> usual) {
  auto silent = processes.find(now, pace(usual));
  processes.ask(now);
  return silent;
}

// Words at random, with gaps of up to the limit.
TEST(SilentProcesses, OneThatAnswersIsNeverLost) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Rng rng(seed);
    const Duration usual = std::chrono::milliseconds(1 + rng() % 20000);
    const Duration limit = std::clamp(Duration(SilentProcesses::kFactor * usual), kLeast, kMost);
    SilentProcesses processes(kLeast, kMost);
    Timestamp now{0}, word{0};
    processes.hear(1, now);
    for (int i = 0; i < 2000; ++i) {
      now += kTick;
      if (now - word >= limit - kTick * (1 + rng() % 8)) processes.hear(1, word = now);
      EXPECT_TRUE(look(processes, now, usual).empty());
    }
  }
}

// The first look at which it counts as lost, for every pace.
TEST(SilentProcesses, ASilentOneIsLostAfterItsLimit) {
  const std::pair<std::optional<Duration>, Duration> limits[] = {
      {kSecond / 50, kLeast}, {kSecond * 3 / 5, kLeast}, {2 * kSecond, 10 * kSecond},
      {30 * kSecond, kMost},  {std::nullopt, kMost},
  };
  for (const auto& [usual, limit] : limits) {
    SCOPED_TRACE(limit.count());
    SilentProcesses processes(kLeast, kMost);
    processes.hear(1, Timestamp{0});
    processes.hear(2, Timestamp{0});
    Timestamp now{0};
    std::vector<SilentProcesses::Silence> silent;
    while (silent.empty() && now < 2 * kMost) {
      now += kTick;
      processes.hear(2, now);
      silent = look(processes, now, usual);
    }
    ASSERT_EQ(silent.size(), 1U);
    EXPECT_EQ(silent[0].process, 1);
    EXPECT_EQ(silent[0].length, limit);
    processes.remove(1);
    EXPECT_TRUE(look(processes, now + kTick, usual).empty());
  }
}

// The caller was suspended: for so long it has heard of nobody, and not asked either.
TEST(SilentProcesses, AQuestionIsOpenForAWhileFirst) {
  SilentProcesses processes(kLeast, kMost);
  processes.hear(1, Timestamp{0});
  const Timestamp awake = 1000 * kSecond;
  EXPECT_TRUE(look(processes, awake, kSecond / 10).empty());
  EXPECT_TRUE(look(processes, awake + kLeast / 2 - kTick, kSecond / 10).empty());
  EXPECT_EQ(look(processes, awake + kLeast / 2, kSecond / 10).size(), 1U);
}

// The caller was suspended while a question was open: the answer waits to be read.
TEST(SilentProcesses, AQuestionBeforeAGapDoesNotCount) {
  SilentProcesses processes(kLeast, kMost);
  processes.hear(1, Timestamp{0});
  processes.ask(kTick);
  const Timestamp awake = 1000 * kSecond;
  EXPECT_TRUE(processes.find(awake, pace(kSecond / 10)).empty());
  EXPECT_EQ(processes.ask(awake), std::vector<std::int32_t>{1});
  EXPECT_TRUE(look(processes, awake + kLeast / 2 - kTick, kSecond / 10).empty());
  EXPECT_EQ(look(processes, awake + kLeast / 2, kSecond / 10).size(), 1U);
}

// It has said nothing for long, as it had nothing to say.
TEST(SilentProcesses, HalfOfTheLimitIsThatOfAQuestion) {
  for (const Duration usual : {kSecond / 50, 2 * kSecond, 30 * kSecond}) {
    const Duration limit = std::clamp(Duration(SilentProcesses::kFactor * usual), kLeast, kMost);
    SilentProcesses processes(kLeast, kMost);
    processes.hear(1, Timestamp{0});
    const Timestamp asked = 1000 * kSecond;
    Timestamp now = asked;
    while (look(processes, now, usual).empty() && now < asked + kMost) now += kTick;
    EXPECT_GE(now, asked + limit / 2);
    EXPECT_LE(now, asked + limit / 2 + kTick);
  }
}

// A process is asked once, and again after each of its words, or once somebody waits anew.
TEST(SilentProcesses, AProcessHasOneOpenQuestion) {
  using Numbers = std::vector<std::int32_t>;
  SilentProcesses processes(kLeast, kMost);
  for (const std::int32_t process : {2, 1}) processes.hear(process, Timestamp{0});
  EXPECT_EQ(processes.ask(kSecond), (Numbers{1, 2}));
  EXPECT_EQ(processes.ask(2 * kSecond), Numbers{});
  processes.hear(2, 3 * kSecond);
  EXPECT_EQ(processes.ask(3 * kSecond), Numbers{2});
  EXPECT_EQ(processes.find(4 * kSecond, pace(kTick)).size(), 1U);
  processes.relax();
  EXPECT_TRUE(processes.find(4 * kSecond, pace(kTick)).empty());
  EXPECT_EQ(processes.ask(5 * kSecond), (Numbers{1, 2}));
}

TEST(SilentProcesses, TheLongestSilenceComesFirst) {
  SilentProcesses processes(kLeast, kMost);
  for (const std::int32_t process : {1, 2, 3}) processes.hear(process, kSecond * (process % 3));
  for (int second = 2; second < 10; ++second) processes.ask(second * kSecond);
  std::vector<std::int32_t> order;
  for (const auto& silence : processes.find(10 * kSecond, pace(kSecond / 10)))
    order.push_back(silence.process);
  EXPECT_EQ(order, (std::vector<std::int32_t>{3, 1, 2}));
}

TEST(SilentProcesses, WithoutALimitNobodyIsLost) {
  const SilentProcesses none;
  EXPECT_FALSE(none.watches());
}

}  // namespace silent_processes_test
}  // namespace grapevine
