// Waits are reported where they are unusual, and not otherwise.
#include "actors/run/supervision/waits/wait_watch.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "messages/random.hpp"

namespace grapevine {
namespace wait_watch_test {

constexpr Duration kSecond = std::chrono::seconds(1);

// Four ranks of one process that take a step each second; then rank 2 stops.
class WaitWatchTest : public testing::Test {
 protected:
  void begin(WaitLimits limits = {}) {
    watch_ = WaitWatch(limits);
    watch_.begin({0, 0, 0, 0}, 4, now_);
  }
  void step_all(Duration length = kSecond) {
    now_ += length;
    for (Rank rank = 0; rank < 4; ++rank) watch_.on_step(rank, now_);
  }
  void train(int steps, Duration length = kSecond) {
    for (int i = 0; i < steps; ++i) step_all(length);
  }
  // A second of the stop: the watch looks, and asks; all but rank 2 answer.
  std::optional<WaitWatch::Finding> stalled_second(bool rank_2_answers = false) {
    now_ += kSecond;
    stalled_ += kSecond;
    auto finding = watch_.look(now_);
    if (const auto question = watch_.ask(now_)) {
      asked_ = true;
      for (Rank rank = 0; rank < 4; ++rank)
        if (rank != 2 || rank_2_answers) watch_.add(report_of(rank, *question), now_);
    }
    return finding;
  }
  WaitReport report_of(Rank rank, std::int64_t question) const {
    WaitReport report;
    report.question = question;
    report.rank = rank;
    if (rank == 2) {
      report.computing_ns = stalled_.count();
      report.worker = rank_2_does_;
    } else {
      report.waits = {{(rank + 3) % 4, PayloadKind::chunk, 8}};
      report.waiting_ns = stalled_.count();
    }
    return report;
  }

  WaitWatch watch_;
  Timestamp now_{100 * kSecond};
  Duration stalled_{0};
  bool asked_ = false;
  WorkerActivity rank_2_does_ = WorkerActivity::computing;
};

TEST_F(WaitWatchTest, AsksNobodyInAHealthyRun) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Rng rng(seed);
    WaitLimits limits;
    limits.first = 500 * kSecond;
    begin(limits);
    // Steps of 0.01 .. 100 s, of which each takes up to four times the shortest one.
    const auto shortest =
        std::chrono::milliseconds(static_cast<std::int64_t>(10 * std::pow(10.0, rng() % 5)));
    for (int step = 0; step < 300; ++step) {
      const Duration length = shortest + shortest * static_cast<std::int64_t>(rng() % 1000) / 333;
      for (int part = 1; part <= 10; ++part) {
        ASSERT_FALSE(watch_.look(now_ + length * part / 10));
        ASSERT_FALSE(watch_.ask(now_ + length * part / 10)) << "step " << step;
      }
      step_all(length);
    }
  }
}

TEST_F(WaitWatchTest, NamesTheRankThatDoesNotAnswerAfterTheFloor) {
  begin();
  train(100);
  std::optional<WaitWatch::Finding> finding;
  while (!finding && stalled_ < 60 * kSecond) finding = stalled_second();
  ASSERT_TRUE(finding);
  EXPECT_GT(stalled_, WaitLimits{}.floor);
  EXPECT_LE(stalled_, WaitLimits{}.floor + 4 * kSecond);
  EXPECT_NE(finding->text.find("from rank 2; rank 2 has not answered for"), std::string::npos)
      << finding->text;
  EXPECT_TRUE(finding->is_lost);
  EXPECT_FALSE(finding->ends);
}

// The limit grows with the pace: nothing is asked for five usual steps.
TEST_F(WaitWatchTest, WaitsForFiveUsualStepsOfASlowRun) {
  begin();
  train(10, 60 * kSecond);
  while (!asked_ && stalled_ < 1000 * kSecond) stalled_second(true);
  EXPECT_EQ(stalled_, 301 * kSecond);
}

