#include "actors/run/supervision/view_change.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "algorithms/role.hpp"

namespace grapevine {
namespace view_change_test {

using Next = ViewChange::Next;

Next answer(ViewChange& change, std::int64_t round, Rank rank, std::int64_t sent,
            std::int64_t received) {
  return change.add(Traffic{change.number(), round, rank, sent, received});
}

Next close(ViewChange& change, Rank rank, std::int64_t operations, Step step, double epoch,
           std::int64_t taken = 0) {
  return change.add(ViewClosed{change.number(), rank, operations, step, epoch, 1, taken});
}

// Until every member has answered, twice, with the same balanced counts.
TEST(ViewChange, ClosesOnceNoMessageIsOnItsWay) {
  ViewChange change;
  EXPECT_FALSE(change.in_progress());
  change.begin({0, 2, 5});
  EXPECT_EQ(change.number(), 1);
  std::int64_t round = change.begin_round();
  EXPECT_EQ(answer(change, round, 0, 5, 3), Next::wait);
  EXPECT_EQ(answer(change, round, 2, 4, 4), Next::wait);
  EXPECT_EQ(answer(change, round, 5, 1, 2), Next::ask_later) << "one message is on its way";
  const auto all = [&](std::int64_t sent) {
    round = change.begin_round();
    EXPECT_EQ(answer(change, round, 0, sent, 3), Next::wait);
    EXPECT_EQ(answer(change, round, 2, 4, 4), Next::wait);
    return answer(change, round, 5, 1, sent - 2);
  };
  EXPECT_EQ(all(5), Next::ask_again) << "balanced once";
  EXPECT_EQ(all(6), Next::ask_again) << "a message was sent and received in between";
  EXPECT_EQ(all(6), Next::close);
  EXPECT_FALSE(change.draining());
}

TEST(ViewChange, IgnoresAnswersToEarlierQuestionsAndOfOthers) {
  ViewChange change;
  change.begin({0, 1});
  const std::int64_t old = change.begin_round();
  change.begin_round();
  EXPECT_EQ(answer(change, old, 0, 0, 0), Next::wait);
  EXPECT_EQ(answer(change, old, 1, 0, 0), Next::wait);
  EXPECT_EQ(answer(change, old + 1, 0, 0, 0), Next::wait);
  EXPECT_EQ(answer(change, old + 1, 3, 0, 0), Next::wait) << "no member";
  EXPECT_EQ(change.add(Traffic{7, old + 1, 1, 0, 0}), Next::wait) << "of another view";
  EXPECT_EQ(answer(change, old + 1, 1, 0, 0), Next::ask_again);
  EXPECT_EQ(close(change, 0, 0, 0, 0), Next::wait) << "nobody was asked to close";
}

TEST(ViewChange, KnowsWhichRanksHaveNotAnswered) {
  ViewChange change({{0, 1, 2}, {}});
  EXPECT_EQ(change.unanswered(), std::vector<Rank>{});
  change.begin({0, 1, 2});
  EXPECT_EQ(change.unanswered(), (std::vector<Rank>{0, 1, 2}));
  // Messages are on their way: an answer of an earlier round counts.
  for (int round = 0; round < 2; ++round) {
    const std::int64_t number = change.begin_round();
    for (const Rank rank : {0, 2})
      change.add(Traffic{change.number(), number, rank, rank == 0 ? 1 : 0, 0});
    EXPECT_EQ(change.unanswered(), std::vector<Rank>{1}) << round;
  }
  change.begin({0, 1, 2});
  EXPECT_EQ(change.unanswered(), (std::vector<Rank>{0, 1, 2})) << "a change that begins anew";
}

TEST(ViewChange, KnowsWhetherAMemberIsLost) {
  ViewChange change({{0, 1, 2}, {}});
  change.begin({0, 1, 2});
  EXPECT_FALSE(change.loses_members());
  change.begin({0, 2});
  EXPECT_TRUE(change.loses_members());
  change.begin({0, 2, 3});
  EXPECT_TRUE(change.loses_members()) << "another one comes";
  change.begin({0, 1, 2, 3});
  EXPECT_FALSE(change.loses_members());
}

const Horizon kHorizon = {100, 10};
const ViewChange::Models kReplicates = {true, false}, kOwn = {false, false}, kMass = {false, true};

// Of ranks 0 to 3 at the start.
ViewChange closing(std::vector<Rank> members) {
  ViewChange change({{0, 1, 2, 3}, {}});
  change.begin(members);
  for (int i = 0; i < 2; ++i) {
    const std::int64_t round = change.begin_round();
    for (const Rank rank : members) answer(change, round, rank, 0, 0);
  }
  return change;
}

TEST(ViewChange, ARankThatIsAheadGivesItsStateToThoseBehind) {
  ViewChange change = closing({0, 1, 3});
  EXPECT_EQ(close(change, 0, 7, 7, 0.7), Next::wait);
  EXPECT_EQ(close(change, 1, 8, 8, 0.8), Next::wait);
  EXPECT_EQ(close(change, 3, 7, 9, 0.9), Next::install);
  const InstallView view = change.conclude(kReplicates, kHorizon);
  EXPECT_EQ(view.view, 1);
  EXPECT_EQ(view.members, (std::vector<Rank>{0, 1, 3}));
  EXPECT_EQ(view.operations, 8);
  EXPECT_EQ(view.donor, 1);
  EXPECT_EQ(view.behind, (std::vector<Rank>{0, 3}));
  EXPECT_EQ(view.horizon.first_step, 8) << "steps of ranks that are behind do not count";
  EXPECT_EQ(view.horizon.first_epoch, 0.8);
  EXPECT_FALSE(change.in_progress());
}

TEST(ViewChange, WeightsAddUpToTheNumberOfMembers) {
  ViewChange change = closing({0, 1, 2});
  for (const Rank rank : {0, 1, 2})
    change.add(ViewClosed{change.number(), rank, 0, 0, 0, rank == 0 ? 0.5 : 1.0, 0});
  EXPECT_EQ(change.conclude(kOwn, kHorizon).scale, 1.2);
}

TEST(ViewChange, NobodyIsBehindWhereModelsAreEachRanksOwn) {
  ViewChange change = closing({0, 1});
  close(change, 0, 7, 7, 0.7);
  ASSERT_EQ(close(change, 1, 8, 6, 0.9), Next::install);
  const InstallView view = change.conclude(kOwn, kHorizon);
  EXPECT_TRUE(view.behind.empty());
  EXPECT_EQ(view.operations, 8);
  EXPECT_EQ(view.horizon.first_step, 7);
  EXPECT_EQ(view.horizon.first_epoch, 0.9);
}

// Where training ends after a number of samples, what the slow ranks have not done is left: each
// member ends at the same step, so that all together take what was planned.
TEST(ViewChange, SamplesThatSlowRanksHaveNotTakenAreLeft) {
  Horizon horizon{100, 10, true};
  for (const std::vector<Step>& steps :
       {std::vector<Step>{40, 10, 11, 40}, {40, 40, 40, 40}, {0, 0, 1, 0}, {99, 3, 100, 17}}) {
    ViewChange change = closing({0, 1, 2, 3});
    Step done = 0;
    for (Rank rank = 0; rank < 4; ++rank) {
      const Step step = steps[static_cast<std::size_t>(rank)];
      close(change, rank, 0, step, horizon.epoch_of(step));
      done += step;
    }
    const InstallView view = change.conclude(kOwn, horizon);
    const Step left = 4 * view.horizon.steps - done, most = view.horizon.first_step;
    EXPECT_GE(left, 400 - done);
    EXPECT_GT(view.horizon.steps, most) << "each has a step to take";
    EXPECT_LT(left, std::max<Step>(400, 4 * (most + 1)) - done + 4)
        << "no more than the last step is rounded up";
    EXPECT_EQ(view.horizon.first_step, *std::max_element(steps.begin(), steps.end()));
    const double mean = static_cast<double>(done) / 4;
    EXPECT_NEAR(view.horizon.epoch_at(mean), mean / 10, 1e-12);
    EXPECT_NEAR(change.epochs_done(), mean / 10, 1e-12);
    const Horizon together = view.horizon.from(view.horizon.first_step, change.epochs_done());
    const Step of_each = together.steps - together.first_step;
    EXPECT_GE(4 * of_each, 400 - done) << "where all begin with the same step as much is left";
    EXPECT_LT(4 * of_each, 400 - done + 4);
  }
}

// What a lost rank has taken, more than the others or less, counts for all.
TEST(ViewChange, WhatALostRankHasTakenIsTaken) {
  const Horizon horizon{100, 10, true};
  for (const Step of_lost : {1, 10, 30, 77}) {
    SCOPED_TRACE("lost after " + std::to_string(of_lost) + " steps");
    ViewChange change = closing({0, 1, 3});
    const std::vector<Step> steps = {40, 10, of_lost, 22};
    Step done = 0;
    std::map<Rank, Step> reported;
    for (Rank rank = 0; rank < 4; ++rank) {
      const Step step = steps[static_cast<std::size_t>(rank)];
      done += step;
      if (step > 0) reported[rank] = step - 1;  // the last one that it has finished
      if (rank != 2) close(change, rank, 0, step, horizon.epoch_of(step));
    }
    const InstallView view = change.conclude(kOwn, horizon, 0, reported);
    const Step left = 3 * view.horizon.steps - (done - of_lost);
    EXPECT_GE(left, 400 - done);
    EXPECT_LT(left, 400 - done + 3) << "no more than the last step is rounded up";
    EXPECT_NEAR(change.epochs_done(), horizon.epoch_of(done) / 4, 1e-12);
    // Views in a row, without a step between them, leave as much.
    Horizon now = view.horizon;
    for (int again = 0; again < 4; ++again) {
      change.begin({0, 1, 3});
      for (int i = 0; i < 2; ++i) {
        const std::int64_t round = change.begin_round();
        for (const Rank rank : {0, 1, 3}) answer(change, round, rank, 0, 0);
      }
      for (const Rank rank : {0, 1, 3}) {
        const Step step = steps[static_cast<std::size_t>(rank)];
        close(change, rank, 0, step, now.epoch_of(step));
      }
      now = change.conclude(kOwn, now, 0, reported).horizon;
      EXPECT_EQ(now.steps, view.horizon.steps);
    }
  }
}

// Of nodes the heads have the models: the loss of another rank of a node changes no mean.
TEST(ViewChange, ALostRankOfANodeTakesNothingThatItsHeadHas) {
  const Horizon horizon{100, 10, true};
  ViewChange::Models models = kOwn;
  models.node_size = 2;
  ViewChange change({{0, 1, 2, 3}, {0, 2}});
  change.begin({0, 1, 2});
  for (int i = 0; i < 2; ++i) {
    const std::int64_t round = change.begin_round();
    for (const Rank rank : {0, 1, 2}) answer(change, round, rank, 0, 0);
  }
  close(change, 0, 0, 40, 4);
  close(change, 1, Role::kFollows, 40, 4);
  close(change, 2, 0, 20, 2);
  change.conclude(models, horizon, 0, {{3, 77}});
  EXPECT_EQ(change.epochs_done(), 3);
}

// By a clock that counts the gradients of all ranks: a rank's last ones it alone may know.
TEST(ViewChange, GradientsThatOneRankKnowsAreCounted) {
  ViewChange::Models pairs = kOwn;
  pairs.plans_each_rank = false;
  ViewChange change = closing({0, 1, 2});
  const auto close_pair = [&](Rank rank, std::int64_t taken, std::int64_t known,
                              std::int64_t of_lost) {
    ViewClosed closed{change.number(), rank, 0, taken, kHorizon.epoch_after(known, 4), 1, taken};
    closed.counts = {known, of_lost};
    return change.add(closed);
  };
  close_pair(0, 12, 30, 2);
  close_pair(1, 15, 36, 4);
  EXPECT_EQ(close_pair(2, 20, 33, 3), Next::install);
  EXPECT_TRUE(change.closed_counts(pairs).empty());
  const InstallView view = change.conclude(pairs, kHorizon);
  EXPECT_DOUBLE_EQ(view.horizon.first_epoch, kHorizon.epoch_after(12 + 15 + 20 + 4, 4));
}

// Three of four ranks share what the four have left: ten epochs of 40 batches.
TEST(ViewChange, TheRestOfTheBatchesIsSharedByTheMembers) {
  ViewChange change = closing({0, 1, 3});
  for (const Rank rank : {0, 1, 3}) close(change, rank, 20, 20, 2.0, 20);
  const InstallView view = change.conclude(kReplicates, kHorizon);
  EXPECT_EQ(view.first_batch, 80);
  EXPECT_DOUBLE_EQ(view.horizon.steps_per_epoch, 40.0 / 3);
  EXPECT_EQ(view.horizon.first_step, 20);
  change.begin({0, 1, 2, 3});
  for (int i = 0; i < 2; ++i) {
    const std::int64_t round = change.begin_round();
    for (const Rank rank : {0, 1, 2, 3}) answer(change, round, rank, 2, 2);
  }
  for (const Rank rank : {0, 1, 3}) close(change, rank, 30, 30, 2.75, rank == 1 ? 10 : 9);
  EXPECT_EQ(close(change, 2, ViewClosed::kJoins, 0, 0), Next::install);
  const InstallView next = change.conclude(kReplicates, view.horizon);
  EXPECT_EQ(next.first_batch, 80 + 10 * 3);
  EXPECT_DOUBLE_EQ(next.horizon.steps_per_epoch, 10);
}

// Nodes {0, 1} and {2, 3}, of which rank 2 is lost: rank 3 joins anew, and brings a weight or takes
// a part of one. Rank 1 exchanges nothing.
TEST(ViewChange, ANodeWithoutItsHeadJoinsAnew) {
  for (ViewChange::Models models : {kReplicates, kOwn, kMass}) {
    models.node_size = 2;
    ViewChange change({{0, 1, 2, 3}, {0, 2}});
    change.begin({0, 1, 3});
    for (int i = 0; i < 2; ++i) {
      const std::int64_t round = change.begin_round();
      for (const Rank rank : {0, 1, 3}) answer(change, round, rank, 0, 0);
    }
    change.add(ViewClosed{change.number(), 0, 7, 7, 0.7, 0.5, 0});
    close(change, 1, Role::kFollows, 8, 0.8);
    EXPECT_EQ(close(change, 3, Role::kFollows, 9, 0.9), Next::install);
    ASSERT_TRUE(change.has_donor());
    const InstallView view = change.conclude(models, kHorizon);
    EXPECT_EQ(view.donor, 0);
    EXPECT_EQ(view.joining, std::vector<Rank>{3});
    EXPECT_TRUE(view.behind.empty());
    EXPECT_EQ(view.heads, (std::vector<Rank>{0, 3}));
    EXPECT_EQ(view.horizon.first_step, 7) << "of the rank that gives its state";
    EXPECT_EQ(view.scale, models.keeps_mass ? 4 : 2) << "of the heads' weights alone";
  }
}

// The only head is lost before another one has its state.
TEST(ViewChange, NobodyGivesAStateWhereNoHeadIsLeft) {
  ViewChange change({{0, 1, 2, 3}, {0, 2}});
  change.begin({1, 3});
  for (int i = 0; i < 2; ++i) {
    const std::int64_t round = change.begin_round();
    for (const Rank rank : {1, 3}) answer(change, round, rank, 0, 0);
  }
  close(change, 1, Role::kFollows, 8, 0.8);
  EXPECT_EQ(close(change, 3, Role::kFollows, 9, 0.9), Next::install);
  EXPECT_FALSE(change.has_donor());
}

TEST(ViewChange, ARankThatJoinsTakesTheStateOfAnother) {
  for (const ViewChange::Models& models : {kOwn, kMass}) {
    ViewChange change = closing({0, 1, 2});
    close(change, 0, ViewClosed::kJoins, 0, 0);
    change.add(ViewClosed{change.number(), 1, 0, 5, 0.5, 0.5, 0});
    change.add(ViewClosed{change.number(), 2, 0, 6, 0.6, 1.5, 0});
    const InstallView view = change.conclude(models, kHorizon);
    EXPECT_EQ(view.joining, std::vector<Rank>{0}) << "also one of the view before";
    EXPECT_TRUE(view.behind.empty());
    EXPECT_EQ(view.donor, 1);
    EXPECT_EQ(view.horizon.first_step, 6);
    // With a mass that all share, three weights are to add up to 3; else a copy brings one of 1.
    EXPECT_EQ(view.scale, models.keeps_mass ? 1.5 : 1.0);
  }
}

// A rank that joins has it from its first step on, or once it has closed with it; a rank that
// exchanges nothing never has.
TEST(ViewChange, KnowsWhoHasAStateBeforeAllHaveClosed) {
  ViewChange change = closing({0, 1, 2});
  EXPECT_TRUE(change.has_donor({0, 1})) << "a member of the start";
  EXPECT_FALSE(change.has_donor({0, 1, 2}));
  close(change, 0, 5, 5, 0.5);
  close(change, 1, ViewClosed::kJoins, 0, 0);
  EXPECT_FALSE(change.has_donor({0, 2}));
  close(change, 2, 5, 5, 0.5);
  change.conclude(kReplicates, kHorizon);
  EXPECT_FALSE(change.has_donor({0, 2})) << "its state is on its way";
  change.begin({0, 1, 2, 3});
  EXPECT_FALSE(change.has_donor({0, 1, 2})) << "one that arrives";
  ViewChange steps = change, closes = change;
  steps.on_step(1);
  EXPECT_TRUE(steps.has_donor({0, 2}));
  for (int i = 0; i < 2; ++i) {
    const std::int64_t round = closes.begin_round();
    for (const Rank rank : {0, 1, 2, 3}) answer(closes, round, rank, 0, 0);
  }
  close(closes, 1, 5, 5, 0.5);
  closes.begin({0, 1, 2});
  EXPECT_TRUE(closes.has_donor({0, 2})) << "also where that change began anew";
  ViewChange nodes({{0, 1, 2, 3}, {0, 2}});
  EXPECT_TRUE(nodes.has_donor({0}));
  EXPECT_FALSE(nodes.has_donor({0, 2}));
}

// A member that is lost while members change.
TEST(ViewChange, BeginsAnewWithoutALostMember) {
  ViewChange change = closing({0, 1, 2});
  close(change, 0, 3, 3, 0);
  change.begin({0, 1});
  EXPECT_EQ(change.number(), 2);
  EXPECT_TRUE(change.draining());
  EXPECT_EQ(change.add(ViewClosed{1, 1, 3, 3, 0, 1, 0}), Next::wait) << "of the view before";
  for (int i = 0; i < 2; ++i) {
    const std::int64_t round = change.begin_round();
    for (const Rank rank : {0, 1}) answer(change, round, rank, 2, 2);
  }
  EXPECT_EQ(close(change, 0, 3, 3, 0), Next::wait);
  EXPECT_EQ(close(change, 1, 3, 3, 0), Next::install);
}

// Servers answer as all others, and are neither members nor donors.
TEST(ViewChange, ServersTakePartWithoutBeingMembers) {
  ViewChange change({{0, 1, 2}, {}, {3, 4}});
  change.begin({0, 2});
  EXPECT_EQ(change.participants(), (std::vector<Rank>{0, 2, 3, 4}));
  Next next = Next::wait;
  for (int round = 0; round < 2; ++round) {
    const std::int64_t number = change.begin_round();
    for (const Rank rank : {0, 2, 3}) EXPECT_EQ(answer(change, number, rank, 5, 5), Next::wait);
    EXPECT_EQ(answer(change, number, 1, 5, 5), Next::wait) << "a lost rank";
    next = answer(change, number, 4, 5, 5);
  }
  EXPECT_EQ(next, Next::close);
  EXPECT_EQ(close(change, 3, 9, 90, 9.0, 900), Next::wait);
  EXPECT_EQ(close(change, 2, 0, 8, 0.8, 8), Next::wait);
  EXPECT_EQ(close(change, 0, 0, 7, 0.7, 7), Next::wait);
  EXPECT_EQ(close(change, 4, 9, 90, 9.0, 900), Next::install);
  const InstallView view = change.conclude(kOwn, kHorizon);
  EXPECT_EQ(view.members, (std::vector<Rank>{0, 2}));
  EXPECT_EQ(view.donor, 0);
  EXPECT_EQ(view.scale, 1);
  EXPECT_EQ(view.horizon.first_step, 8);
  EXPECT_EQ(view.first_batch, 8 * 3) << "of the ranks that train";
}

// Of the view before and of the one to come, until that one is there; the view begins at the clock
// of the server that was furthest on where the wiring changes.
TEST(ViewChange, ServersComeAndGo) {
  ViewChange change({{0, 1}, {}, {2, 3}});
  change.begin({0, 1}, {2});
  EXPECT_EQ(change.participants(), (std::vector<Rank>{0, 1, 2, 3})) << "one goes";
  change.set_servers({});
  change.begin({0, 1}, {2, 3, 4});
  EXPECT_EQ(change.participants(), (std::vector<Rank>{0, 1, 2, 3, 4})) << "three come";
  for (int round = 0; round < 2; ++round) {
    const std::int64_t number = change.begin_round();
    for (const Rank rank : {0, 1, 2, 3, 4}) answer(change, number, rank, 5, 5);
  }
  for (const Rank server : {2, 4}) close(change, server, ViewClosed::kJoins, 0, 0, 0);
  close(change, 3, 0, 90, 9.0, 900);
  close(change, 0, 0, 7, 0.7, 7);
  EXPECT_EQ(close(change, 1, 0, 8, 0.8, 8), Next::install);
  EXPECT_EQ(change.servers_epoch(), 9);
  EXPECT_EQ(change.new_servers(), (std::vector<Rank>{2, 4})) << "which have no slice yet";
  const InstallView view = change.conclude(kOwn, kHorizon, 9);
  EXPECT_EQ(view.members, (std::vector<Rank>{0, 1}));
  EXPECT_TRUE(view.joining.empty());
  EXPECT_EQ(view.horizon.first_epoch, 9);
  change.set_servers({2, 3, 4});
  change.begin({0, 1});
  EXPECT_EQ(change.participants(), (std::vector<Rank>{0, 1, 2, 3, 4}));
}

}  // namespace view_change_test
}  // namespace grapevine
