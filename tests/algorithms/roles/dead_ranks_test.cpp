// Deaths as the actors deliver them: news that come to each rank by itself, after the messages that
// reached it and before nothing else of the dead rank.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace dead_ranks_test {

using sim::Keys;
using sim::OnTheWire;
using sim::pull;
using sim::RoleWorld;
using sim::scatter;
using sim::WorldConfig;

constexpr OnTheWire kFates[] = {OnTheWire::delivered, OnTheWire::lost};

std::string name_of(OnTheWire fate) {
  return fate == OnTheWire::delivered ? "delivered" : "lost on the wire";
}

WorldConfig make_config(const Keys& keys, std::int32_t ranks, std::uint64_t seed) {
  WorldConfig config;
  config.plan = sim::plan_of(keys);
  config.ranks = ranks;
  config.seed = seed;
  config.horizon = {24, 6};
  config.dimension = 5;
  config.lr = 0.05;
  return config;
}

// The world itself: what was on the wire comes in its order, or not at all.
TEST(DeadRanks, SayWhatWasOnTheWireOrNothing) {
  for (const OnTheWire fate : kFates)
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(name_of(fate) + ", seed=" + std::to_string(seed));
      RoleWorld world(
          make_config({{"exchange", "gossip"}, {"peers", "3"}, {"overlap", "true"}}, 5, seed),
          pull);
      const Rank dead = static_cast<Rank>(seed % 5);
      bool is_dead = false;
      std::map<Rank, std::vector<std::int64_t>> on_the_wire;  // rounds, by receiver
      world.watch([&](const Envelope& envelope, bool delivered) {
        const auto* share = std::get_if<Share>(&envelope.payload);
        if (envelope.from != dead || share == nullptr) return;
        auto& rounds = on_the_wire[envelope.to];
        if (!delivered) {
          EXPECT_FALSE(is_dead) << "a dead rank speaks";
          rounds.push_back(share->round);
          return;
        }
        EXPECT_FALSE(is_dead && fate == OnTheWire::lost);
        ASSERT_FALSE(rounds.empty());
        EXPECT_EQ(share->round, rounds.front());
        rounds.erase(rounds.begin());
      });
      world.start();
      world.run_until(static_cast<std::int64_t>(10 + world.rng()() % 60));
      world.kill(dead, fate);
      is_dead = true;
      world.run();
      for (const auto& [to, rounds] : on_the_wire)
        EXPECT_TRUE(fate == OnTheWire::lost || rounds.empty()) << "lost on the way to " << to;
    }
}

// The others finish, and the mass that they do not have is what the dead rank had or was lost on
// the way from it and to it.
TEST(DeadRanks, GossipFinishesWithoutThemAndAccountsForTheirMass) {
  double lost_on_the_wire = 0;
  for (const Keys& keys : std::vector<Keys>{{},
                                            {{"overlap", "true"}},
                                            {{"overlap", "true"}, {"staleness", "2"}},
                                            {{"peers", "2"}},
                                            {{"averaging", "symmetric"}, {"update", "after"}},
                                            {{"averaging", "symmetric"}, {"topology", "star"}}})
    for (const OnTheWire fate : kFates)
      for (const std::int32_t n : {2, 3, 6, 8})
        for (std::uint64_t seed = 1; seed <= 6; ++seed) {
          SCOPED_TRACE((keys.empty() ? "sgp" : keys.back().second) + ", " + name_of(fate) +
                       ", n=" + std::to_string(n) + ", seed=" + std::to_string(seed));
          RoleWorld world(make_config(sim::operator+({{"exchange", "gossip"}}, keys), n, seed),
                          pull);
          scatter(world, n, 5);
          const at::Tensor x0 = world.total_x();
          world.start();
          world.run_until(static_cast<std::int64_t>(5 + world.rng()() % 60));
          const Rank dead = static_cast<Rank>(world.rng()() % static_cast<std::uint64_t>(n));
          const double held = world.model(dead).w;
          world.kill(dead, fate);
          if (fate == OnTheWire::lost) lost_on_the_wire += world.lost_w() - held;
          world.run([&] {
            ASSERT_NEAR(world.total_w() + world.lost_w(), n, 1e-9);
            at::Tensor x = world.total_x() + world.lost_x();
            if (world.gradients().defined()) x += world.gradients() * 0.05;
            ASSERT_LT((x - x0).abs().max().item<double>(), 1e-3 * n);
          });
          for (Rank r = 0; r < n; ++r) EXPECT_TRUE(r == dead || world.finished(r)) << "rank " << r;
        }
  EXPECT_GT(lost_on_the_wire, 1) << "nothing was on the wire: nothing was tested";
}

TEST(DeadRanks, HoldUpNobody) {
  for (const Keys& keys :
       std::vector<Keys>{{{"exchange", "bilateral"}, {"topology", "bipartite-exponential"}},
                         {{"exchange", "gossip"},
                          {"averaging", "symmetric"},
                          {"topology", "ring"},
                          {"compress", "top-k"},
                          {"density", "0.4"}},
                         {{"exchange", "server"}, {"rule", "gem"}},
                         {{"exchange", "server"}, {"rule", "downpour"}},
                         {{"exchange", "server"}, {"rule", "easgd"}, {"synchronous", "true"}}})
    for (const OnTheWire fate : kFates)
      for (std::uint64_t seed = 1; seed <= 12; ++seed) {
        SCOPED_TRACE(keys.back().second + ", " + name_of(fate) + ", seed=" + std::to_string(seed));
        RoleWorld world(make_config(keys, 6, seed), pull);
        world.start();
        world.run_until(static_cast<std::int64_t>(5 + world.rng()() % 120));
        const Rank dead = static_cast<Rank>(world.rng()() % 6);
        world.kill(dead, fate);
        world.run();
        for (Rank r = 0; r < 6; ++r) EXPECT_TRUE(r == dead || world.finished(r)) << "rank " << r;
      }
}

}  // namespace dead_ranks_test
}  // namespace grapevine
