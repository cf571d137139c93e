// The batches of training while members change: what each rank has taken, what is left out and what
// lost ranks may have taken besides. Random sequences of views; a failure names its seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/run/supervision/view_change.hpp"
#include "algorithms/role.hpp"
#include "messages/gradient.hpp"
#include "messages/random.hpp"

namespace grapevine {
namespace dealt_batches_test {

constexpr std::int64_t kMostTaken = 20;  // by a rank in one view
const Horizon kHorizon = {100'000, 10};

struct Member {
  Rank rank = 0;
  Deal deal;
  std::int64_t taken = 0;  // in this view
  std::int64_t known = 0;  // of these, in the checkpoint that the run has been resumed from
  bool lost = false;       // there, without a state

  std::vector<std::int64_t> batches() const {
    std::vector<std::int64_t> all;
    for (std::int64_t i = 0; i < taken; ++i) all.push_back(deal.batch_of(deal.first_step + i));
    return all;
  }
};

std::vector<Member> members_of(const std::vector<Rank>& ranks, std::int64_t first_batch, Rng& rng) {
  std::vector<Member> members;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    Member member;
    member.rank = ranks[i];
    member.deal = {static_cast<std::int32_t>(ranks.size()), static_cast<std::int32_t>(i),
                   first_batch, static_cast<Step>(rng() % 1000)};
    member.taken = static_cast<std::int64_t>(rng() % (kMostTaken + 1));
    members.push_back(member);
  }
  return members;
}

// Those that remain, at least one with a state, and those that come.
std::vector<Rank> next_ranks(const std::vector<Member>& members, Rng& rng) {
  std::vector<Rank> ranks;
  for (const Member& member : members)
    if (!member.lost) ranks.push_back(member.rank);
  std::vector<Rank> next = {ranks[rng() % ranks.size()]};
  for (Rank rank = 0; rank < 6; ++rank)
    if (rank != next.front() && rng() % 2 == 0) next.push_back(rank);
  std::sort(next.begin(), next.end());
  return next;
}

// The members of the view to come close; the first batch that they deal.
std::int64_t change_members(ViewChange& change, const std::vector<Member>& before,
                            const std::vector<Rank>& next) {
  change.begin(next);
  for (int i = 0; i < 2; ++i) {
    const std::int64_t round = change.begin_round();
    for (const Rank rank : next) change.add(Traffic{change.number(), round, rank, 0, 0});
  }
  for (const Rank rank : next) {
    const auto own = std::find_if(before.begin(), before.end(),
                                  [&](const Member& member) { return member.rank == rank; });
    ViewClosed closed{change.number(), rank, ViewClosed::kJoins};
    if (own != before.end() && !own->lost) closed.operations = 1, closed.taken = own->taken;
    change.add(closed);
  }
  ViewChange::Models own_models;
  return change.conclude(own_models, kHorizon).first_batch;
}

TEST(DealtBatches, AreTakenOnceOrCountedAsLeftOut) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    std::vector<Rank> ranks = {0, 1, 2, 3};
    ViewChange change({ranks, {}});
    std::set<std::int64_t> taken;  // by ranks that remained until the end of the view
    std::int64_t first = 0;
    for (int view = 0; view < 8; ++view) {
      const std::vector<Member> members = members_of(ranks, first, rng);
      const std::vector<Rank> next = next_ranks(members, rng);
      const std::int64_t end = change_members(change, members, next);
      std::int64_t most = 0, by_remaining = 0, lost = 0;
      for (const Member& member : members)
        if (std::binary_search(next.begin(), next.end(), member.rank))
          most = std::max(most, member.taken);
      std::int64_t left_out = 0;
      for (const Member& member : members) {
        if (!std::binary_search(next.begin(), next.end(), member.rank)) {
          ++lost;
          continue;
        }
        left_out += most - member.taken;
        by_remaining += member.taken;
        for (const std::int64_t batch : member.batches()) {
          EXPECT_TRUE(batch >= first && batch < end) << "batch " << batch;
          EXPECT_TRUE(taken.insert(batch).second) << "batch " << batch << " is taken twice";
        }
      }
      // Of a lost rank: those up to the boundary are dealt to no other, those behind it are.
      for (const Member& member : members) {
        if (std::binary_search(next.begin(), next.end(), member.rank)) continue;
        for (const std::int64_t batch : member.batches())
          EXPECT_EQ(batch < end, (batch - first) / member.deal.ranks < most) << batch;
      }
      EXPECT_EQ(end - first, by_remaining + left_out + lost * most) << "view " << view;
      first = end;
      ranks = next;
    }
  }
}

