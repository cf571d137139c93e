#include "apps/simulate/fault_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "apps/simulate/compute_time.hpp"
#include "apps/simulate/shrink.hpp"

namespace grapevine {
namespace fault_plan_test {

FaultBounds bounds_of(std::uint64_t seed = 1) {
  FaultBounds bounds;
  bounds.ranks = 9;
  bounds.workers = 8;
  bounds.crashes = 3;
  bounds.restarts = true;
  bounds.expected = std::chrono::seconds(10);
  bounds.seed = seed;
  return bounds;
}

TEST(FaultPlan, ReadsEachKind) {
  const auto faults = parse_faults(
      "crash=3@0.5,pause=1@250ms+2,partition=0-4@1+500us,slow=2-5x10@1s+3s", bounds_of());
  ASSERT_TRUE(faults.ok()) << faults.error().message;
  ASSERT_EQ(faults->size(), 4u);
  EXPECT_EQ(faults_text(*faults),
            "crash=3@500ms,pause=1@250ms+2s,partition=0-4@1s+500us,slow=2-5x10@1s+3s");
  EXPECT_EQ(deaths_of(*faults).size(), 1u);
  EXPECT_EQ(pauses_of(*faults).size(), 1u);
  EXPECT_EQ(link_faults_of(*faults).size(), 2u);
}

TEST(FaultPlan, RandomFaultsAreSeededAndReadBackFromTheirText) {
  std::size_t restarts = 0;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const auto faults = parse_faults("random=12", bounds_of(seed));
    ASSERT_TRUE(faults.ok());
    EXPECT_EQ(faults->size(), 12u);
    const std::string text = faults_text(*faults);
    EXPECT_EQ(text, faults_text(*parse_faults("random=12", bounds_of(seed))));
    const auto again = parse_faults(text, bounds_of());
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(faults_text(*again), text);
    std::set<Rank> dead;
    for (const Fault& fault : *faults) {
      if (fault.kind == Fault::Kind::crash) {
        EXPECT_TRUE(dead.insert(fault.rank).second) << text;
        EXPECT_LT(fault.rank, 8) << "a server";
      }
      EXPECT_LT(fault.at, std::chrono::seconds(10));
      EXPECT_NE(fault.rank, fault.peer);
    }
    EXPECT_LE(dead.size(), 3u);
    restarts += returns_of(*faults).size();
  }
  EXPECT_GT(restarts, 0u);
  EXPECT_NE(faults_text(*parse_faults("random=3", bounds_of(1))),
            faults_text(*parse_faults("random=3", bounds_of(2))));
}

// What is drawn fits all other terms, wherever they stand.
TEST(FaultPlan, DrawsAfterAllOtherTerms) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    const auto last = parse_faults("crash=1@0.1,restart=1@0.2,random=8", bounds_of(seed));
    ASSERT_TRUE(last.ok()) << "seed " << seed << ": " << last.error().message;
    for (const char* order :
         {"random=8,crash=1@0.1,restart=1@0.2", "random=3,crash=1@0.1,restart=1@0.2,random=5"}) {
      const auto faults = parse_faults(order, bounds_of(seed));
      ASSERT_TRUE(faults.ok()) << "seed " << seed << ": " << faults.error().message;
      EXPECT_EQ(faults_text(*faults), faults_text(*last)) << "seed " << seed;
    }
  }
  EXPECT_FALSE(parse_faults("random=6000,random=6000", bounds_of()).ok());
}

TEST(FaultPlan, RefusesFactorsThatAreNoneOrTooLarge) {
  for (const char* wrong : {"slow=0-1x2junk@0+1", "slow=0-1x@0+1", "slow=0-1x0.5@0+1",
                            "slow=0-1x1e300@0+1", "slow=0-1xinf@0+1", "slow=0-1xnan@0+1"})
    EXPECT_FALSE(parse_faults(wrong, bounds_of()).ok()) << wrong;
}

