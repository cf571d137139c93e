// Clients that compute while their offers are on the way, and bounds of staleness by epoch.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/short_runs.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace server_overlap_test {

using sim::distance;
using sim::Keys;
using sim::models_after;
using sim::RoleWorld;
using sim::short_config;
using sim::operator+;

Keys server(const std::string& rule, const Keys& more = {}) {
  return Keys{{"exchange", "server"}, {"rule", rule}, {"overlap", "true"}} + more;
}

// The theta that comes back holds what this client has offered, and what it has not is added: its
// own steps are never taken twice, or lost.
TEST(ServerOverlap, OneClientAloneIsSgd) {
  const auto expected =
      models_after(short_config({{"exchange", "aggregate"}}, 1, 23, 1), sim::pull_beyond);
  for (const std::string rule : {"downpour", "adaptive"})
    for (const std::string servers : {"1", "3"})
      for (const std::string local_steps : {"1", "4"})
        for (const std::int64_t checkpoint_every : {0, 3}) {
          SCOPED_TRACE(rule + ", servers=" + servers + ", local_steps=" + local_steps);
          const Keys keys = server(rule, {{"servers", servers}, {"local_steps", local_steps}});
          const auto found =
              models_after(short_config(keys, 1, 23, 5), sim::pull_beyond, checkpoint_every);
          EXPECT_LT(distance(found.front(), expected.front()), 1e-5);
        }
}

// x <- x - gamma g; at each exchange x <- x - e of the exchange before, offer x:
// e = alpha (x - theta), theta <- theta + e. In double precision.
TEST(ServerOverlap, EasgdOfOneClientFollowsItsEquation) {
  constexpr Step kSteps = 20;
  constexpr double kAlpha = 0.9;
  for (const std::int64_t local_steps : {1, 4}) {
    SCOPED_TRACE("local_steps=" + std::to_string(local_steps));
    double x = 0, theta = 0, e = 0;
    for (Step step = 1; step <= kSteps; ++step) {
      x -= sim::kShortRate * (x - 1);
      if (step % local_steps != 0) continue;
      x -= e;
      e = kAlpha * (x - theta);
      theta += e;
    }
    x -= e;
    const auto found = models_after(short_config(
        server("easgd", {{"local_steps", std::to_string(local_steps)}}), 1, kSteps, 3));
    EXPECT_NEAR(found.front()[0].item<double>(), x, 1e-5);
  }
}

// Gradients that do not depend on the model: theta is the start and the steps of all, each once.
TEST(ServerOverlap, ThetaHoldsEveryStepOnce) {
  const auto given = [](Rank rank, Step step, const at::Tensor& z) {
    return at::cos(at::arange(z.numel(), at::kFloat) + static_cast<double>(5 * rank + 3 * step));
  };
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    auto config = short_config(server("downpour", {{"local_steps", "3"}}), 5, 20, seed);
    config.slowness = {{1, 0.8}};
    RoleWorld world(config, given);
    world.start();
    world.run();
    at::Tensor expected = at::zeros({config.dimension}, at::kDouble);
    for (Rank r = 0; r < 5; ++r)
      for (Step step = 0; step < 20; ++step)
        expected -= given(r, step, expected).to(at::kDouble) * sim::kShortRate;
    EXPECT_LT(distance(world.z(5), expected), 1e-4);
  }
}

std::int64_t waits(const Keys& keys) {
  auto config = short_config(keys, 3, 20, 2);
  for (Rank r = 0; r < 3; ++r) config.slowness[r] = 0.999;  // answers come before the next gradient
  RoleWorld world(config, sim::pull_beyond);
  world.start();
  world.run();
  std::int64_t begun = 0;
  for (Rank r = 0; r < 3; ++r)
    for (const Event& event : world.events(r)) begun += event.kind == EventKind::wait_begin;
  return begun;
}

// Only for the last answer, where the others come in time.
TEST(ServerOverlap, WaitsForNoAnswerThatComesWithTheNextSteps) {
  for (const std::string rule : {"downpour", "easgd", "delayed-nesterov"}) {
    SCOPED_TRACE(rule);
    EXPECT_EQ(waits(server(rule)), 3);
    EXPECT_EQ(waits(server(rule) + Keys{{"overlap", "false"}}), 3 * 20);
  }
}

// tau = 0 in the first epochs, 3 later: the bound is that of the epoch.
TEST(StalenessByEpoch, BoundsTheAgeInPartialSums) {
  std::int64_t oldest = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    auto config = short_config(
        {{"exchange", "partial"}, {"activation", "solo"}, {"staleness", "0:0,3:3"}}, 4, 40, seed);
    config.slowness = {{0, 0.9}};
    RoleWorld world(config, sim::pull_beyond);
    world.start();
    world.run();
    for (Rank r = 0; r < 4; ++r)
      for (const Event& event : world.events(r)) {
        if (event.kind != EventKind::applied) continue;
        const bool early = event.stamp.version + event.staleness < 3 * 5;  // rounds of 3 epochs
        EXPECT_LE(event.staleness, early ? 0 : 3) << "rank " << r;
        oldest = std::max(oldest, event.staleness);
      }
  }
  EXPECT_GT(oldest, 0) << "no gradient was late: the bound was not needed";
}

// As long as tau = 1 holds, groups take the mean of all ranks at each exchange.
TEST(StalenessByEpoch, GroupsAverageGloballyAsTheEpochSays) {
  const auto run = [](const std::string& tau, Step steps) {
    auto config =
        short_config({{"exchange", "group"}, {"group_size", "2"}, {"staleness", tau}}, 4, steps, 3);
    config.slowness = {{2, 0.9}};
    return models_after(config);
  };
  const auto always = run("1", 10), first = run("0:1,2:7", 10), later = run("0:1,1:7", 10);
  EXPECT_TRUE(at::equal(always[0], first[0]));
  EXPECT_FALSE(at::equal(always[0], later[0]));
}

}  // namespace server_overlap_test
}  // namespace grapevine
