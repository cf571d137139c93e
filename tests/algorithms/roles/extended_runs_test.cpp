// A run that had come to its end and is given more steps.
#include <gtest/gtest.h>

#include "algorithms/wiring/make_parts.hpp"
#include "tests/sim/pressed_wirings.hpp"

namespace grapevine {
namespace extended_runs_test {

using sim::Keys;
using sim::operator+;
using sim::PressedWiring;
using sim::RoleWorld;
using sim::WorldConfig;

constexpr Step kFirst = 12, kAll = 20;  // multiples of the windows and local steps below

at::Tensor pull(Rank rank, Step step, const at::Tensor& z) {
  return z - (at::arange(z.numel(), at::kFloat) * 0.3 + (rank - 0.2 * static_cast<double>(step)));
}

WorldConfig config_of(const PressedWiring& wiring, std::uint64_t seed, Step steps) {
  WorldConfig config = sim::config_of(wiring, seed);
  config.horizon = {steps, 4};
  return config;
}

// Where ranks wait for each other in every step, the end in the middle is not to be seen.
TEST(ExtendedRuns, OfSynchronousWiringsAreTheLongerRuns) {
  const Keys gossip = {{"exchange", "gossip"}};
  const Keys symmetric = gossip + Keys{{"averaging", "symmetric"}, {"update", "after"}};
  const Keys easgd = {{"exchange", "server"}, {"rule", "easgd"}, {"synchronous", "true"}};
  const Keys outer = {{"pack", "difference"},
                      {"local_steps", "2"},
                      {"outer", "momentum"},
                      {"outer_momentum", "0.5"}};
  const std::vector<PressedWiring> wirings = {
      {"Ring", {{"exchange", "aggregate"}}},
      {"LocalDifferences", {{"pack", "difference"}, {"local_steps", "4"}, {"outer", "nesterov"}}},
      {"TopKTree", {{"compress", "top-k"}, {"density", "0.2"}, {"sparse_reduce", "tree"}}},
      {"Partial", {{"exchange", "partial"}, {"staleness", "0"}, {"activation", "solo"}}},
      {"Sgp", gossip},
      {"SgpPeersChange", gossip + Keys{{"peers", "0:1,1:2,4:1"}}},
      {"DPsgdStar", symmetric + Keys{{"topology", "star"}}},
      {"Choco", symmetric + Keys{{"compress", "int8"}}},
      {"OuterStepsAfter", symmetric + outer},
      {"OuterStepsBefore", gossip + Keys{{"averaging", "symmetric"}} + outer},
      {"QuorumOfAllDifferences",
       Keys{{"exchange", "partial"}, {"activation", "quorum"}, {"quorum", "5"}} + outer},
      {"PostLocal", {{"pack", "model"}, {"local_steps", "0:1,2:4"}}},
      {"NoLoCoBySchedule", symmetric + outer + Keys{{"local_steps", "0:2,1:4"}}},
      {"Tracking", gossip + Keys{{"averaging", "symmetric"}, {"tracking", "true"}}},
      {"QuasiGlobal", symmetric + Keys{{"quasi_global", "0.1"}}},
      {"EasgdSynchronous", easgd},
      {"EasgdSynchronousWindow", easgd + Keys{{"local_steps", "4"}, {"servers", "3"}}},
      {"Nodes", gossip + Keys{{"hierarchy", "2"}}, 6}};
  for (const PressedWiring& wiring : wirings)
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(wiring.name + ", seed=" + std::to_string(seed));
      RoleWorld whole(config_of(wiring, seed, kAll), pull),
          first(config_of(wiring, seed, kFirst), pull),
          second(config_of(wiring, seed + 7, kAll), pull);
      for (RoleWorld* world : {&whole, &first}) {
        world->start();
        world->run();
      }
      second.resume(first);
      second.run();
      for (Rank rank = 0; rank < all_ranks_of(wiring.plan(), wiring.ranks); ++rank) {
        EXPECT_TRUE(second.finished(rank)) << "rank " << rank;
        EXPECT_TRUE(at::equal(second.z(rank), whole.z(rank))) << "rank " << rank;
        EXPECT_EQ(second.model(rank).step, whole.model(rank).step) << "rank " << rank;
        EXPECT_DOUBLE_EQ(second.model(rank).epoch, whole.model(rank).epoch) << "rank " << rank;
      }
    }
}

// Where H does not divide the first end, a quorum of all stays the run of all-reduce, extended
// alike.
TEST(ExtendedRuns, QuorumsOfAllStayAllReduceAfterAShortLastExchange) {
  const Keys outer = {{"pack", "difference"}, {"local_steps", "8"}, {"outer", "nesterov"}};
  const PressedWiring wirings[] = {
      {"QuorumOfAll",
       Keys{{"exchange", "partial"}, {"activation", "quorum"}, {"quorum", "5"}} + outer},
      {"AllReduce", Keys{{"exchange", "aggregate"}} + outer}};
  std::vector<at::Tensor> ends;
  for (const PressedWiring& wiring : wirings) {
    RoleWorld first(config_of(wiring, 2, 12), pull), second(config_of(wiring, 3, 40), pull);
    first.start();
    first.run();
    second.resume(first);
    second.run();
    EXPECT_TRUE(second.finished(0));
    ends.push_back(second.z(0));
  }
  EXPECT_TRUE(at::equal(ends[0], ends[1])) << ends[0] << ends[1];
}

std::int64_t committed(const RoleWorld& world, Rank rank) {
  std::int64_t count = 0;
  for (const Event& event : world.events(rank)) count += event.kind == EventKind::committed;
  return count;
}

// Whoever was ahead or behind at the end: all come to the new one, with each gradient once, and
// speak to each other on the way.
TEST(ExtendedRuns, OfEveryWiringComeToTheirNewEnd) {
  for (const PressedWiring& wiring : sim::pressed_wirings())
    for (std::uint64_t seed = 1; seed <= 2; ++seed) {
      SCOPED_TRACE(wiring.name + ", seed=" + std::to_string(seed));
      WorldConfig config = config_of(wiring, seed, 11);
      config.slowness = {{0, 0.3}, {wiring.ranks - 1, 0.95}};
      RoleWorld first(config, pull);
      first.start();
      first.run();
      config.horizon.steps = kAll;
      RoleWorld second(config, pull);
      std::int64_t sent = 0;
      second.watch([&](const Envelope& e, bool delivered) {
        sent += !delivered && !std::holds_alternative<Leave>(e.payload);
      });
      second.resume(first);
      second.run();
      const Plan plan = wiring.plan();
      for (Rank rank = 0; rank < all_ranks_of(plan, wiring.ranks); ++rank) {
        EXPECT_TRUE(second.finished(rank)) << "rank " << rank;
        if (rank < wiring.ranks && plan.role->plans_each_rank) {
          EXPECT_EQ(committed(second, rank), kAll - 11) << "rank " << rank;
          EXPECT_EQ(second.model(rank).step, kAll) << "rank " << rank;
        }
      }
      EXPECT_GT(sent, wiring.ranks / plan.hierarchy * 2) << "the ranks stopped talking";
      if (sim::is_role(plan, "gossip")) {
        EXPECT_NEAR(second.total_w(), wiring.ranks, 1e-9);
      }
    }
}

}  // namespace extended_runs_test
}  // namespace grapevine