TEST(FaultPlan, ReadsSecondsWithAnExponent) {
  const auto faults = parse_faults("pause=1@1e-1+0.5,crash=2@2E0", bounds_of());
  ASSERT_TRUE(faults.ok()) << faults.error().message;
  EXPECT_EQ(faults_text(*faults), "pause=1@100ms+500ms,crash=2@2s");
  for (const char* wrong : {"crash=1@1e7", "crash=1@-1", "crash=1@1e", "crash=1@e", "crash=1@"})
    EXPECT_FALSE(parse_faults(wrong, bounds_of()).ok()) << wrong;
}

TEST(FaultPlan, ReadsClocksThatAreAheadAndBehind) {
  const auto faults = parse_faults("skew=3:0.5,skew=1:-250us,skew=0:-1", bounds_of());
  ASSERT_TRUE(faults.ok()) << faults.error().message;
  EXPECT_EQ(faults_text(*faults), "skew=3:500ms,skew=1:-250us,skew=0:-1s");
  const auto skews = skews_of(*faults);
  EXPECT_EQ(skews.at(1), std::chrono::microseconds(-250));
  for (const char* wrong :
       {"skew=1", "skew=1@3ms", "skew=9:1s", "skew=1:--3s", "skew=1:3s,skew=1:4s"})
    EXPECT_FALSE(parse_faults(wrong, bounds_of()).ok()) << wrong;
}

TEST(FaultPlan, AKnownPlanIsReadWithoutItsRun) {
  const std::string text = "crash=3@500ms,restart=3@600ms,slow=2-5x10@1s+3s";
  const auto faults = parse_faults(text, FaultBounds::of_known_plan());
  ASSERT_TRUE(faults.ok()) << faults.error().message;
  EXPECT_EQ(faults_text(*faults), text);
}

TEST(FaultPlan, TheLastRanksMayJoin) {
  const FaultBounds bounds = bounds_of();
  const std::string last = std::to_string(bounds.workers - 1),
                    before = std::to_string(bounds.workers - 2);
  const std::string spec = "join=" + last + "@1s,crash=" + last + "@2s,join=" + before + "@500ms";
  const auto faults = parse_faults(spec, bounds);
  ASSERT_TRUE(faults.ok()) << faults.error().message;
  EXPECT_EQ(faults_text(*faults), spec);
  EXPECT_EQ(returns_of(*faults).size(), 2u);
  EXPECT_EQ(count_joins(spec), 2);
  EXPECT_EQ(*initial_workers_of(*faults, bounds.workers), bounds.workers - 2);
  for (const auto& [wrong, why] : std::vector<std::pair<std::string, std::string>>{
           {"join=" + last + "@1s,join=" + last + "@2s", "joins twice"},
           {"crash=" + last + "@1s,join=" + last + "@2s", "is there before it joins"},
           {"join=" + last + "@1s,restart=" + last + "@2s", "restarts and has not crashed"}}) {
    const auto read = parse_faults(wrong, bounds);
    ASSERT_FALSE(read.ok()) << wrong;
    EXPECT_NE(read.error().message.find(why), std::string::npos) << read.error().message;
  }
  const auto gap = parse_faults("join=" + before + "@1s", bounds);
  ASSERT_TRUE(gap.ok()) << gap.error().message;
  const auto initial = initial_workers_of(*gap, bounds.workers);
  ASSERT_FALSE(initial.ok());
  EXPECT_NE(initial.error().message.find("give join=" + last + "@T, too"), std::string::npos)
      << initial.error().message;
  FaultBounds alone = bounds;
  alone.restarts = false;
  EXPECT_FALSE(parse_faults(spec, alone).ok());
  // Drawn faults spare those that come later.
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    FaultBounds drawn = bounds;
    drawn.seed = seed;
    const auto all = parse_faults(spec + ",random=20", drawn);
    ASSERT_TRUE(all.ok()) << all.error().message;
    for (const Death& death : deaths_of(*all))
      if (death.at != std::chrono::seconds(2)) {
        EXPECT_LT(death.rank, bounds.workers - 2) << "seed=" << seed;
      }
  }
}

