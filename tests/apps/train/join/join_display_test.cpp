#include "apps/train/join/join_display.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <sstream>

namespace grapevine {
namespace join_display_test {

using namespace std::chrono_literals;

constexpr std::int64_t kTotal = 120'000'000;

class JoinDisplayTest : public testing::Test {
 protected:
  // What the display says of these bytes of the state.
  std::string at(std::int64_t bytes) { return after(StateArrival{3, bytes, kTotal, false, 0}); }
  std::string after(const StateArrival& arrival) {
    err_.str("");
    display_.on_state_arrival(arrival);
    return err_.str();
  }

  std::chrono::steady_clock::time_point now_{1h};
  std::ostringstream err_;
  JoinDisplay display_{err_, [this] { return now_; }};
};

TEST_F(JoinDisplayTest, SaysHowMuchOfTheStateIsThere) {
  EXPECT_EQ(at(1'000'000), "rank 3 receives the state of the run, 120 MB\n");
  EXPECT_EQ(at(2'000'000), "") << "at most every two seconds";
  now_ += 2s;
  EXPECT_EQ(at(34'000'000), "rank 3: 34.0 MB of 120 MB\n");
  EXPECT_EQ(at(35'000'000), "");
  now_ += 5s;
  EXPECT_EQ(at(kTotal), "");
  EXPECT_EQ(after({3, 0, 0, true, 7540}), "rank 3 takes part from step 7,540\n");
}

// Without a pause for a line in between; a rank may join again.
TEST_F(JoinDisplayTest, ASmallStateHasTwoLines) {
  for (int life = 0; life < 2; ++life) {
    EXPECT_EQ(at(kTotal), "rank 3 receives the state of the run, 120 MB\n");
    EXPECT_EQ(after({3, 0, 0, true, 0}), "rank 3 takes part from step 0\n");
  }
}

// A process may have several ranks.
TEST_F(JoinDisplayTest, EachRankHasItsOwnLines) {
  EXPECT_EQ(at(1'000'000), "rank 3 receives the state of the run, 120 MB\n");
  EXPECT_EQ(after({4, 1'000'000, kTotal, false, 0}),
            "rank 4 receives the state of the run, 120 MB\n");
  EXPECT_EQ(after({4, 0, 0, true, 5}), "rank 4 takes part from step 5\n");
  EXPECT_EQ(at(2'000'000), "") << "its first part was reported";
}

}  // namespace join_display_test
}  // namespace grapevine
