// Whatever the wiring, a rank that stops is the root of the waits of all others that wait.
#include <gtest/gtest.h>

#include "actors/run/supervision/waits/wait_chain.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "tests/sim/short_runs.hpp"

namespace grapevine {
namespace stalled_roles_test {

using sim::operator+;

std::map<Rank, RankWait> reports(const sim::RoleWorld& world, std::int32_t ranks, Rank stalled) {
  std::map<Rank, RankWait> known;
  for (Rank rank = 0; rank < ranks; ++rank) {
    RankWait& one = known[rank];
    one.finished = world.finished(rank);
    if (rank == stalled) continue;
    one.report.emplace();
    one.report->rank = rank;
    if (world.computes(rank)) one.report->computing_ns = 1;
    one.report->waits = world.role(rank).waits();
  }
  return known;
}

struct Found {
  int waits = 0;   // of ranks, at the end of a run
  int rooted = 0;  // of them lead to the stopped rank
};

// Random moments: then a rank stops, and the others go as far as they can.
Found stop_one(const sim::Keys& keys, std::int32_t ranks) {
  Found found;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    const sim::WorldConfig config = sim::short_config(keys, ranks, 20, seed);
    const std::int32_t all = ranks + config.plan.servers;
    sim::RoleWorld world(config, sim::pull_beyond);
    world.start();
    world.run_until(static_cast<std::int64_t>(world.rng()() % 150));
    const auto stalled = static_cast<Rank>(world.rng()() % static_cast<std::uint64_t>(all));
    world.stall(stalled);
    for (int event = 0; event < 20'000 && !world.waits_for_a_timer() && world.step(); ++event) {
    }
    const std::map<Rank, RankWait> known = reports(world, all, stalled);
    for (Rank rank = 0; rank < ranks; ++rank) {
      if (rank == stalled || known.at(rank).report->waits.empty()) continue;
      ++found.waits;
      const WaitChain chain = find_wait_chain(rank, known);
      const bool rooted = chain.ranks.back() == stalled && chain.root == WaitChain::Root::no_answer;
      EXPECT_TRUE(rooted) << text_of(chain, known, 1) << "; rank " << stalled << " is stopped";
      found.rooted += rooted;
    }
  }
  return found;
}

TEST(StalledRoles, AreTheRootOfAllWaits) {
  for (const Preset& preset : presets()) {
    SCOPED_TRACE(preset.name);
    const Found found = stop_one(sim::keys_of(preset.name), 4);
    // Pairs wait for nobody; of partial sums no rank waits that is not to begin them.
    const bool waits_at_all = preset.name != "ad-psgd";
    EXPECT_EQ(found.waits > 0, waits_at_all);
  }
}

// Two nodes of two ranks, and groups with a mean of their models.
TEST(StalledRoles, AreTheRootInNodesAndLevels) {
  for (const char* preset : {"ar", "sgp", "topk", "gem"}) {
    SCOPED_TRACE(preset);
    EXPECT_GT(stop_one(sim::keys_of(preset) + sim::Keys{{"hierarchy", "2"}}, 4).rooted, 0);
  }
}

}  // namespace stalled_roles_test
}  // namespace grapevine
