// Ranks of a hierarchy are lost and join at any moment: nodes shrink, lose their heads or all their
// ranks, and take them back, whatever role the heads play.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "algorithms/wiring/nodes.hpp"
#include "tests/sim/changing_wirings.hpp"
#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace changed_nodes_test {

using sim::counts_of;
using sim::distance;
using sim::Keys;
using sim::OnTheWire;
using sim::pull;
using sim::RoleWorld;
using sim::WorldConfig;

TEST(ChangedNodes, ANodeKeepsItsHeadOrJoinsAnew) {
  const std::vector<Rank> heads = {0, 3, 6};
  // Rank 1 is lost; then all of node 1; then the head of node 2.
  NodeChange change = change_nodes(3, {0, 2, 3, 4, 5, 6, 7, 8}, heads, {});
  EXPECT_EQ(change.heads, heads);
  EXPECT_TRUE(change.joining.empty());
  change = change_nodes(3, {0, 2, 6, 7, 8}, heads, {});
  EXPECT_EQ(change.heads, (std::vector<Rank>{0, 6}));
  change = change_nodes(3, {0, 2, 7, 8}, change.heads, {});
  EXPECT_EQ(change.heads, (std::vector<Rank>{0, 7}));
  EXPECT_EQ(change.joining, (std::vector<Rank>{7, 8}));
  // They return: a node that lives keeps its head, also a later rank.
  change = change_nodes(3, {0, 1, 2, 4, 6, 7, 8}, change.heads, {1, 4, 6});
  EXPECT_EQ(change.heads, (std::vector<Rank>{0, 4, 7}));
  EXPECT_EQ(change.joining, (std::vector<Rank>{1, 4, 6}));
}

TEST(ChangedNodes, ARankOrNodeHasItsPositionAmongThoseBefore) {
  using Positions = std::vector<std::int32_t>;
  EXPECT_EQ(positions_before({0, 1, 3}, {0, 1, 2, 3}, {}), (Positions{0, 1, 3}));
  EXPECT_EQ(positions_before({1, 2}, {0, 1, 2, 3}, {}), (Positions{1, 2}));
  EXPECT_EQ(positions_before({0, 1, 2, 3}, {0, 1, 3}, {2}), (Positions{0, 1, -1, 2}));
  EXPECT_EQ(positions_before({0, 1, 3}, {0, 1, 2, 3}, {3}), (Positions{0, 1, -1}))
      << "it was among them, and joins anew";
  EXPECT_EQ(positions_before({0, 4, 7}, {0, 7}, {4}), (Positions{0, -1, 1})) << "heads of nodes";
  EXPECT_EQ(positions_before({}, {0, 1}, {}), Positions());
}

// The wirings of flat ranks, of 4 nodes of 2 or 3 ranks.
std::vector<Keys> wirings(std::int32_t size) {
  std::vector<Keys> all = sim::changing_wirings();
  for (Keys& keys : all) keys = sim::operator+(keys, {{"hierarchy", std::to_string(size)}});
  return all;
}

// Rank 0 never dies, as in a run.
void lose_one(RoleWorld& world, std::uint64_t seed, bool of_heads) {
  std::vector<Rank> candidates = of_heads ? world.heads() : world.members();
  candidates.erase(std::remove(candidates.begin(), candidates.end(), 0), candidates.end());
  if (candidates.empty()) return;
  world.kill(candidates[world.rng()() % candidates.size()],
             seed % 3 == 0 ? OnTheWire::lost : OnTheWire::delivered);
}

// All that remain finish; each gradient that a worker gave is committed or dropped once; waits end;
// a node agrees, and where heads replicate one model all do.
TEST(ChangedNodes, RemainingRanksFinishAndAccountForTheirGradients) {
  int shrunk = 0, headless = 0;
  for (const std::int32_t size : {2, 3})
    for (const Keys& keys : wirings(size))
      for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        SCOPED_TRACE(sim::name_of(keys) + ", seed=" + std::to_string(seed));
        const std::int32_t n = 4 * size;
        WorldConfig config = sim::changing_config(keys, n, seed);
        if (seed % 4 == 0) config.slowness[1] = 0.9;
        std::map<Rank, std::int64_t> given;
        RoleWorld world(config, [&](Rank rank, Step step, const at::Tensor& z) {
          ++given[rank];
          return pull(rank, step, z);
        });
        world.start();
        std::int64_t before = 0;
        for (int deaths = 0; deaths < 3; ++deaths) {
          world.run_until(before += static_cast<std::int64_t>(world.rng()() % 300));
          const std::vector<Rank> heads = world.heads();
          lose_one(world, seed, deaths == 1);
          world.run_until(before += static_cast<std::int64_t>(world.rng()() % 20));
          world.change_members();
          shrunk += world.heads() == heads;
          headless += world.heads() != heads;
        }
        world.run();
        const Rank first = world.heads().front();
        for (const Rank r : world.members()) {
          ASSERT_TRUE(world.finished(r)) << "rank " << r;
          const auto counts = counts_of(world, r);
          const auto of = [&counts](EventKind kind) {
            const auto found = counts.find(kind);
            return found == counts.end() ? 0 : found->second;
          };
          EXPECT_EQ(of(EventKind::committed) + of(EventKind::dropped), given[r]) << "rank " << r;
          EXPECT_EQ(of(EventKind::wait_begin), of(EventKind::wait_end)) << "rank " << r;
          EXPECT_TRUE(at::isfinite(world.z(r)).all().item<bool>()) << "rank " << r;
          if (config.plan.role->plans_each_rank && !config.horizon.by_samples) {
            EXPECT_EQ(world.model(r).step, config.horizon.steps) << "rank " << r;
          }
          for (const Rank head : world.heads())
            if (head / size == r / size) {
              EXPECT_EQ(distance(world.z(r), world.z(head)), 0) << "rank " << r;
            }
          if (config.plan.role->replicates) {
            EXPECT_EQ(distance(world.z(r), world.z(first)), 0) << "rank " << r;
          }
        }
      }
  EXPECT_GT(shrunk, 100) << "no node has shrunk: nothing was tested";
  EXPECT_GT(headless, 100) << "no node has lost its head: nothing was tested";
}