// From five usual steps on, and never below the floor that is asked for.
TEST_F(WaitWatchTest, IsHeldUpOnceAStepIsUnusuallyLong) {
  for (const Duration step : {kSecond / 10, kSecond, 10 * kSecond}) {
    begin();
    EXPECT_FALSE(watch_.is_held_up(now_ + 299 * kSecond, kSecond));
    EXPECT_FALSE(watch_.pace_of_process(0));
    train(100, step);
    EXPECT_EQ(watch_.pace_of_process(0), step);
    EXPECT_EQ(watch_.pace_of_process(7), step);  // of the others: it has taken no step yet
    const Duration limit = std::max(Duration(2 * kSecond), Duration(WaitWatch::kFactor * step));
    EXPECT_FALSE(watch_.is_held_up(now_ + limit, 2 * kSecond));
    EXPECT_TRUE(watch_.is_held_up(now_ + limit + Duration(1), 2 * kSecond));
    EXPECT_TRUE(watch_.is_held_up(now_ + limit + Duration(1), 2 * kSecond, 1));
    EXPECT_FALSE(watch_.is_held_up(now_ + limit + Duration(1), 2 * kSecond, 0));
    for (Rank rank = 0; rank < 4; ++rank) watch_.finish(rank);
    EXPECT_FALSE(watch_.is_held_up(now_ + 1000 * kSecond, 2 * kSecond));
  }
}

// At 16, 32, 64, ... seconds: not at every look.
TEST_F(WaitWatchTest, TellsTheSameAgainAtGrowingIntervals) {
  begin();
  train(100);
  std::vector<Duration> told;
  while (stalled_ < 1000 * kSecond)
    if (stalled_second(true)) told.push_back(stalled_);
  ASSERT_GE(told.size(), 5u);
  ASSERT_LE(told.size(), 7u);
  for (std::size_t i = 1; i < told.size(); ++i) EXPECT_GE(told[i], 2 * told[i - 1]);
}

// Roots that change from look to look must not fill the output.
TEST_F(WaitWatchTest, TellsAnotherRootNoSoonerThanAfterAnotherFloor) {
  begin();
  train(100);
  Timestamp last{0};
  int told = 0;
  for (int second = 0; second < 200; ++second) {
    rank_2_does_ = second % 2 == 0 ? WorkerActivity::computing : WorkerActivity::reading;
    if (!stalled_second(true)) continue;
    if (told++ > 0) {
      EXPECT_GE(now_ - last, WaitLimits{}.floor);
    }
    last = now_;
  }
  EXPECT_GE(told, 3);
}

// Rank 2 takes its step: the next stop is told from its beginning.
TEST_F(WaitWatchTest, AStepEndsTheWait) {
  begin();
  train(100);
  while (!stalled_second(true)) ASSERT_LT(stalled_, 60 * kSecond);
  train(100);
  EXPECT_FALSE(watch_.look(now_));
  EXPECT_FALSE(watch_.ask(now_));
  stalled_ = Duration::zero();
  while (!stalled_second(true)) ASSERT_LT(stalled_, 60 * kSecond);
}

TEST_F(WaitWatchTest, AnInjectedDelayIsNoStall) {
  WaitLimits limits;
  limits.abort = 20 * kSecond;
  begin(limits);
  train(100);
  rank_2_does_ = WorkerActivity::delayed;
  while (stalled_ < 500 * kSecond) ASSERT_FALSE(stalled_second(true));
  EXPECT_TRUE(asked_);
}

TEST_F(WaitWatchTest, EndsTheRunAfterTheGivenTime) {
  for (const int seconds : {3, 15, 120}) {
    SCOPED_TRACE(seconds);
    for (const bool answers : {false, true}) {
      WaitLimits limits;
      limits.abort = seconds * kSecond;
      stalled_ = Duration::zero();
      begin(limits);
      train(100, std::chrono::milliseconds(10));
      std::optional<WaitWatch::Finding> finding;
      while (!(finding && finding->ends) && stalled_ < 300 * kSecond)
        if (auto found = stalled_second(answers)) finding = found;
      ASSERT_TRUE(finding && finding->ends);
      EXPECT_EQ(finding->is_lost, !answers);
      EXPECT_GE(stalled_, seconds * kSecond);
      EXPECT_LE(stalled_, seconds * kSecond + 4 * kSecond);
    }
  }
}

// A run with steps of a minute is not ended in its usual steps by a shorter limit.
TEST_F(WaitWatchTest, AnUsualStepEndsNoRun) {
  WaitLimits limits;
  limits.abort = 20 * kSecond;
  begin(limits);
  train(10, 60 * kSecond);
  while (stalled_ < 300 * kSecond) ASSERT_FALSE(stalled_second(true));
}

TEST_F(WaitWatchTest, TheFirstStepHasALimitOfItsOwn) {
  WaitLimits limits;
  limits.first = 90 * kSecond;
  limits.abort = 20 * kSecond;
  begin(limits);
  while (stalled_ < 90 * kSecond) ASSERT_FALSE(stalled_second(true));
  EXPECT_FALSE(asked_);
  while (!asked_) stalled_second(true);
  EXPECT_EQ(stalled_, 91 * kSecond);
}

