// The figures of a running job: rates, silences, chains of waits, bounds.
#include "actors/run/control/run_board.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace grapevine {
namespace run_board_test {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Timestamp at(double seconds) { return from_seconds(seconds); }

RunState state_of(std::int32_t ranks) {
  RunState state;
  state.stage = "running";
  state.workers = ranks;
  for (Rank rank = 0; rank < ranks; ++rank) state.process_of.push_back(rank);
  state.peers.resize(static_cast<std::size_t>(ranks));
  return state;
}

StepReport step_of(Rank rank, Step step) {
  StepReport report;
  report.rank = rank;
  report.step = step;
  report.samples = 32;
  report.batch_time_s = 0.1;
  return report;
}

WaitReport answer_of(Rank rank, std::int64_t question) {
  WaitReport report;
  report.question = question;
  report.rank = rank;
  return report;
}

TEST(RunBoard, RatesAreThoseOfTheNewestStepsAndFallWhereARankStops) {
  RunBoard board(2);
  double now = 0;
  for (Step step = 0; step < 500; ++step) board.on_step(step_of(0, step), at(now += 1));
  for (Step step = 500; step < 700; ++step) board.on_step(step_of(0, step), at(now += 0.1));
  const auto rate = [&](double when) {
    return board.status(state_of(2), at(when)).ranks[0].steps_per_s;
  };
  EXPECT_NEAR(rate(now), 10, 1e-6);  // not the mean over all
  EXPECT_NEAR(board.status(state_of(2), at(now)).ranks[0].samples_per_s, 320, 1e-4);
  EXPECT_NEAR(rate(now + 0.15), 10, 1e-6);  // the next step is not late
  EXPECT_LT(rate(now + 60), 1);
  EXPECT_GT(rate(now + 60), rate(now + 600));
  EXPECT_TRUE(std::isnan(board.status(state_of(2), at(now)).ranks[1].steps_per_s));
}

TEST(RunBoard, NamesARankThatDoesNotAnswerAndThoseThatWaitForIt) {
  RunBoard board(3);
  for (Rank rank = 0; rank < 3; ++rank) board.on_step(step_of(rank, 4), at(10));
  const std::int64_t question = board.ask({0, 1, 2}, at(30));
  for (const Rank rank : {0, 1}) {
    WaitReport report = answer_of(rank, question);
    report.waits = {{2, PayloadKind::chunk, 5, 1, 4}};
    report.waiting_ns = 19'500'000'000;
    EXPECT_TRUE(board.add(report, at(30)));
  }
  EXPECT_FALSE(board.all_answered());
  const RunStatus status = board.status(state_of(3), at(30.7));
  EXPECT_TRUE(status.ranks[0].answers);
  EXPECT_FALSE(status.ranks[2].answers);
  EXPECT_NEAR(status.ranks[2].silent_s, 20.7, 1e-6);
  EXPECT_THAT(status.waits,
              ElementsAre(testing::AllOf(HasSubstr("from rank 2"),
                                         HasSubstr("rank 2 of process 2 has not answered for"))));
}

TEST(RunBoard, OnlyAnswersToTheNewestQuestionCount) {
  RunBoard board(2);
  const std::int64_t first = board.ask({0, 1}, at(1));
  const std::int64_t second = board.ask({0, 1}, at(2));
  EXPECT_NE(first, second);
  EXPECT_FALSE(board.add(answer_of(0, first), at(2)));
  EXPECT_TRUE(board.add(answer_of(0, second), at(2)));
  EXPECT_FALSE(board.add(answer_of(0, second), at(2)));  // once
  EXPECT_FALSE(board.all_answered());
  EXPECT_TRUE(board.add(answer_of(1, second), at(2)));
  EXPECT_TRUE(board.all_answered());
}

// Ranks wait for each other for milliseconds at any moment.
TEST(RunBoard, ShortWaitsHaveNoLine) {
  RunBoard board(2);
  const auto waits_after = [&](std::int64_t waiting_ns) {
    const std::int64_t question = board.ask({0, 1}, at(1));
    WaitReport report = answer_of(0, question);
    report.waits = {{1, PayloadKind::share, 5, -1, -1}};
    report.waiting_ns = waiting_ns;
    board.add(report, at(1));
    WaitReport other = answer_of(1, question);
    other.computing_ns = 5;
    other.worker = WorkerActivity::computing;
    board.add(other, at(1));
    return board.status(state_of(2), at(1)).waits;
  };
  EXPECT_THAT(waits_after(3'000'000), IsEmpty());
  EXPECT_THAT(waits_after(3'000'000'000),
              ElementsAre(HasSubstr("rank 1 of process 1 has computed")));
}

TEST(RunBoard, CountsWhatALostRankHadNotApplied) {
  RunBoard board(2);
  RankFigures figures;
  figures.rank = 1;
  figures.ledger.produced = 10;
  figures.ledger.committed = 7;
  board.on_figures(figures, at(1));
  board.on_lost(1);
  RunState state = state_of(2);
  state.lost = {1};
  const RunStatus status = board.status(state, at(2));
  EXPECT_EQ(status.destroyed, 3);
  EXPECT_TRUE(status.ranks[1].lost);
  EXPECT_FALSE(status.ranks[1].answers);
  board.on_returned(1);
  EXPECT_EQ(board.status(state_of(2), at(3)).ranks[1].ledger.produced, 0);
}

// What a rank had done before its return stays in the totals.
TEST(RunBoard, KeepsTheFormerLivesOfRanksThatReturn) {
  RunBoard board(2);
  RankFigures figures;
  figures.rank = 1;
  figures.ledger.produced = 10;
  figures.ledger.committed = 7;
  figures.ledger.bytes_sent = 500;
  board.on_figures(figures, at(1));
  board.on_lost(1);
  board.on_returned(1);
  RunState state = state_of(2);
  state.former.push_back({1, figures.ledger, 0});
  FormerLife server;  // of a wiring before: it applied what others had produced
  server.ledger.committed = 4;
  state.former.push_back(server);
  const RunStatus status = board.status(state, at(3));
  EXPECT_EQ(status.destroyed, 3);
  EXPECT_EQ(status.rested.produced, 10);
  EXPECT_EQ(status.rested.committed, 11);
  EXPECT_EQ(status.rested.bytes_sent, 500U);
  figures.ledger.produced = figures.ledger.committed = 2;
  board.on_figures(figures, at(4));
  EXPECT_EQ(board.status(state, at(4)).destroyed, 3);
  EXPECT_EQ(board.status(state, at(4)).ranks[1].ledger.produced, 2);
}

TEST(RunBoard, KnowsWhatWaitsToBeSentInEachProcess) {
  RunBoard board(3);
  RunState state = state_of(3);
  state.process_of = {0, 0, 1};
  const std::int64_t question = board.ask({0, 1, 2}, at(1));
  for (const Rank rank : {0, 1}) {
    WaitReport report = answer_of(rank, question);
    report.queued_bytes = 100 * (rank + 1);
    board.add(report, at(1));
  }
  EXPECT_THAT(board.status(state, at(1)).queued_bytes, ElementsAre(200, -1));
}

TEST(RunBoard, KeepsTheNewestEvents) {
  RunBoard board(1);
  for (int i = 0; i < 1000; ++i) board.add({"warning", std::to_string(i), 0});
  const RunStatus status = board.status(state_of(1), at(0));
  ASSERT_EQ(status.events.size(), RunBoard::kMostEvents);
  EXPECT_EQ(status.events.back().text, "999");
}

// Before all processes have joined nothing is known of the ranks.
TEST(RunBoard, AnswersBeforeTheRunBegins) {
  RunBoard board(4);
  RunState state = state_of(4);
  state.stage = "joining";
  state.peers.clear();
  const RunStatus status = board.status(state, at(1));
  EXPECT_EQ(status.stage, "joining");
  EXPECT_EQ(status.ranks.size(), 4U);
  EXPECT_THAT(status.waits, IsEmpty());
}

}  // namespace run_board_test
}  // namespace grapevine
