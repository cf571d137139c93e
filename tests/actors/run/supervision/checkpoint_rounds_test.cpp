// Each checkpoint has one state of every rank, of its own cut.
#include "actors/run/supervision/checkpoint_rounds.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "messages/random.hpp"

namespace grapevine {
namespace checkpoint_rounds_test {

constexpr std::int32_t kRanks = 4;
constexpr Timestamp kStart{0};

CheckpointPlan every(double epochs) { return {true, epochs, 100, 0}; }

RankSnapshot snapshot_of(std::int64_t cut, Rank rank, Step step) { return {cut, rank, step, {}}; }

// Under cuts that are given up and states that come late, twice, or for cuts that never were.
TEST(CheckpointRounds, WriteOneStateOfEachRankOfOneCut) {
  const RunMembers members(kRanks, 1);
  Rng rng(5);
  CheckpointRounds rounds(every(1));
  std::int64_t cut = 0, written = 0, cancelled = 0;
  for (int event = 0; event < 5000; ++event) {
    if (rounds.idle()) {
      const std::int64_t before = cut;
      cut = rounds.begin("", kStart);
      ASSERT_GT(cut, before);
    }
    if (rounds.cutting() && rng() % 40 == 0) {
      ++cancelled;
      rounds.cancel();
      continue;
    }
    if (rounds.writing() && rng() % 4 == 0) rounds.end_writing();
    RankSnapshot snapshot =
        snapshot_of(cut - static_cast<std::int64_t>(rng() % 2), static_cast<Rank>(rng() % kRanks),
                    static_cast<Step>(rng() % 50));
    const bool was_cutting = rounds.cutting();
    const auto write = rounds.add(snapshot, members, kStart);
    if (!write) continue;
    ++written;
    EXPECT_TRUE(was_cutting);
    EXPECT_TRUE(rounds.writing());
    EXPECT_EQ(write->id, cut);
    std::set<Rank> ranks;
    Step slowest = 50;
    for (const RankSnapshot& one : write->ranks) {
      EXPECT_EQ(one.id, cut);
      EXPECT_TRUE(ranks.insert(one.rank).second) << "twice: rank " << one.rank;
      if (one.rank < members.workers()) slowest = std::min(slowest, one.step);
    }
    EXPECT_EQ(ranks.size(), static_cast<std::size_t>(kRanks));
    EXPECT_EQ(write->name,
              (slowest < 10 ? "step-0000000" : "step-000000") + std::to_string(slowest));
  }
  EXPECT_GT(written, 50);
  EXPECT_GT(cancelled, 50);
}

// In small steps, each multiple is due once, in its order; a long step skips those in between.
TEST(CheckpointRounds, AreDueOnceForEachMultiple) {
  for (const double interval : {0.25, 1.0, 2.0}) {
    CheckpointRounds rounds(every(interval));
    std::int64_t due = 0;
    for (int step = 1; step < 200; ++step) {
      const auto name = rounds.due(0.1 * step);
      if (!name) continue;
      ++due;
      EXPECT_FALSE(rounds.due(0.1 * step)) << "twice at step " << step;
      EXPECT_GE(0.1 * step + 1e-6, interval * static_cast<double>(due));
      EXPECT_LT(0.1 * step, interval * static_cast<double>(due) + 0.1 + 1e-6);
    }
    EXPECT_EQ(due, static_cast<std::int64_t>(19.9 / interval));
  }
  CheckpointRounds rounds(every(1));
  EXPECT_EQ(rounds.due(3.5), "epoch-0003");
  EXPECT_EQ(rounds.due(3.9), std::nullopt);
}

TEST(CheckpointRounds, AreNotDueAtTheEndOrBesideAnother) {
  CheckpointRounds rounds(every(1));
  EXPECT_FALSE(rounds.due(100));  // the last checkpoint is of that
  rounds.begin("", kStart);
  EXPECT_FALSE(rounds.due(1));
  rounds.cancel();
  EXPECT_TRUE(rounds.due(1));
  rounds.disable();
  EXPECT_FALSE(rounds.due(2));
  EXPECT_FALSE(rounds.final_due());
}

// Those at the end of an epoch, which its validation judges, and no others.
TEST(CheckpointRounds, NameEpochsWhereTheyEnd) {
  const auto names = [](double interval, double epochs_of_a_step) {
    CheckpointRounds rounds(every(interval));
    std::vector<std::string> all;
    for (int step = 1; epochs_of_a_step * step < 4.9; ++step)
      if (auto name = rounds.due(epochs_of_a_step * step)) all.push_back(*name);
    return all;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names(0.5, 0.1),
            (Names{"", "epoch-0001", "", "epoch-0002", "", "epoch-0003", "", "epoch-0004", ""}));
  EXPECT_EQ(names(1.5, 0.1), (Names{"", "epoch-0003", ""}));
  EXPECT_EQ(names(0.3, 0.1).at(9), "epoch-0003");
  EXPECT_EQ(names(2, 0.1), (Names{"epoch-0002", "epoch-0004"}));
  // The one of the end of an epoch comes late where the one before took long.
  CheckpointRounds late(every(0.25));
  EXPECT_EQ(late.due(0.8), "");
  EXPECT_EQ(late.due(1.3), "epoch-0001");
  EXPECT_EQ(late.due(1.5), "");
}

// A resumed run does not repeat the checkpoint that it resumed from.
TEST(CheckpointRounds, ContinueBehindTheCheckpointOfAResumedRun) {
  CheckpointPlan plan = every(2);
  plan.resumed_least = 4;
  CheckpointRounds rounds(plan);
  EXPECT_FALSE(rounds.due(5.9));
  EXPECT_EQ(rounds.due(6), "epoch-0006");
}

// Its timeout counts from the newest state, not from the beginning.
TEST(CheckpointRounds, AreOverdueWithoutNews) {
  const RunMembers members(2);
  const Duration timeout = std::chrono::seconds(60);
  CheckpointRounds rounds(every(1));
  EXPECT_FALSE(rounds.overdue(10 * timeout, timeout));
  const std::int64_t cut = rounds.begin("", kStart);
  RankSnapshot first = snapshot_of(cut, 1, 0);
  EXPECT_FALSE(rounds.overdue(timeout, timeout));
  EXPECT_TRUE(rounds.overdue(timeout + Duration(1), timeout));
  EXPECT_FALSE(rounds.add(first, members, timeout));
  EXPECT_EQ(rounds.missing(members), "rank 0");
  EXPECT_FALSE(rounds.overdue(2 * timeout, timeout));
  EXPECT_TRUE(rounds.overdue(2 * timeout + Duration(1), timeout));
}

// Those that are given up do not count: they say nothing about how long a state takes.
TEST(CheckpointRounds, KnowTheLongestCut) {
  const RunMembers members(2);
  const Duration second = std::chrono::seconds(1);
  CheckpointRounds rounds(every(1));
  Timestamp now = kStart;
  const auto cut = [&](int seconds, bool complete) {
    const std::int64_t id = rounds.begin("", now);
    for (const Rank rank : {0, 1}) {
      now += seconds * second;
      RankSnapshot snapshot = snapshot_of(id, rank, 0);
      if (rank == 0 || complete) rounds.add(snapshot, members, now);
    }
    rounds.cancel();
    rounds.end_writing();
  };
  cut(9, false);
  EXPECT_EQ(rounds.longest_cut(), std::nullopt);
  cut(1, true);
  EXPECT_EQ(rounds.longest_cut(), 2 * second);
  cut(3, true);
  cut(2, true);
  EXPECT_EQ(rounds.longest_cut(), 6 * second);
}

}  // namespace checkpoint_rounds_test
}  // namespace grapevine
