// What was on its way when a rank died, and bounds that hold across checkpoints.
#include <gtest/gtest.h>

#include <map>

#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace late_messages_test {

using sim::pull;
using sim::RoleWorld;
using sim::WorldConfig;

WorldConfig config_of(const sim::Keys& keys, std::int32_t ranks, std::uint64_t seed) {
  WorldConfig config;
  config.plan = sim::plan_of(keys);
  config.ranks = ranks;
  config.seed = seed;
  config.dimension = 6;
  config.horizon = {20, 5};
  config.lr = 0.1;
  return config;
}

// A difference that had arrived is mixed in with its round, although its sender is gone: the sender
// counts it as told.
TEST(DifferenceGossip, WhatArrivedFromAPeerThatDiedCounts) {
  std::int64_t waited = 0;
  for (const std::string topology : {"ring", "complete"})
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      constexpr std::int32_t kRanks = 4;
      SCOPED_TRACE(topology + ", seed=" + std::to_string(seed));
      WorldConfig config = config_of({{"exchange", "gossip"},
                                      {"averaging", "symmetric"},
                                      {"topology", topology},
                                      {"compress", "int8"}},
                                     kRanks, seed);
      const Rank dead = static_cast<Rank>(seed) % kRanks;
      config.slowness[(dead + 1) % kRanks] = 0.9;  // the others wait for this one
      RoleWorld world(config, pull);
      std::map<Rank, std::int64_t> arrived;  // from `dead`, by receiver, while it lived
      bool is_dead = false;
      world.watch([&](const Envelope& e, bool delivered) {
        if (delivered && e.from == dead && !is_dead) ++arrived[e.to];
      });
      const auto applied = [&](Rank rank) {
        std::int64_t count = 0;
        for (const Event& event : world.events(rank))
          count += event.kind == EventKind::applied && event.peer == dead;
        return count;
      };
      world.start();
      const auto when = static_cast<std::int64_t>(20 + world.rng()() % 150);
      world.run_until(when);
      is_dead = true;
      for (const auto& [rank, count] : arrived) waited += count - applied(rank);
      world.kill(dead);
      world.run();
      for (const auto& [rank, count] : arrived) {
        EXPECT_TRUE(world.finished(rank)) << "rank " << rank;
        EXPECT_GE(applied(rank), count) << "rank " << rank << " forgot a difference";
      }
    }
  EXPECT_GT(waited, 10) << "nothing had arrived and waited: nothing was tested";
}

// A bound on skipped rounds is one on the run, not on what lies between two checkpoints.
TEST(Gossip, SkipsARoundAtMostTauTimesAcrossCheckpoints) {
  for (const int tau : {1, 2, 4}) {
    std::int64_t most = 0;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE("tau=" + std::to_string(tau) + ", seed=" + std::to_string(seed));
      WorldConfig config = config_of(
          {{"exchange", "gossip"}, {"overlap", "true"}, {"staleness", std::to_string(tau)}}, 4,
          seed);
      config.horizon.steps = 40;
      config.slowness[3] = 0.97;
      RoleWorld world(config, pull);
      world.start();
      while (!world.finished(0) && !world.finished(1) && !world.finished(2) && !world.finished(3)) {
        if (world.event_count() % 3 == 0) world.save_and_load();
        if (!world.step()) break;
      }
      std::int64_t longest = 0;
      for (Rank rank = 0; rank < 4; ++rank) {
        Step newest = 0;
        for (const Event& event : world.events(rank))
          if (event.kind == EventKind::applied) {
            longest = std::max(longest, event.step - newest);
            newest = event.step;
          }
      }
      EXPECT_LE(longest, tau + 1);
      most = std::max(most, longest);
    }
    EXPECT_EQ(most, tau + 1) << "no round was skipped tau times: nothing was tested";
  }
}

// A rank that runs ahead asks one partner after the other of each round, restarts or not.
TEST(Bilateral, AsksAllPartnersOfARoundInTheirOrder) {
  for (const bool saved : {false, true})
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE("seed=" + std::to_string(seed));
      constexpr std::int32_t kRanks = 8;
      WorldConfig config = config_of(
          {{"exchange", "bilateral"}, {"topology", "bipartite-exponential"}, {"peers", "2"}},
          kRanks, seed);
      RoleWorld world(config, pull);
      const auto graph =
          *GossipGraph::make("bipartite-exponential", *CountSchedule::parse("2"), kRanks, 5);
      std::map<Rank, std::vector<Rank>> asked;
      world.watch([&](const Envelope& e, bool delivered) {
        if (const auto* swap = std::get_if<Swap>(&e.payload); swap && !swap->reply && !delivered)
          asked[e.from].push_back(e.to);
      });
      world.start();
      do {
        if (saved && world.event_count() % 5 == 0) world.save_and_load();
      } while (world.step());
      EXPECT_EQ(asked.size(), kRanks / 2U);
      for (const auto& [rank, partners] : asked) {
        std::vector<Rank> expected;
        for (std::int64_t round = 0; expected.size() < partners.size(); ++round)
          for (const Rank peer : graph->neighbors(round, rank)) expected.push_back(peer);
        expected.resize(partners.size());
        EXPECT_GT(partners.size(), 3U);
        EXPECT_EQ(partners, expected) << "rank " << rank;
      }
    }
}

}  // namespace late_messages_test
}  // namespace grapevine