// A naive oracle: x <- x - lr * mean over nodes of the mean gradient of its members of that step.
TEST(ChangedNodes, ANodeIsTheMeanOfItsPresentMembers) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    const WorldConfig config =
        sim::changing_config({{"exchange", "aggregate"}, {"hierarchy", "2"}}, 6, seed);
    RoleWorld world(config, pull);
    world.start();
    std::vector<std::pair<Step, std::vector<Rank>>> views = {{0, world.members()}};
    std::int64_t events = 0;
    for (int deaths = 0; deaths < 2; ++deaths) {
      world.run_until(events += static_cast<std::int64_t>(world.rng()() % 400));
      lose_one(world, seed, deaths == 0);
      world.change_members();
      views.emplace_back(world.parts()->horizon.first_step, world.members());
    }
    world.run();
    double x = 0;
    std::size_t view = 0;
    for (Step step = 0; step < world.parts()->horizon.steps; ++step) {
      while (view + 1 < views.size() && views[view + 1].first <= step) ++view;
      std::map<Rank, std::pair<double, int>> nodes;
      for (const Rank r : views[view].second) {
        nodes[r / 2].first += x - r;
        ++nodes[r / 2].second;
      }
      double sum = 0;
      for (const auto& [node, gradients] : nodes) sum += gradients.first / gradients.second;
      x -= sim::kChangingRate * sum / static_cast<double>(nodes.size());
    }
    for (const Rank r : world.members()) EXPECT_NEAR(world.z(r)[0].item<double>(), x, 1e-5);
  }
}

double weight_of_heads(const RoleWorld& world) {
  double w = 0;
  for (const Rank head : world.heads()) w += world.model(head).w;
  return w;
}

// Where weights carry mass, nodes that join share that of others: the heads' weights add up as
// before.
TEST(ChangedNodes, RanksReturnToTheirNodes) {
  for (const Keys& keys : wirings(3))
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE(sim::name_of(keys) + ", seed=" + std::to_string(seed));
      RoleWorld world(sim::changing_config(keys, 9, seed), pull);
      world.start();
      std::int64_t events = 0;
      std::vector<Rank> lost;
      for (int deaths = 0; deaths < 3; ++deaths) {
        world.run_until(events += static_cast<std::int64_t>(20 + world.rng()() % 60));
        const std::vector<Rank> up = world.members();
        lose_one(world, seed, deaths < 2);
        world.change_members();
        for (const Rank rank : up)
          if (!std::binary_search(world.members().begin(), world.members().end(), rank))
            lost.push_back(rank);
      }
      world.run_until(events += 40);
      std::sort(lost.begin(), lost.end());
      double before = 0, after = 0;
      world.change_members({}, [&] { before = weight_of_heads(world); });
      world.change_members(lost, [&] { after = weight_of_heads(world); });
      EXPECT_EQ(world.members().size(), 9U);
      EXPECT_EQ(world.heads().size(), 3U);
      if (world.parts()->plan.role->keeps_mass(world.parts()->plan)) {
        EXPECT_NEAR(after, before, 1e-9);
      }
      for (const Rank r : world.members())
        if (!std::binary_search(world.heads().begin(), world.heads().end(), r)) {
          EXPECT_EQ(world.model(r).w, 1) << "rank " << r << " follows";
        }
      world.run();
      for (const Rank r : world.members()) {
        EXPECT_TRUE(world.finished(r)) << "rank " << r;
        EXPECT_TRUE(at::isfinite(world.z(r)).all().item<bool>()) << "rank " << r;
      }
    }
}

}  // namespace changed_nodes_test
}  // namespace grapevine