TEST_F(WaitWatchTest, RanksThatAreLostOrFinishedAreNotMissed) {
  begin();
  train(100);
  watch_.remove(2);
  for (const Rank rank : {0, 1, 3}) watch_.finish(rank);
  EXPECT_FALSE(watch_.ask(now_ + 1000 * kSecond));
  watch_.restart(now_);  // they train again
  EXPECT_FALSE(watch_.ask(now_ + 10 * kSecond));
  EXPECT_TRUE(watch_.ask(now_ + 1000 * kSecond));
}

// As where the step of a group ends once it is known that one of its members is lost.
TEST_F(WaitWatchTest, StepsThatWaitForALostRankAreNotUsual) {
  begin();
  train(20);
  for (int loss = 1; loss <= 10; ++loss) {
    now_ += loss * 5 * kSecond;
    watch_.remove(2);
    for (const Rank rank : {0, 1, 3}) watch_.on_step(rank, now_);
    watch_.restart(now_);
    watch_.bring_back(2, 0, now_);
    train(5);
    EXPECT_EQ(watch_.pace_of_process(0), kSecond) << "loss " << loss;
  }
}

TEST_F(WaitWatchTest, TheFirstStepOfAJoiningRankIsNotUsual) {
  begin();
  train(20);
  for (int join = 1; join <= 10; ++join) {
    watch_.remove(2);
    watch_.restart(now_);
    watch_.bring_back(2, 0, now_);
    for (int i = 0; i < 30; ++i) {
      now_ += kSecond;
      for (const Rank rank : {0, 1, 3}) watch_.on_step(rank, now_);
    }
    train(5);
    EXPECT_EQ(watch_.pace_of_process(0), kSecond) << "join " << join;
  }
}

// Its own pace is not known yet: that of the others counts.
TEST_F(WaitWatchTest, TheSecondStepOfANewRankHasTheLimitOfTheOthers) {
  watch_.begin({0, 0, 0, -1}, 4, now_);
  watch_.remove(3);
  watch_.restart(now_);
  for (int i = 0; i < 20; ++i) {
    now_ += kSecond;
    for (const Rank rank : {0, 1, 2}) watch_.on_step(rank, now_);
  }
  watch_.bring_back(3, 1, now_);
  now_ += kSecond;
  for (Rank rank = 0; rank < 4; ++rank) watch_.on_step(rank, now_);
  for (const Rank rank : {0, 1, 2}) watch_.finish(rank);
  EXPECT_FALSE(watch_.is_held_up(now_ + 4 * kSecond, kSecond));
  EXPECT_TRUE(watch_.is_held_up(now_ + 6 * kSecond, kSecond));
}

// A live rank may pause again and again: that it is not lost for.
TEST_F(WaitWatchTest, PausesWithoutALossAreUsual) {
  begin();
  train(20);
  for (int pause = 0; pause < 3; ++pause) {
    step_all(20 * kSecond);
    train(30);
  }
  EXPECT_EQ(watch_.pace_of_process(0), 10 * kSecond);
}

TEST_F(WaitWatchTest, ARankThatReturnsIsWatchedAgain) {
  begin();
  train(100);
  watch_.remove(2);
  now_ += 1000 * kSecond;
  watch_.restart(now_);
  watch_.bring_back(2, 0, now_);
  EXPECT_FALSE(watch_.ask(now_ + 10 * kSecond));
  for (const Rank rank : {0, 1, 3}) watch_.finish(rank);
  EXPECT_TRUE(watch_.ask(now_ + 1000 * kSecond));
}

// Nobody else waits for it, as where ranks exchange with those that are there.
class WaitWatchOfAJoin : public WaitWatchTest {
 protected:
  void join(WaitLimits limits = {}) {
    watch_ = WaitWatch(limits);
    watch_.begin({0, 0, 0, 1}, 4, now_);
    watch_.remove(3);
    for (int i = 0; i < 100; ++i) second();
    watch_.restart(now_);
    watch_.bring_back(3, 1, now_);
  }
  void second() {
    now_ += kSecond;
    for (Rank rank = 0; rank < 3; ++rank) watch_.on_step(rank, now_);
  }
  enum class Others { train, wait };
  // A second in which the others train, or wait for rank 3, and that rank answers so.
  std::optional<WaitWatch::Finding> second_of(const WaitReport& answer,
                                              Others others = Others::train) {
    if (others == Others::train)
      second();
    else
      now_ += kSecond;
    auto finding = watch_.look(now_);
    if (const auto question = watch_.ask(now_))
      for (Rank rank = 0; rank < 4; ++rank) {
        WaitReport report = rank == 3 ? answer : WaitReport();
        if (rank != 3 && others == Others::wait) report.waits = {{3, PayloadKind::chunk, 8}};
        report.rank = rank;
        report.question = *question;
        watch_.add(report, now_);
      }
    return finding;
  }
  static WaitReport receives(std::int32_t part, Duration since) {
    WaitReport report;
    report.view = 2;
    report.waits = {{1, PayloadKind::state_chunk, -1, part, 100}};
    report.waiting_ns = since.count();
    return report;
  }
  static WaitReport computes(Duration since) {
    WaitReport report;
    report.worker = WorkerActivity::computing;
    report.computing_ns = since.count();
    return report;
  }
};

