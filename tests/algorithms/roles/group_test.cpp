// WAGMA-SGD (Li et al. 2021): groups, wait-avoiding averages, and the global ones in between.
#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "algorithms/graphs/groups.hpp"
#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace group_test {

using sim::pull;
using sim::RoleWorld;
using sim::WorldConfig;

TEST(GroupSchedule, PartitionsAllRanksAtEveryStep) {
  for (const std::int32_t n : {1, 2, 3, 4, 5, 7, 8, 12, 16, 64})
    for (std::int32_t size = 0; size <= n; ++size) {
      const auto schedule = GroupSchedule::make(Grouping::drawn, n, size, 11);
      ASSERT_TRUE(schedule.ok());
      for (Step step = 0; step < 6; ++step) {
        std::set<Rank> seen;
        std::set<std::size_t> sizes;
        for (Rank r = 0; r < n; ++r) {
          const auto group = schedule->members(step, r);
          EXPECT_EQ(std::count(group.begin(), group.end(), r), 1);
          for (const Rank member : group) EXPECT_EQ(schedule->members(step, member), group);
          seen.insert(group.begin(), group.end());
          sizes.insert(group.size());
        }
        EXPECT_EQ(static_cast<std::int32_t>(seen.size()), n);
        EXPECT_LE(*sizes.rbegin() - *sizes.begin(), 1u);
        EXPECT_LE(static_cast<std::int32_t>(*sizes.rbegin()), schedule->group_size());
        const double groups = std::ceil(n / static_cast<double>(schedule->group_size()));
        EXPECT_EQ(static_cast<double>(*sizes.begin()), std::floor(n / groups));
      }
    }
  EXPECT_FALSE(GroupSchedule::make(Grouping::drawn, 4, 5, 0).ok());
}

// Lines of a grid partition all ranks at every step, also where the grid has holes; where it is
// full, the means of as many steps as it has axes are the mean of all.
TEST(GroupSchedule, LinesOfAGridAverageExactlyWhereItIsFull) {
  for (const std::int32_t n : {1, 2, 3, 4, 5, 7, 8, 9, 16, 27, 30})
    for (std::int32_t size = 1; size <= n; ++size) {
      SCOPED_TRACE("n " + std::to_string(n) + ", size " + std::to_string(size));
      const auto schedule = GroupSchedule::make(Grouping::grid, n, size, 3);
      ASSERT_TRUE(schedule.ok());
      std::int64_t axes = 1, cells = size;
      while (size > 1 && cells < n) {
        cells *= size;
        ++axes;
      }
      std::vector<double> x;
      double sum = 0;
      for (Rank r = 0; r < n; ++r) sum += x.emplace_back(r * r);
      for (Step step = 0; step < axes; ++step) {
        std::vector<double> next(x.size());
        for (Rank r = 0; r < n; ++r) {
          const auto group = schedule->members(step, r);
          EXPECT_EQ(std::count(group.begin(), group.end(), r), 1);
          EXPECT_LE(static_cast<std::int32_t>(group.size()), size);
          for (const Rank member : group) {
            EXPECT_EQ(schedule->members(step, member), group);
            next[static_cast<std::size_t>(r)] +=
                x[static_cast<std::size_t>(member)] / static_cast<double>(group.size());
          }
        }
        x = next;
      }
      EXPECT_NEAR(std::accumulate(x.begin(), x.end(), 0.0), sum, 1e-9 * (1 + sum));
      const bool full = cells == n || size == n;
      for (const double value : x) {
        if (full) {
          EXPECT_NEAR(value, sum / n, 1e-9 * (1 + sum));
        }
      }
    }
}

// After log_S P steps of the butterfly what one rank knew is known to all.
TEST(GroupSchedule, SpreadsToAllInLogarithmicSteps) {
  for (const auto& [n, size, steps] : std::vector<std::tuple<std::int32_t, std::int32_t, Step>>{
           {16, 4, 2}, {64, 8, 2}, {8, 2, 3}}) {
    const auto schedule = GroupSchedule::make(Grouping::drawn, n, size, 0);
    std::set<Rank> know = {3};
    for (Step step = 0; step < steps; ++step) {
      std::set<Rank> next = know;
      for (const Rank r : know)
        for (const Rank member : schedule->members(step, r)) next.insert(member);
      know = next;
    }
    EXPECT_EQ(static_cast<std::int32_t>(know.size()), n);
  }
}

WorldConfig make_config(std::int32_t ranks, int period, std::uint64_t seed) {
  WorldConfig config;
  config.plan = sim::plan_of({{"exchange", "group"}, {"staleness", std::to_string(period)}});
  config.ranks = ranks;
  config.seed = seed;
  config.horizon.steps = 40;
  config.dimension = 5;
  config.lr = 0.1;
  for (Rank r = 0; r < ranks; ++r) config.slowness[r] = r == 1 ? 0.97 : 0.2;
  return config;
}

at::Tensor nothing(Rank, Step, const at::Tensor& z) { return at::zeros_like(z); }

void run_to_the_end(RoleWorld& world, std::int32_t n) {
  world.start();
  world.run();
  for (Rank r = 0; r < n; ++r) EXPECT_TRUE(world.finished(r)) << "rank " << r;
}

