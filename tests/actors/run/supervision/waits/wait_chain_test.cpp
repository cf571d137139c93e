// Chains of waits lead to their root, and read well.
#include "actors/run/supervision/waits/wait_chain.hpp"

#include <gtest/gtest.h>

#include "messages/random.hpp"

namespace grapevine {
namespace wait_chain_test {

using Root = WaitChain::Root;
using Ranks = std::map<Rank, RankWait>;

constexpr std::int64_t kSecond = 1'000'000'000;

RankWait waiting(Awaited awaited, std::int64_t seconds = 41) {
  RankWait rank;
  rank.report.emplace();
  rank.report->waits = {awaited};
  rank.report->waiting_ns = seconds * kSecond;
  return rank;
}
RankWait computing(Step step, std::int64_t seconds, WorkerActivity worker) {
  RankWait rank;
  rank.report.emplace();
  rank.report->computing = step;
  rank.report->computing_ns = seconds * kSecond;
  rank.report->worker = worker;
  return rank;
}
RankWait idle() {
  RankWait rank;
  rank.report.emplace();
  return rank;
}
RankWait silent(std::int64_t seconds) {
  RankWait rank;
  rank.silent = Duration(seconds * kSecond);
  return rank;
}
Awaited chunk_from(Rank from) { return {from, PayloadKind::chunk, 812, 5, 6}; }

struct Case {
  RankWait root;
  Root kind;
  bool is_lost;
  std::string text;
};

TEST(WaitChain, NamesWhatTheLastRankDoes) {
  RankWait stalled = computing(812, 43, WorkerActivity::computing);
  stalled.report->holds_messages_back = true;
  RankWait changing = idle();
  changing.report->view = 2;
  RankWait finished = idle();
  finished.finished = true;
  const std::vector<Case> cases = {
      {computing(812, 43, WorkerActivity::computing), Root::computes, false,
       "rank 2 has computed step 812 for 43 s"},
      {computing(812, 43, WorkerActivity::reading), Root::reads, false,
       "rank 2 has waited for the data of step 812 for 43 s"},
      {computing(812, 43, WorkerActivity::delayed), Root::delayed, false,
       "rank 2 is held back by an injected delay"},
      {stalled, Root::delayed, false, "rank 2 is held back by an injected delay"},
      {changing, Root::changes_members, false, "rank 2 changes to view 2 of the members"},
      {silent(43), Root::no_answer, true,
       "rank 2 has not answered for 43 s: its process is stopped or overloaded, or cannot be "
       "reached"},
      {idle(), Root::idle, true,
       "rank 2 neither waits nor computes: the message is lost or on its way"},
      {finished, Root::finished, false, "rank 2 has taken its last step"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.text);
    const Ranks ranks = {{2, one.root}, {3, waiting(chunk_from(2))}};
    const WaitChain chain = find_wait_chain(3, ranks);
    EXPECT_EQ(chain.ranks, (std::vector<Rank>{3, 2}));
    EXPECT_EQ(chain.root, one.kind);
    EXPECT_EQ(chain.is_lost(), one.is_lost);
    EXPECT_EQ(text_of(chain, ranks, 1),
              "rank 3 has waited 41 s for chunk 5/6 of operation 812 from rank 2; " + one.text);
    EXPECT_EQ(find_wait_chain(2, ranks).ranks, std::vector<Rank>{2});
  }
}

// The parts that a joining rank has tell a slow transfer from one that has stopped; until its donor
// has given them, the wait is for the donor.
TEST(WaitChain, NamesTheTransferToARankThatJoins) {
  RankWait joining = waiting({0, PayloadKind::state_chunk}, 43);
  joining.report->view = 5;
  joining.process = 1;
  Ranks ranks = {{0, computing(812, 43, WorkerActivity::computing)},
                 {2, joining},
                 {3, waiting(chunk_from(2))}};
  const std::string waits = "rank 3 has waited 41 s for chunk 5/6 of operation 812 from rank 2; ";
  const auto expect = [&](Root root, const std::vector<Rank>& chain_of, const std::string& text) {
    const WaitChain chain = find_wait_chain(3, ranks);
    EXPECT_EQ(chain.root, root);
    EXPECT_EQ(chain.ranks, chain_of);
    EXPECT_EQ(text_of(chain, ranks, 2), waits + text);
    EXPECT_FALSE(chain.is_lost());
  };
  expect(Root::receives_state, {3, 2},
         "rank 2 of process 1 has waited 43 s for the state of rank 0");
  Awaited& next = ranks[2].report->waits.front();
  next.part = 120;
  next.parts = 238;
  ranks[2].report->waiting_ns = 2 * kSecond;
  const std::string some =
      "rank 2 of process 1 receives the state of rank 0: 119 of 238 parts, the last one 2 s ago";
  expect(Root::receives_state, {3, 2}, some);
  ranks[0] = waiting(chunk_from(3));  // no circle: the donor has given the state
  expect(Root::receives_state, {3, 2}, some);
  ranks[0] = idle();
  ranks[0].report->view = 6;  // after the donor gave the state, the members change again
  expect(Root::receives_state, {3, 2}, some);
  ranks[0] = silent(40);
  const WaitChain chain = find_wait_chain(3, ranks);
  EXPECT_EQ(chain.ranks, (std::vector<Rank>{3, 2, 0}));
  EXPECT_EQ(chain.root, Root::no_answer);
  EXPECT_TRUE(chain.is_lost());
  EXPECT_NE(text_of(chain, ranks, 2)
                .find("rank 2 has waited 2 s for state chunk 120/238 from rank "
                      "0; rank 0 of process 0 has not answered"),
            std::string::npos)
      << text_of(chain, ranks, 2);
  ranks[0] = idle();
  ranks[0].report->view = 5;  // it has not begun
  next.part = next.parts = -1;
  EXPECT_EQ(find_wait_chain(3, ranks).root, Root::changes_members);
}

TEST(WaitChain, NamesTheProcessWhereThereAreSeveral) {
  Ranks ranks = {{2, silent(9)}, {3, waiting(chunk_from(2))}};
  ranks[2].process = 1;
  EXPECT_EQ(
      text_of(find_wait_chain(3, ranks), ranks, 2)
          .find("rank 3 has waited 41 s for chunk 5/6 of operation 812 from rank 2; rank 2 of "
                "process 1 has not answered for 9 s"),
      0u);
}

TEST(WaitChain, FindsACircle) {
  const Ranks ranks = {{0, waiting(chunk_from(2))},
                       {1, waiting(chunk_from(0))},
                       {2, waiting(chunk_from(1))},
                       {3, waiting(chunk_from(2))}};
  const WaitChain chain = find_wait_chain(3, ranks);
  EXPECT_EQ(chain.root, Root::circle);
  EXPECT_EQ(chain.ranks, (std::vector<Rank>{3, 2, 1, 0, 2}));
  EXPECT_FALSE(chain.is_lost());
  EXPECT_NE(text_of(chain, ranks, 1).find("these ranks wait for each other"), std::string::npos);
}

TEST(WaitChain, FollowsTheRankThatIsFurthestFromAnAnswer) {
  Ranks ranks = {{0, idle()},
                 {1, waiting(chunk_from(0), 90)},
                 {2, computing(7, 5, WorkerActivity::computing)},
                 {3, computing(7, 6, WorkerActivity::computing)},
                 {4, silent(1)},
                 {5, idle()}};
  std::vector<Awaited>& waits = ranks[5].report->waits;
  for (const Rank rank : {0, 1, 2, 3, 4}) {
    waits.push_back({rank, PayloadKind::packed_chunk, 7});
    EXPECT_EQ(find_wait_chain(5, ranks).ranks[1], rank);
  }
}

// Any rank may begin an operation: those that could have done so are no reason.
TEST(WaitChain, LooksForTheReasonAmongAllWhereAnyRankMaySend) {
  const Awaited any{-1, PayloadKind::activate, 5};
  Ranks ranks = {{0, waiting(any)}, {1, waiting(any)}, {2, idle()}};
  EXPECT_EQ(find_wait_chain(0, ranks).root, Root::unknown);
  EXPECT_EQ(text_of(find_wait_chain(0, ranks), ranks, 1),
            "rank 0 has waited 41 s for the start of operation 5 from any rank; any of several "
            "ranks may send it");
  ranks[2] = computing(5, 60, WorkerActivity::computing);
  EXPECT_EQ(find_wait_chain(0, ranks).ranks, (std::vector<Rank>{0, 2}));
}

// The middle of a long chain is left out.
TEST(WaitChain, StaysALineOfReadableLength) {
  Ranks ranks = {{0, silent(9)}};
  for (Rank rank = 1; rank < 64; ++rank) ranks.emplace(rank, waiting(chunk_from(rank - 1)));
  const WaitChain chain = find_wait_chain(63, ranks);
  EXPECT_EQ(chain.ranks.size(), 64u);
  const std::string text = text_of(chain, ranks, 1);
  EXPECT_LT(text.size(), 600u);
  for (const char* part : {"rank 63 has waited", "59 more ranks; ", "from rank 0; rank 0 has not"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

// Whatever the ranks say, a chain ends, with a text of one line.
TEST(WaitChain, EndsForAnyReports) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    Rng rng(seed);
    const auto count = static_cast<Rank>(1 + rng() % 8);
    Ranks ranks;
    for (Rank rank = 0; rank < count; ++rank) {
      RankWait& one = ranks[rank];
      if (rng() % 4 == 0) continue;
      one = rng() % 2 == 0 ? idle() : computing(1, 1, WorkerActivity::computing);
      for (std::uint64_t waits = rng() % 3; waits > 0; --waits)
        one.report->waits.push_back(
            {static_cast<Rank>(rng() % (count + 2)) - 1, PayloadKind::share, 3});
    }
    for (Rank rank = 0; rank < count; ++rank) {
      const WaitChain chain = find_wait_chain(rank, ranks);
      ASSERT_LE(chain.ranks.size(), static_cast<std::size_t>(count) + 1);
      const std::string text = text_of(chain, ranks, 2);
      EXPECT_FALSE(text.empty());
      EXPECT_EQ(text.find('\n'), std::string::npos);
    }
  }
}

}  // namespace wait_chain_test
}  // namespace grapevine