TEST_F(WaitWatchOfAJoin, ATransferThatTakesLongIsNamed) {
  join();
  int seconds = 0;
  std::optional<WaitWatch::Finding> finding;
  while (!finding && seconds < 100) finding = second_of(receives(1 + seconds++ / 2, kSecond));
  ASSERT_TRUE(finding) << "it has the pace of the others, not that of a start";
  EXPECT_GT(seconds, 15);
  EXPECT_LT(seconds, 20);
  EXPECT_NE(finding->text.find("rank 3 of process 1 receives the state of rank 1: "),
            std::string::npos)
      << finding->text;
  EXPECT_NE(finding->text.find(" of 100 parts, the last one "), std::string::npos);
}

TEST_F(WaitWatchOfAJoin, WhileItsPartsArriveItEndsNoRun) {
  WaitLimits limits;
  limits.abort = 20 * kSecond;
  join(limits);
  bool named = false;
  for (int seconds = 0; seconds < 200; ++seconds)
    if (const auto finding = second_of(receives(1 + seconds / 2, kSecond))) {
      named = true;
      ASSERT_FALSE(finding->ends) << finding->text;
    }
  EXPECT_TRUE(named);
  Duration since = kSecond;
  std::optional<WaitWatch::Finding> finding;
  while (!(finding && finding->ends) && since < 100 * kSecond)
    finding = second_of(receives(100, since += kSecond));
  ASSERT_TRUE(finding && finding->ends);
  EXPECT_GE(since, 20 * kSecond);
  EXPECT_LE(since, 24 * kSecond);
}

// The time of the transfer is none of the step that follows, whether the others wait for it or not.
TEST_F(WaitWatchOfAJoin, TheStepAfterALongTransferEndsNoRun) {
  WaitLimits limits;
  limits.abort = 20 * kSecond;
  limits.first = 90 * kSecond;
  for (const Others others : {Others::train, Others::wait}) {
    SCOPED_TRACE(others == Others::wait ? "the others wait" : "the others train");
    join(limits);
    for (int seconds = 0; seconds < 200; ++seconds) {
      const auto finding = second_of(receives(1 + seconds / 2, kSecond), others);
      ASSERT_FALSE(finding && finding->ends) << finding->text;
    }
    Duration since{0};
    while (since < 15 * kSecond) {
      const auto finding = second_of(computes(since += kSecond), others);
      ASSERT_FALSE(finding && (finding->ends || others == Others::train)) << finding->text;
    }
    std::optional<WaitWatch::Finding> finding;
    while (!(finding && finding->ends) && since < 200 * kSecond)
      finding = second_of(computes(since += kSecond), others);
    ASSERT_TRUE(finding && finding->ends);
    EXPECT_LE(since, (others == Others::wait ? 24 : 94) * kSecond);
  }
}

// Its first step has the time that first steps have.
TEST_F(WaitWatchOfAJoin, TheFirstStepOfAJoiningRankIsNoStall) {
  WaitLimits limits;
  limits.first = 90 * kSecond;
  join(limits);
  Duration since{0};
  while (since < 89 * kSecond) ASSERT_FALSE(second_of(computes(since += kSecond)));
  std::optional<WaitWatch::Finding> finding;
  while (!finding && since < 100 * kSecond) finding = second_of(computes(since += kSecond));
  EXPECT_TRUE(finding);
  watch_.on_step(3, now_);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(second_of(computes(kSecond)));
}

TEST_F(WaitWatchTest, TheLimitOfProgressFollowsThePace) {
  begin();
  EXPECT_EQ(watch_.limit(300 * kSecond, 3600 * kSecond), 3600 * kSecond);
  step_all();
  EXPECT_EQ(watch_.limit(300 * kSecond, 3600 * kSecond), 300 * kSecond);
  train(64, 600 * kSecond);
  EXPECT_EQ(watch_.limit(300 * kSecond, 3600 * kSecond), 1800 * kSecond);
}

}  // namespace wait_watch_test
}  // namespace grapevine