// Equal models stay what they are: every sum is divided by the number of models in it.
TEST(Group, AveragesOfEqualModelsChangeNothing) {
  for (const std::int32_t n : {1, 2, 3, 4, 5, 8})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE("n=" + std::to_string(n) + ", seed=" + std::to_string(seed));
      RoleWorld world(make_config(n, 7, seed), nothing);
      for (Rank r = 0; r < n; ++r) world.set_x(r, at::full({5}, 6.0));
      run_to_the_end(world, n);
      for (Rank r = 0; r < n; ++r)
        EXPECT_TRUE(at::allclose(world.z(r), at::full({5}, 6.0), 1e-6, 1e-6)) << world.z(r);
    }
}

// 40 is a multiple of the period: the last average is global, and all models are the same bits.
TEST(Group, AGlobalAverageMakesAllModelsEqual) {
  for (const std::int32_t n : {2, 3, 5, 8}) {
    SCOPED_TRACE("n=" + std::to_string(n));
    RoleWorld world(make_config(n, 10, 4), pull);
    run_to_the_end(world, n);
    for (Rank r = 0; r < n; ++r) EXPECT_TRUE(at::equal(world.z(r), world.z(0)));
    const double optimum = (n - 1) / 2.0;
    EXPECT_NEAR(world.z(0)[0].item<double>(), optimum, 0.5);
  }
}

TEST(Group, OneStepAPeriodIsModelAveragingOverAllRanks) {
  const WorldConfig config = make_config(4, 1, 2);
  RoleWorld world(config, pull);
  run_to_the_end(world, 4);
  double x = 0;
  for (Step step = 0; step < config.horizon.steps; ++step) x -= config.lr * (x - 1.5);
  for (Rank r = 0; r < 4; ++r) EXPECT_NEAR(world.z(r)[0].item<double>(), x, 1e-5);
}

// While a rank computes, the newest gradient in its model is that of the step before.
TEST(Group, AContributionNamesTheNewestGradientInIt) {
  const WorldConfig config = make_config(8, 5, 1);
  RoleWorld world(config, pull);
  run_to_the_end(world, 8);
  int computing = 0;
  for (Rank r = 0; r < 8; ++r) {
    Step done = 0;
    bool waits = false;
    for (const Event& event : world.events(r)) {
      if (event.kind == EventKind::wait_begin) waits = true;
      if (event.kind == EventKind::wait_end) waits = false;
      if (event.kind == EventKind::contributed) {
        EXPECT_EQ(event.stamp.step, waits ? done : std::max<Step>(0, done - 1)) << "rank " << r;
        if (!waits && done == 0) {
          EXPECT_EQ(event.staleness, -1) << "no gradient is in the model";
        }
        computing += waits ? 0 : 1;
      }
      done += event.kind == EventKind::step_done;
    }
  }
  EXPECT_GT(computing, 0);
}

// A model that came late is as old as its rank was behind, less than a period; with a straggler
// there are some.
TEST(Group, StalenessIsBoundedByThePeriod) {
  std::int64_t late = 0;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    const WorldConfig config = make_config(8, 5, seed);
    RoleWorld world(config, pull);
    run_to_the_end(world, 8);
    for (Rank r = 0; r < 8; ++r)
      for (const Event& event : world.events(r))
        if (event.kind == EventKind::applied) {
          EXPECT_GE(event.staleness, 0);
          EXPECT_LT(event.staleness, 5);
          late += event.staleness > 0;
        }
  }
  EXPECT_GT(late, 0);
}

// Whoever waits for nobody gets (s + x') / (S + 1): two ranks, the slow one's start is 10 off.
TEST(Group, AFreshModelJoinsTheSumThatBeganWithoutIt) {
  WorldConfig config = make_config(2, 100, 1);
  config.horizon.steps = 1;
  config.lr = 1;
  config.slowness = {{1, 0.9999}};
  RoleWorld world(config, [](Rank, Step, const at::Tensor& z) { return at::ones_like(z); });
  world.set_x(1, at::full({5}, 10.0));
  run_to_the_end(world, 2);
  EXPECT_FLOAT_EQ(world.z(0)[0].item<float>(), (-1 + 10) / 2.0F);
  EXPECT_FLOAT_EQ(world.z(1)[0].item<float>(), (-1 + 10 + 9) / 3.0F);
  std::vector<std::int64_t> ages;
  for (const Event& event : world.events(1))
    if (event.kind == EventKind::applied) ages.push_back(event.staleness);
  EXPECT_EQ(ages, std::vector<std::int64_t>{1}) << "its model lacked the gradient of that step";
}

TEST(Group, SaveAndLoadInTheMiddleComeToAnEnd) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    const WorldConfig config = make_config(4, 10, seed);
    RoleWorld world(config, pull);
    world.start();
    const auto when = static_cast<std::int64_t>(1 + world.rng()() % 2000);
    world.run_until(when);
    world.save_and_load();
    world.run();
    for (Rank r = 0; r < 4; ++r) {
      EXPECT_EQ(world.model(r).step, config.horizon.steps);
      EXPECT_TRUE(at::equal(world.z(r), world.z(0)));
    }
  }
}

}  // namespace group_test
}  // namespace grapevine