// How often each batch was taken, as far as is known.
using Times = std::map<std::int64_t, std::int64_t>;

void add_taken(Times& times, const Member& member, std::int64_t known) {
  for (std::int64_t step = 0; step < known; ++step)
    ++times[member.deal.batch_of(member.deal.first_step + step)];
}

// Of the runs, each batch by its number from the start of the run.
std::vector<std::int64_t> named(const std::vector<BatchTally::Named>& runs,
                                const BatchEpochs& epochs) {
  std::vector<std::int64_t> batches;
  for (const auto& [epoch, run] : runs) {
    EXPECT_LE(run.first + (run.count - 1) * run.stride, epochs.per_epoch - 1) << "of one epoch";
    for (std::int64_t i = 0; i < run.count; ++i)
      batches.push_back(epoch * epochs.per_epoch + run.first + i * run.stride - epochs.before);
  }
  return batches;
}

constexpr BatchEpochs kEpochs = {97, 7};

// Views in a row, and the end of training, of a run that is resumed amid some of the views. Where
// the batches of training are planned, views may end behind the last one. Of a rank that is lost,
// steps of which it has reported some; what it reports of another view counts for nothing.
struct Listed {
  explicit Listed(std::uint64_t seed) : rng(seed) {
    if (seed % 3 > 0) planned = static_cast<std::int64_t>(rng() % 900);
    change = ViewChange({ranks, {}, {}}, 0, 0, {}, planned);
    for (int view = 0; view < 8; ++view) {
      std::vector<Member> members = members_of(ranks, first, rng);
      if (rng() % 3 == 0) resume(members);
      const std::vector<Rank> next = next_ranks(members, rng);
      for (const Member& member : members)
        if (!member.lost) report(member, std::binary_search(next.begin(), next.end(), member.rank));
      first = change_members(change, members, next);
      ranks = next;
    }
    end = first;
    for (const Member& member : members_of(ranks, first, rng)) {
      change.on_taken(member.rank, change.number(), member.taken);
      add_taken(times, member, member.taken);
      end = std::max(end, first + member.taken * member.deal.ranks);
    }
    end = planned.value_or(end);
    change.end_training();
    tally.merge(change.batches().tally(kEpochs));
  }

  void report(const Member& member, bool remains) {
    const auto more = static_cast<std::uint64_t>(member.taken - member.known);
    const std::int64_t known =
        remains ? member.taken : member.known + static_cast<std::int64_t>(rng() % (more + 1));
    change.on_taken(member.rank, change.number(), known);
    change.on_taken(member.rank, change.number() - 1, kMostTaken + 1);
    change.on_taken(member.rank, change.number(), known / 2);
    add_taken(times, member, known);
  }

  // From a checkpoint of this view, amid or at the end of training. Some of its members are lost
  // there; the others continue.
  void resume(std::vector<Member>& members) {
    std::set<Rank> lost;
    for (Member& member : members) {
      if (rng() % 3 > 0 || lost.size() + 1 == members.size()) continue;
      member.lost = lost.insert(member.rank).second;
      change.on_taken(member.rank, change.number(), member.taken);
      add_taken(times, member, member.taken);
    }
    tally.merge(change.batches().tally(kEpochs));
    if (rng() % 2 == 0) change.end_training();
    const BatchesOfLost saved = change.batches_of(lost);
    change = ViewChange({ranks, {}, {}}, change.number(), first, saved.ahead, planned);
    for (const auto& [rank, taken] : saved.taken) change.on_taken(rank, change.number(), taken);
    for (Member& member : members) {
      if (member.lost) continue;
      change.on_taken(member.rank, change.number(), member.known = member.taken);
      member.taken += static_cast<std::int64_t>(rng() % kMostTaken);
    }
    lost_at_resume += lost.size();
    ahead_at_resume += saved.ahead.size();
  }

  Rng rng;
  std::vector<Rank> ranks = {0, 1, 2, 3};
  std::optional<std::int64_t> planned;
  ViewChange change;
  BatchTally tally;
  Times times;
  std::int64_t first = 0;
  std::int64_t end = 0;  // the batch behind the last one of training
  std::size_t lost_at_resume = 0, ahead_at_resume = 0;
};