TEST(FaultPlan, ACrashedRankMayRestartAndCrashAgain) {
  const std::string spec = "crash=1@1s,restart=1@2s,crash=1@3s,crash=2@1500ms";
  const auto faults = parse_faults(spec, bounds_of());
  ASSERT_TRUE(faults.ok()) << faults.error().message;
  EXPECT_EQ(faults_text(*faults), spec);
  ASSERT_EQ(returns_of(*faults).size(), 1u);
  EXPECT_EQ(returns_of(*faults)[0].rank, 1);
  EXPECT_EQ(deaths_of(*faults).size(), 3u);
  // As a search for fewer faults leaves some out.
  std::vector<Fault> fewer(faults->begin() + 1, faults->end());
  EXPECT_EQ(faults_text(without_orphans(fewer)), "crash=1@3s,crash=2@1500ms");
  FaultBounds alone = bounds_of();
  alone.restarts = false;
  EXPECT_FALSE(parse_faults(spec, alone).ok());
}

TEST(FaultPlan, RefusesWhatItCannotMean) {
  for (const char* spec :
       {"crash", "crash=9@1", "crash=1", "crash=1@x", "pause=1@2", "pause=1@2+", "partition=1@1+1",
        "partition=1-1@1+1", "slow=1-2@1+1", "slow=1-2x0.5@1+1", "random=-1", "random=x",
        "meteor=1@2", "crash=1@1,crash=1@2", "restart=1@2", "crash=1@3,restart=1@2",
        "crash=1@1,restart=1@2,restart=1@3"}) {
    const auto faults = parse_faults(spec, bounds_of());
    ASSERT_FALSE(faults.ok()) << spec;
    EXPECT_EQ(faults.error().code, Errc::bad_input);
    EXPECT_NE(faults.error().message.find("--fail"), std::string::npos) << faults.error().message;
  }
}

// The faults that are needed: those of the ranks in `needed`, together.
TEST(Shrink, FindsExactlyTheFaultsThatAreNeeded) {
  std::vector<Fault> faults;
  for (Rank rank = 0; rank < 40; ++rank) {
    Fault fault;
    fault.kind = Fault::Kind::pause;
    fault.rank = rank;
    faults.push_back(fault);
  }
  for (const std::set<Rank>& needed :
       {std::set<Rank>{0}, {39}, {7, 31}, {3, 4, 5, 20, 38}, std::set<Rank>{}}) {
    int runs = 0;
    const auto fails = [&](const std::vector<Fault>& some) {
      ++runs;
      std::set<Rank> there;
      for (const Fault& fault : some) there.insert(fault.rank);
      return std::includes(there.begin(), there.end(), needed.begin(), needed.end());
    };
    const std::vector<Fault> small = shrink(faults, fails);
    std::set<Rank> left;
    for (const Fault& fault : small) left.insert(fault.rank);
    EXPECT_EQ(left, needed);
    EXPECT_LT(runs, 400);
  }
}

TEST(ComputeTime, HasItsMeanAndIsAFunctionOfRankAndStep) {
  for (const char* spec : {"0.05", "50ms", "uniform=0.01..0.09", "exponential=0.05",
                           "normal=0.05:0.005", "lognormal=-3.0207:0.22"}) {
    const auto time = parse_compute_time(spec, 3);
    ASSERT_TRUE(time.ok()) << spec;
    double sum = 0;
    constexpr int kDraws = 4000;
    for (Step step = 0; step < kDraws; ++step) {
      const Duration one = time->of(1, step);
      EXPECT_EQ(one, time->of(1, step));
      EXPECT_GE(one, Duration{0});
      sum += to_seconds(one);
    }
    EXPECT_NEAR(sum / kDraws, 0.05, 0.005) << spec;
    EXPECT_NEAR(to_seconds(time->mean), 0.05, 0.001) << spec;
  }
}

TEST(ComputeTime, RefusesWhatItCannotMean) {
  for (const char* spec :
       {"", "-1", "x", "uniform=2..1", "normal=0:1", "lognormal=1", "1e9", "lognormal=900:1",
        "normal=4000:1", "uniform=1..4000", "exponential=x", "gamma=1:2"}) {
    const auto time = parse_compute_time(spec, 3);
    ASSERT_FALSE(time.ok()) << spec;
    EXPECT_NE(time.error().message.find("--compute"), std::string::npos);
  }
}

}  // namespace fault_plan_test
}  // namespace grapevine
