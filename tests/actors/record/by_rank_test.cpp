#include "actors/record/by_rank.hpp"

#include <gtest/gtest.h>

#include <map>

#include "messages/random.hpp"

namespace grapevine {
namespace by_rank_test {

TEST(ByRank, CountsAsAMapDoes) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    Rng rng(seed);
    ByRank<std::int64_t> counts;
    std::map<Rank, std::int64_t> expected;
    for (int i = 0; i < 2000; ++i) {
      const auto rank = static_cast<Rank>(rng() % 50) - 1;  // -1: nobody
      counts[rank] += i;
      expected[rank] += i;
      if (rng() % 3 == 0) {
        EXPECT_EQ(counts[rank], expected[rank]);
      }
    }
    const ByRank<std::int64_t> copy = counts;
    counts[0] += 1;
    std::map<Rank, std::int64_t> listed;
    for (const auto& [rank, count] : copy) listed[rank] = count;
    EXPECT_EQ(listed, expected) << "seed " << seed;
  }
}

TEST(ByRank, BeginsWithNothing) {
  ByRank<std::int64_t> counts;
  EXPECT_TRUE(counts.begin() == counts.end());
  EXPECT_EQ(counts[7], 0);
}

}  // namespace by_rank_test
}  // namespace grapevine
