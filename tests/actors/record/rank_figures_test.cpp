#include "actors/record/rank_figures.hpp"

#include <gtest/gtest.h>

namespace grapevine {
namespace rank_figures_test {

using std::chrono::milliseconds;

TEST(LiveFigures, CountByRankAndLeaveOutTheOthers) {
  LiveFigures live(1);
  live.add_sent(0, 10);
  live.add_sent(3, 5);
  live.add_sent(0, 1);
  live.add_wait(3, milliseconds(2));
  live.add_wait(3, milliseconds(1));
  live.add_wait(RankFigures::kNobody, milliseconds(4));
  live.add_view();
  Ledger ledger;
  ledger.produced = 7;
  const RankFigures figures = live.with(ledger);
  EXPECT_EQ(figures.rank, 1);
  EXPECT_EQ(figures.view, 1);
  EXPECT_EQ(figures.ledger.produced, 7);
  EXPECT_EQ(figures.sent_bytes, (std::map<Rank, std::uint64_t>{{0, 11}, {3, 5}}));
  EXPECT_EQ(figures.waited_ns, (std::map<Rank, std::int64_t>{{-1, 4'000'000}, {3, 3'000'000}}));
}

TEST(LiveFigures, AreDueOnceASecond) {
  LiveFigures live(0);
  EXPECT_FALSE(live.due(milliseconds(0)));
  EXPECT_FALSE(live.due(milliseconds(999)));
  EXPECT_TRUE(live.due(milliseconds(1700)));
  EXPECT_FALSE(live.due(milliseconds(2600)));
  EXPECT_TRUE(live.due(milliseconds(2700)));
}

}  // namespace rank_figures_test
}  // namespace grapevine