TEST(DealtBatches, EachOneOfTrainingIsTakenOnceOrListed) {
  int whole = 0;
  std::size_t lost_at_resume = 0, ahead_at_resume = 0;
  std::int64_t left_out = 0, again = 0;
  int behind_the_end = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Listed run(seed);
    behind_the_end += run.planned && run.first > *run.planned;
    const BatchTally& tally = run.tally;
    std::int64_t missing = 0, twice = 0;
    for (std::int64_t batch = 0; batch < run.end; ++batch) missing += run.times.count(batch) == 0;
    for (const auto& [batch, count] : run.times)
      if (!run.planned || batch < *run.planned) twice += count - 1;
    EXPECT_EQ(tally.left_out, missing);
    EXPECT_EQ(tally.again, twice);
    const auto names = named(tally.left_out_runs, kEpochs);
    for (const std::int64_t batch : names)
      EXPECT_TRUE(batch < run.end && run.times.count(batch) == 0) << batch;
    for (const std::int64_t batch : named(tally.again_runs, kEpochs))
      EXPECT_GT(run.times[batch], 1) << batch;
    EXPECT_EQ(std::set<std::int64_t>(names.begin(), names.end()).size(), names.size());
    EXPECT_LE(tally.left_out_runs.size(), BatchTally::kMostNamed);
    EXPECT_TRUE(tally.left_out_runs.size() == BatchTally::kMostNamed ||
                static_cast<std::int64_t>(names.size()) == tally.left_out);
    whole += static_cast<std::int64_t>(names.size()) == tally.left_out;
    left_out += tally.left_out;
    again += tally.again;
    lost_at_resume += run.lost_at_resume;
    ahead_at_resume += run.ahead_at_resume;
  }
  EXPECT_GT(whole, 100) << "the lists were cut short";
  EXPECT_GT(left_out, 1000);
  EXPECT_GT(again, 100) << "no lost rank was ahead: nothing was tested";
  EXPECT_GT(lost_at_resume, 100U);
  EXPECT_GT(ahead_at_resume, 100U) << "no checkpoint had batches that were dealt again";
  EXPECT_GT(behind_the_end, 30) << "no view began behind the end of training";
}

// As a damaged checkpoint may have them: they are of this view or later, and not too many.
TEST(DealtBatches, OfADamagedCheckpointAreBounded) {
  constexpr std::int64_t kMost = std::int64_t{1} << 50;
  const auto continued = [](std::vector<BatchRun> ahead, std::optional<std::int64_t> planned) {
    return ViewChange({{0, 1, 2}, {}, {}}, 3, 100, std::move(ahead), planned);
  };
  const ViewChange many = continued({{0, 1, BatchesOfLost::kMostAhead},
                                     {kMost, 1'000'000, BatchesOfLost::kMostAhead},
                                     {7, 1'000'000, 1},
                                     {kMost, 1, 1}},
                                    std::nullopt);
  std::int64_t kept = 0;
  for (const BatchRun& run : many.batches().ahead()) {
    EXPECT_GE(run.first, 100);
    kept += run.count;
  }
  EXPECT_EQ(kept, BatchesOfLost::kMostAhead);

  ViewChange change = continued({{1, 3, 50}, {kMost, 1'000'000, 50}}, 1000);
  change.on_taken(1, 3, kMost / 1'000'000);
  change.end_training();
  EXPECT_EQ(change.batches().tally(kEpochs).left_out, 2 * 300 - 17) << "these had been taken ahead";
}

// Each entry is as much work as any other, however many came before it: a list of which the time of
// a test does not suffice for the square.
TEST(DealtBatches, OfADamagedCheckpointMayBeALongList) {
  constexpr std::int64_t kEntries = 3 * BatchesOfLost::kMostAhead, kBegin = 1000;
  std::vector<BatchRun> ahead;
  for (std::int64_t i = 0; i < kEntries; ++i) ahead.push_back({kBegin + i, 1, 1});
  BatchAccount account(std::nullopt, std::move(ahead), kBegin);
  EXPECT_EQ(account.ahead().size(), static_cast<std::size_t>(BatchesOfLost::kMostAhead));
  // The only member takes two of them: they have been taken again, and leave no room.
  account.end_view(kBegin, {{2, true}});
  EXPECT_EQ(account.ahead().size(), static_cast<std::size_t>(BatchesOfLost::kMostAhead) - 2);
  EXPECT_EQ(account.tally(kEpochs).again, kEntries - BatchesOfLost::kMostAhead + 2);
  account.end_view(kBegin + 2, {{0, true}, {5, false}});
  EXPECT_EQ(account.ahead().size(), static_cast<std::size_t>(BatchesOfLost::kMostAhead) - 2);
  EXPECT_EQ(account.tally(kEpochs).again, kEntries - BatchesOfLost::kMostAhead + 2 + 5);
}

}  // namespace dealt_batches_test
}  // namespace grapevine
