#include "actors/run/delay.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace grapevine {
namespace delay_test {

using std::chrono::milliseconds;

TEST(Delay, OneRank) {
  const auto delay = parse_delay("rank=2:300ms", 4, 1);
  ASSERT_TRUE(delay.ok());
  for (Rank r = 0; r < 4; ++r)
    EXPECT_EQ((*delay)(r, 7), r == 2 ? milliseconds(300) : milliseconds(0));
}

TEST(Delay, KRandomRanksEachStep) {
  const auto delay = parse_delay("random=3:0.5s", 8, 42);
  ASSERT_TRUE(delay.ok());
  std::set<std::set<Rank>> seen;
  for (Step s = 0; s < 50; ++s) {
    std::set<Rank> slow;
    for (Rank r = 0; r < 8; ++r)
      if ((*delay)(r, s) == milliseconds(500)) slow.insert(r);
    EXPECT_EQ(slow.size(), 3u) << "step " << s;
    seen.insert(slow);
  }
  EXPECT_GT(seen.size(), 10u);
}

TEST(Delay, RotatesEvenlySpaced) {
  const auto delay = parse_delay("rotate=50ms..400ms", 8, 1);
  ASSERT_TRUE(delay.ok());
  for (Step s = 0; s < 16; ++s) {
    std::set<Duration> values;
    for (Rank r = 0; r < 8; ++r) values.insert((*delay)(r, s));
    EXPECT_EQ(values.size(), 8u);
    EXPECT_EQ(*values.begin(), milliseconds(50));
    EXPECT_EQ(*values.rbegin(), milliseconds(400));
  }
  EXPECT_EQ((*delay)(0, 3), (*delay)(3, 0));
}

TEST(Delay, LognormalHasItsMedianAndRepeats) {
  const auto delay = parse_delay("lognormal=-2:1", 2, 5),
             again = parse_delay("lognormal=-2:1", 2, 5);
  std::vector<Duration> values;
  for (Step s = 0; s < 2001; ++s) {
    values.push_back((*delay)(0, s));
    ASSERT_EQ(values.back(), (*again)(0, s));
  }
  std::nth_element(values.begin(), values.begin() + 1000, values.end());
  EXPECT_NEAR(to_seconds(values[1000]), std::exp(-2.0), 0.015);
}

TEST(Delay, LengthIsPerTimeStep) {
  const auto usual = parse_delay("length", 4, 1), given = parse_delay("length=2.5ms", 4, 1);
  for (const std::int64_t length : {0, 6, 102}) {
    EXPECT_EQ((*usual)(3, 8, length), milliseconds(length));
    EXPECT_EQ((*given)(0, 9, length), std::chrono::microseconds(2500) * length);
  }
  EXPECT_TRUE(usual->by_length());
  EXPECT_FALSE(parse_delay("rank=0:1s", 4, 1)->by_length());
  EXPECT_FALSE(parse_delay("", 4, 1)->by_length());
  EXPECT_EQ((*parse_delay("", 4, 1))(0, 0, 50), Duration::zero());
}

TEST(Delay, TermsAddUp) {
  const auto delay = parse_delay("rank=0:10ms,rank=0:5ms", 2, 1);
  EXPECT_EQ((*delay)(0, 0), milliseconds(15));
  const auto both = parse_delay("length,rank=1:10ms,length=2ms", 2, 1);
  EXPECT_EQ((*both)(0, 0, 20), milliseconds(60));
  EXPECT_EQ((*both)(1, 0, 20), milliseconds(70));
}

TEST(Delay, BadTermsSayWhatWasExpected) {
  for (const auto& [spec, part] :
       std::vector<std::pair<std::string, std::string>>{{"rank=4:10ms", "R in 0..3"},
                                                        {"rank=0:10", "a duration like 300ms"},
                                                        {"rank=0:-5ms", "a duration like 300ms"},
                                                        {"random=5:10ms", "K in 1..4"},
                                                        {"rotate=4s..1s", "LOW at most HIGH"},
                                                        {"lognormal=1", "MU:SIGMA"},
                                                        {"rnak=0:10ms", "did you mean 'rank'"},
                                                        {"length=3", "a duration like 300ms"},
                                                        {"length=0ms", "more than 0"},
                                                        {"lenght=1ms", "did you mean 'length'"},
                                                        {"nonsense", "length[=DUR]"}}) {
    const auto delay = parse_delay(spec, 4, 1);
    ASSERT_FALSE(delay.ok()) << spec;
    EXPECT_NE(delay.error().message.find(part), std::string::npos) << delay.error().message;
  }
}

}  // namespace delay_test
}  // namespace grapevine
