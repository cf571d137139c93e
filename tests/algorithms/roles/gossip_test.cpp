// The invariants of gossip (Assran et al. 2019, Lian et al. 2017), with messages in flight.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <limits>

#include "algorithms/roles/gossip/gossip.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "tests/algorithms/graphs/symmetric_matrix.hpp"
#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace gossip_test {

using sim::distance;
using sim::pull;
using sim::RoleWorld;
using sim::scatter;
using sim::WorldConfig;

const std::vector<std::int32_t> kRanks = {1, 2, 3, 4, 5, 6, 7, 8, 16, 32};

Plan make_plan(const sim::Keys& keys) {
  return sim::plan_of(sim::operator+({{"exchange", "gossip"}}, keys));
}

Plan sgp() { return make_plan({}); }
Plan osgp(int staleness = 0) {
  return make_plan({{"overlap", "true"}, {"staleness", std::to_string(staleness)}});
}

WorldConfig make_config(const Plan& plan, std::int32_t ranks, std::uint64_t seed) {
  WorldConfig config;
  config.plan = plan;
  config.ranks = ranks;
  config.seed = seed;
  config.horizon.steps = 24;
  config.horizon.steps_per_epoch = 6;
  config.dimension = 5;
  return config;
}

at::Tensor nothing(Rank, Step, const at::Tensor& z) { return at::zeros_like(z); }

Plan d_psgd(const std::string& topology = "exponential") {
  return make_plan({{"averaging", "symmetric"}, {"update", "after"}, {"topology", topology}});
}

struct Mode {
  const char* name;
  Plan plan;
};
std::vector<Mode> all_modes() {
  return {{"sgp", sgp()},
          {"sgp p=2", make_plan({{"peers", "2"}})},
          {"sgp p=1 then 2 then 1", make_plan({{"peers", "0:1,1:2,3:1"}})},
          {"sgp ring", make_plan({{"topology", "ring"}})},
          {"sgp star", make_plan({{"topology", "star"}})},
          {"osgp", osgp()},
          {"osgp tau=1", osgp(1)},
          {"osgp tau=3", osgp(3)},
          {"osgp tau=2, p=1 then 3",
           make_plan({{"overlap", "true"}, {"staleness", "2"}, {"peers", "0:1,2:3"}})},
          {"d-psgd", d_psgd()},
          {"d-psgd ring", d_psgd("ring")},
          {"d-psgd star", d_psgd("star")},
          {"d-psgd grid2d", d_psgd("grid2d")},
          {"d-psgd p=1 then 3",
           make_plan({{"averaging", "symmetric"}, {"update", "after"}, {"peers", "0:1,1:3,2:1"}})},
          {"symmetric, update before",
           make_plan({{"averaging", "symmetric"}, {"topology", "bidirectional-exponential"}})},
          {"symmetric tau=2",
           make_plan({{"averaging", "symmetric"}, {"overlap", "true"}, {"staleness", "2"}})},
          {"push-sum, update after", make_plan({{"update", "after"}, {"topology", "star"}})}};
}

// Sum of w, and sum of x + lr * sum of gradients, are conserved at every moment.
TEST(Gossip, ConservesMassWithMessagesInFlight) {
  for (const Mode& mode : all_modes())
    for (const std::int32_t n : kRanks) {
      if (!sim::has_peers(mode.plan, n)) continue;
      const std::uint64_t seed = 100 + static_cast<std::uint64_t>(n);
      SCOPED_TRACE(std::string(mode.name) + ", n=" + std::to_string(n) +
                   ", seed=" + std::to_string(seed));
      WorldConfig config = make_config(mode.plan, n, seed);
      config.lr = 0.125;
      config.slowness[n - 1] = 0.9;
      RoleWorld world(config, pull);
      scatter(world, n, config.dimension);
      const at::Tensor x0 = world.total_x();
      world.start();
      world.run([&] {
        ASSERT_NEAR(world.total_w(), n, 1e-9);
        const at::Tensor pulled =
            world.gradients().defined() ? world.gradients() * config.lr : at::zeros_like(x0);
        ASSERT_LT(distance(world.total_x() + pulled, x0), 1e-3 * n);
      });
      for (Rank r = 0; r < n; ++r) EXPECT_TRUE(world.finished(r)) << "rank " << r;
    }
}

TEST(Gossip, KeepsTheMeanAndNeverSpreadsWithoutGradients) {
  for (const Mode& mode : all_modes())
    for (const std::int32_t n : kRanks) {
      if (!sim::has_peers(mode.plan, n)) continue;
      SCOPED_TRACE(std::string(mode.name) + ", n=" + std::to_string(n));
      WorldConfig config = make_config(mode.plan, n, 7);
      config.horizon.steps = 60;
      RoleWorld world(config, nothing);
      scatter(world, n, config.dimension);
      const at::Tensor mean = world.total_x() / n;
      world.start();
      const double spread = 1.5 * (n - 1);  // of the start: averaging takes nobody farther out
      world.run([&] {
        if (world.event_count() % n != 0) return;  // about once a step
        for (Rank r = 0; r < n; ++r) ASSERT_LE(distance(world.z(r), mean), spread + 1e-3);
      });
      at::Tensor after = at::zeros_like(mean);
      double w = 0;
      for (Rank r = 0; r < n; ++r) {
        after += world.model(r).x.read().to(at::kDouble);
        w += world.model(r).w;
      }
      EXPECT_LT(distance(after / w, mean), 1e-4);  // nothing is left in flight at the end
      // A ring of 16 contracts by cos(pi/16) per round only.
      for (Rank r = 0; r < n && n <= 8; ++r) {
        EXPECT_LT(distance(world.z(r), mean), 0.5);
      }
    }
}

// Where rounds may be skipped, ranks take gradients at different moments; where the graph is
// irregular, their weights differ and so do their steps gamma u / w in z: no such promise there.
TEST(Gossip, EqualRanksStayEqual) {
  for (const Mode& mode : all_modes())
    for (const std::int32_t n : {2, 3, 4, 8}) {
      if (!sim::has_peers(mode.plan, n)) continue;
      const bool uneven =
          mode.plan.graph.topology == "star" &&
          data_as<GossipSettings>(mode.plan.settings).averaging == MixingRule::push_sum;
      if (data_as<GossipSettings>(mode.plan.settings).staleness.most() > 0 || uneven) continue;
      SCOPED_TRACE(std::string(mode.name) + ", n=" + std::to_string(n));
      WorldConfig config = make_config(mode.plan, n, 3);
      config.lr = 0.1;
      RoleWorld world(config, [](Rank, Step, const at::Tensor& z) { return z - 1.0; });
      world.start();
      world.run();
      for (Rank r = 1; r < n; ++r) EXPECT_LT(distance(world.z(r), world.z(0)), 1e-5);
    }
}

// The bits do not depend on which message comes first, where the algorithm is synchronous.
TEST(Gossip, SynchronousResultsDoNotDependOnArrivalOrder) {
  for (const Plan& plan : {sgp(), make_plan({{"peers", "3"}}), osgp(), d_psgd(), d_psgd("star")})
    for (const std::int32_t n : {3, 4, 7, 8}) {
      if (!sim::has_peers(plan, n)) continue;
      std::vector<at::Tensor> first;
      for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        SCOPED_TRACE("n=" + std::to_string(n) + ", seed=" + std::to_string(seed));
        WorldConfig config = make_config(plan, n, seed);
        config.lr = 0.1;
        config.optimizer.momentum = 0.9;
        RoleWorld world(config, pull);
        scatter(world, n, config.dimension);
        world.start();
        world.run();
        for (Rank r = 0; r < n; ++r) {
          if (seed == 1)
            first.push_back(world.z(r));
          else
            ASSERT_TRUE(at::equal(world.z(r), first[static_cast<std::size_t>(r)])) << "rank " << r;
        }
      }
    }
}

TEST(Gossip, CompleteGraphEqualsAllReduceWithoutMomentum) {
  for (const std::int32_t n : {1, 2, 3, 5, 8}) {
    SCOPED_TRACE("n=" + std::to_string(n));
    WorldConfig gossip = make_config(make_plan({{"topology", "complete"}}), n, 5);
    gossip.lr = 0.1;
    WorldConfig reduce = gossip;
    reduce.plan = *resolve(Wiring{});
    RoleWorld a(gossip, pull), b(reduce, pull);
    for (RoleWorld* world : {&a, &b}) {
      world->start();
      world->run();
    }
    for (Rank r = 0; r < n; ++r) EXPECT_LT(distance(a.z(r), b.z(r)), 1e-5);
  }
}

// z <- W_k z - gamma g(z), in double precision, with the topology's own matrices.
TEST(Gossip, DPsgdFollowsItsEquation) {
  for (const std::string topology : {"exponential", "ring", "star", "grid2d", "complete"})
    for (const std::int32_t n : kRanks) {
      SCOPED_TRACE(topology + ", n=" + std::to_string(n));
      WorldConfig config = make_config(d_psgd(topology), n, 21);
      config.lr = 0.1;
      RoleWorld world(config, pull);
      scatter(world, n, config.dimension);
      std::vector<at::Tensor> rows;
      for (Rank r = 0; r < n; ++r) rows.push_back(world.z(r).to(at::kDouble));
      at::Tensor z = at::stack(rows);  // [n, d]
      const at::Tensor own = at::arange(n, at::kDouble).unsqueeze(1);
      const auto graph = make_topology(topology, n, 1);
      for (Step k = 0; k < config.horizon.steps; ++k) {
        const at::Tensor w = at::tensor(symmetric_matrix(**graph, k), at::kDouble).view({n, n});
        z = at::mm(w, z) - config.lr * (z - own);
      }
      world.start();
      world.run();
      for (Rank r = 0; r < n; ++r) EXPECT_LT(distance(world.z(r), z[r]), 1e-4) << "rank " << r;
    }
}

// The oracle of push-sum: x' and w' are W_k x and W_k w, z = x/w, in double precision.
class PushSumOracle {
 public:
  PushSumOracle(const std::string& topology, std::int32_t n, std::int32_t peers, at::Tensor x)
      : n_(n), graph_(*make_topology(topology, n, peers)), x_(std::move(x)) {}

  // x <- x - lr (z - own), the gradient that `pull` gives at z.
  void step(const at::Tensor& z, double lr) {
    x_ = x_ - lr * (z - at::arange(n_, at::kDouble).unsqueeze(1));
  }
  void mix(std::int64_t round) {
    const at::Tensor w = at::tensor(graph_->mixing_matrix(round), at::kDouble).view({n_, n_});
    x_ = at::mm(w, x_);
    w_ = at::mm(w, w_.defined() ? w_ : at::ones({n_, 1}, at::kDouble));
  }
  at::Tensor z() const { return w_.defined() ? x_ / w_ : x_; }

 private:
  const std::int64_t n_;
  const std::shared_ptr<const Topology> graph_;
  at::Tensor x_, w_;  // [n, d], [n, 1]
};

struct DirectedGraph {
  std::string topology;
  std::int32_t peers;
  std::vector<std::int32_t> ranks;
};

// Among them graphs that differ from their transposes, and ranks whose weights are not 1.
std::vector<DirectedGraph> directed_graphs() {
  // Tests run side by side: a file for each.
  const std::string own = testing::TempDir() + "/" +
                          testing::UnitTest::GetInstance()->current_test_info()->name() + ".txt";
  std::ofstream(own) << "0 -> 1\n1 -> 2\n2 -> 0\n0 -> 2\n2 -> 3\n3 -> 1\n";
  return {{"exponential", 1, kRanks}, {"exponential", 2, kRanks}, {"linear", 1, {3, 5, 8}},
          {"ring", 1, {3, 4, 7}},     {"star", 1, {2, 3, 6}},     {"file:" + own, 1, {4}}};
}

at::Tensor start_of(const RoleWorld& world, std::int32_t n) {
  std::vector<at::Tensor> rows;
  for (Rank r = 0; r < n; ++r) rows.push_back(world.z(r).to(at::kDouble));
  return at::stack(rows);
}

void expect_push_sum(const Plan& base,
                     const std::function<void(PushSumOracle&, Step, double)>& step) {
  for (const DirectedGraph& graph : directed_graphs())
    for (const std::int32_t n : graph.ranks) {
      SCOPED_TRACE(graph.topology + ", p=" + std::to_string(graph.peers) +
                   ", n=" + std::to_string(n));
      Plan plan = base;
      plan.graph.topology = graph.topology;
      plan.graph.peers = *CountSchedule::parse(std::to_string(graph.peers));
      WorldConfig config = make_config(plan, n, 31);
      config.lr = 0.1;
      RoleWorld world(config, pull);
      scatter(world, n, config.dimension);
      PushSumOracle oracle(graph.topology, n, graph.peers, start_of(world, n));
      for (Step k = 0; k < config.horizon.steps; ++k) step(oracle, k, config.lr);
      world.start();
      world.run();
      for (Rank r = 0; r < n; ++r)
        EXPECT_LT(distance(world.z(r), oracle.z()[r]), 1e-4 * n) << "rank " << r;
    }
}

// Assran et al. 2019, Algorithm 1: a step from z, then the round.
TEST(Gossip, SgpFollowsItsEquation) {
  expect_push_sum(sgp(), [](PushSumOracle& oracle, Step k, double lr) {
    oracle.step(oracle.z(), lr);
    oracle.mix(k);
  });
}

// Algorithm 2 with tau = 0: the gradient is taken at what the rank held when the round began.
TEST(Gossip, OsgpFollowsItsEquation) {
  expect_push_sum(osgp(), [](PushSumOracle& oracle, Step k, double lr) {
    const at::Tensor z = oracle.z();
    oracle.mix(k);
    oracle.step(z, lr);
  });
}

// Where both weigh evenly, push-sum and symmetric gossip are the same algorithm, to the last bit.
TEST(Gossip, SgpEqualsSymmetricGossipOnTheSameMatrices) {
  for (const std::string topology : {"hypercube", "bipartite-exponential", "complete"})
    for (const std::int32_t n : {1, 2, 4, 8, 16, 32}) {
      SCOPED_TRACE(topology + ", n=" + std::to_string(n));
      WorldConfig pushed = make_config(make_plan({{"topology", topology}}), n, 9);
      pushed.lr = 0.1;
      pushed.optimizer.momentum = 0.9;
      WorldConfig swapped = pushed;
      swapped.plan = make_plan({{"topology", topology}, {"averaging", "symmetric"}});
      RoleWorld a(pushed, pull), b(swapped, pull);
      for (RoleWorld* world : {&a, &b}) {
        scatter(*world, n, pushed.dimension);
        world->start();
        world->run();
      }
      for (Rank r = 0; r < n; ++r) EXPECT_TRUE(at::equal(a.z(r), b.z(r))) << "rank " << r;
    }
}

// Without the weight, a regular graph loses nothing and an irregular one agrees on something else
// than the mean.
TEST(Gossip, BiasedIsRightOnRegularGraphsOnly) {
  const auto last_models = [](const std::string& topology, const std::string& averaging) {
    WorldConfig config = make_config(
        make_plan({{"topology", topology}, {"averaging", averaging}, {"overlap", "true"}}), 6, 13);
    config.horizon.steps = 60;
    RoleWorld world(config, nothing);
    scatter(world, 6, config.dimension);
    const at::Tensor mean = world.total_x() / 6;
    world.start();
    world.run();
    return std::make_pair(world.z(0), distance(world.z(0), mean));
  };
  EXPECT_TRUE(at::equal(last_models("exponential", "biased").first,
                        last_models("exponential", "push-sum").first));
  EXPECT_LT(last_models("star", "push-sum").second, 1e-3);
  EXPECT_GT(last_models("star", "biased").second, 1.0);
}

TEST(Gossip, StalenessIsWhatThePapersSay) {
  for (const auto& [plan, expected] :
       std::vector<std::pair<Plan, std::int64_t>>{{sgp(), 0}, {osgp(), 1}, {d_psgd(), 0}}) {
    WorldConfig config = make_config(plan, 4, 11);
    RoleWorld world(config, pull);
    world.start();
    world.run();
    for (Rank r = 0; r < 4; ++r)
      for (const Event& event : world.events(r))
        if (event.kind == EventKind::applied && event.step < config.horizon.steps) {
          EXPECT_EQ(event.staleness, expected) << "rank " << r << ", step " << event.step;
        }
  }
}

// No rank takes more than tau + 1 steps between two of its own rounds, however slow its peers are.
TEST(Gossip, SkipsARoundAtMostTauTimes) {
  for (const int tau : {0, 1, 2, 5})
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      SCOPED_TRACE("tau=" + std::to_string(tau) + ", seed=" + std::to_string(seed));
      WorldConfig config = make_config(osgp(tau), 4, seed);
      config.slowness[3] = 0.97;
      RoleWorld world(config, pull);
      world.start();
      const auto someone_finished = [&] {
        return world.finished(0) || world.finished(1) || world.finished(2) || world.finished(3);
      };
      // Who is done takes no part any more: what comes then says nothing about tau.
      while (!someone_finished() && world.step()) {
      }
      std::int64_t longest = 0;
      for (Rank r = 0; r < 4; ++r) {
        Step newest_fold = 0;
        for (const Event& event : world.events(r))
          if (event.kind == EventKind::applied) {
            longest = std::max(longest, event.step - newest_fold);
            newest_fold = event.step;
          }
      }
      EXPECT_LE(longest, tau + 1);
      if (tau > 0) {
        EXPECT_GT(longest, 1) << "the straggler was never skipped: nothing was tested";
      }
    }
}

// The bound is for rounds in a row: after one that was waited for, the next may be skipped again.
TEST(Gossip, SkipsRoundsAllTheWay) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    WorldConfig config = make_config(osgp(2), 4, seed);
    config.slowness[3] = 0.97;
    RoleWorld world(config, pull);
    world.start();
    while (!world.finished(0) && world.step()) {
    }
    std::int64_t late = 0, folds = 0, newest = 0;
    for (Rank r = 0; r < 3; ++r)
      for (const Event& event : world.events(r))
        if (event.kind == EventKind::applied) {
          if (event.step < newest) newest = 0;  // the next rank's
          late += event.step > config.horizon.steps / 2 && event.step - newest > 1;
          newest = event.step;
          ++folds;
        }
    EXPECT_GT(late, 0) << "of " << folds << " folds";
  }
}

TEST(Gossip, GoesOnWithoutADeadPeerAndAccountsForItsMass) {
  for (const Plan& plan : {sgp(), osgp(), osgp(2), d_psgd(), d_psgd("star")})
    for (const std::int32_t n : {2, 3, 4, 6, 8})
      for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        SCOPED_TRACE("n=" + std::to_string(n) + ", seed=" + std::to_string(seed));
        WorldConfig config = make_config(plan, n, seed);
        config.lr = 0.05;
        RoleWorld world(config, pull);
        scatter(world, n, config.dimension);
        const at::Tensor x0 = world.total_x();
        world.start();
        const auto when = static_cast<std::int64_t>(5 + world.rng()() % 60);
        world.run_until(when);
        const Rank dead = static_cast<Rank>(world.rng()() % static_cast<std::uint64_t>(n));
        world.kill(dead);
        world.run([&] {
          ASSERT_NEAR(world.total_w() + world.lost_w(), n, 1e-9);
          at::Tensor x = world.total_x() + world.lost_x();
          if (world.gradients().defined()) x += world.gradients() * config.lr;
          ASSERT_LT(distance(x, x0), 1e-3 * n);
        });
        for (Rank r = 0; r < n; ++r) EXPECT_TRUE(r == dead || world.finished(r)) << "rank " << r;
      }
}

// Save and load at any moment, with shares in flight and gradients outstanding, changes no bit.
TEST(Gossip, SaveAndLoadChangeNothing) {
  for (const Plan& plan :
       {sgp(), make_plan({{"peers", "0:1,1:2"}}), osgp(), d_psgd(), d_psgd("star")})
    for (std::uint64_t seed = 1; seed <= 12; ++seed) {
      SCOPED_TRACE("seed=" + std::to_string(seed));
      WorldConfig config = make_config(plan, 5, seed);
      config.lr = 0.1;
      config.optimizer.momentum = 0.9;
      RoleWorld straight(config, pull), broken(config, pull);
      for (RoleWorld* world : {&straight, &broken}) {
        scatter(*world, 5, config.dimension);
        world->start();
      }
      straight.run();
      const auto when = static_cast<std::int64_t>(1 + broken.rng()() % 200);
      broken.run_until(when);
      broken.save_and_load();
      broken.run([&] { ASSERT_NEAR(broken.total_w(), 5, 1e-9); });
      for (Rank r = 0; r < 5; ++r) EXPECT_TRUE(at::equal(straight.z(r), broken.z(r)));
    }
}

// A weight that is off would be blamed on whoever divides by it.
TEST(Gossip, SharesThatCannotBeEndTheRun) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double w : {0.0, -0.5, infinity, std::nan("")})
    for (const bool overlap : {false, true}) {
      SCOPED_TRACE(testing::Message() << "w=" << w << ", overlap=" << overlap);
      RoleWorld world(make_config(overlap ? osgp(2) : sgp(), 4, 1), pull);
      world.tamper([w](Envelope& envelope) {
        if (auto* share = std::get_if<Share>(&envelope.payload)) share->w = w;
      });
      world.start();
      EXPECT_THROW(world.run(), InvariantBroken);
    }
  RoleWorld world(make_config(osgp(2), 4, 1), pull);
  world.tamper([](Envelope& envelope) {
    if (auto* share = std::get_if<Share>(&envelope.payload)) share->round = -1;
  });
  world.start();
  EXPECT_THROW(world.run(), InvariantBroken);
}

// Mass that goes over an edge without a way back is gone: its sender's weight falls towards zero.
TEST(Gossip, RefusesSharesThatNobodyGivesBack) {
  const std::string folder = testing::TempDir();
  const auto error_of = [&](const std::string& edges, std::int32_t ranks,
                            const sim::Keys& keys = {}) {
    const std::string path = folder + "/one_way.txt";
    std::ofstream(path) << edges;
    const Plan plan = make_plan(sim::operator+({{"topology", "file:" + path}}, keys));
    LrConfig rate;
    rate.lr = 0.1;
    const auto parts = make_parts(plan, {}, *LrSchedule::make(rate), {}, ranks);
    return parts.ok() ? std::string() : parts.error().message;
  };
  EXPECT_NE(error_of("0 -> 1\n", 2).find("no path from rank 1 to rank 0"), std::string::npos);
  EXPECT_NE(error_of("0 1\n1 2\n3 -> 0\n", 4).find("no path from rank 0 to rank 3"),
            std::string::npos);
  EXPECT_NE(error_of("0 1\n2 -> 3\n3 -> 4\n", 5).find("no path from rank 3 to rank 2"),
            std::string::npos)
      << "in any part of the graph";
  EXPECT_EQ(error_of("0 -> 1\n1 -> 2\n2 -> 0\n", 3), "");
  EXPECT_EQ(error_of("0 1\n2 3\n", 4), "") << "in parts, each of which mixes";
  EXPECT_EQ(error_of("0 -> 1\n", 2, {{"averaging", "symmetric"}}), "") << "uses edges both ways";
}

TEST(Gossip, RefusesAWiringWhosePartsDoNotFit) {
  const std::string refusal = sim::refusal_of({{"exchange", "aggregate"}, {"topology", "ring"}});
  EXPECT_NE(refusal.find("topology = 'ring' does not fit exchange = 'aggregate'"),
            std::string::npos)
      << refusal;
  EXPECT_NE(sim::refusal_of({{"exchange", "gossip"},
                             {"averaging", "biased"},
                             {"overlap", "true"},
                             {"staleness", "2"}})
                .find("averaging = 'biased' does not fit staleness > 0"),
            std::string::npos);
  EXPECT_NE(sim::refusal_of({{"exchange", "gossip"}, {"peers", "4294967297"}}).find("4294967297"),
            std::string::npos);
}

// The fast ranks end, and the graph of the slow ones leads from one to the next and not back: their
// weights stay above the least one, and their models at the optimum.
TEST(Gossip, WeightsOfRanksThatAreLeftBehindHaveABound) {
  for (const std::string topology : {"exponential", "linear", "ring"})
    for (const char* tau : {"1", "4", "10"})
      for (const char* local_steps : {"1", "2"})
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
          SCOPED_TRACE(topology + ", tau " + tau + ", H " + local_steps +
                       ", seed=" + std::to_string(seed));
          WorldConfig config = make_config(make_plan({{"overlap", "true"},
                                                      {"staleness", tau},
                                                      {"topology", topology},
                                                      {"local_steps", local_steps}}),
                                           8, seed);
          config.horizon = {400, 10};
          config.lr = 0.02;
          config.slowness = {{0, 0.99}, {1, 0.99}, {2, 0.97}};
          RoleWorld world(config, pull);
          scatter(world, 8, config.dimension);
          world.start();
          double least = 1;
          world.run([&] {
            for (Rank rank = 0; rank < 8; ++rank) least = std::min(least, world.model(rank).w);
          });
          EXPECT_GE(least, Mixer::kLeastWeight / 2 * 0.999);
          EXPECT_NEAR(world.total_w(), 8, 1e-9);
          for (Rank rank = 0; rank < 8; ++rank) {
            EXPECT_TRUE(world.finished(rank)) << "rank " << rank;
            // Between the optima of all ranks.
            EXPECT_LT(distance(world.z(rank), at::full({config.dimension}, 3.5)), 4)
                << "rank " << rank;
          }
        }
}

// A rank has no more peers than there are other ranks.
TEST(Gossip, PeersPerRoundAreAtMostTheOtherRanks) {
  const auto refusal = [](const sim::Keys& keys, std::int32_t ranks) -> std::string {
    const auto parts = make_parts(make_plan(keys), {20, 10}, *LrSchedule::make({}), {}, ranks);
    return parts ? "" : parts.error().message;
  };
  for (std::int32_t ranks = 1; ranks <= 6; ++ranks)
    for (const std::string topology : {"exponential", "ring", "complete", "base", "random-regular"})
      for (std::int32_t peers = 1; peers <= 8; ++peers) {
        SCOPED_TRACE(topology + " of " + std::to_string(ranks) + " with " + std::to_string(peers));
        const std::string why =
            refusal({{"topology", topology}, {"peers", std::to_string(peers)}}, ranks);
        const std::int32_t most = std::max(2, ranks - 1);
        const std::string remedy = " ranks: choose at most " + std::to_string(most);
        EXPECT_EQ(why.find(remedy) != std::string::npos, peers > most) << why;
      }
  EXPECT_EQ(refusal({{"peers", "0:1,2:99"}}, 4),
            "wiring.peers = 99, peers per round, in topology 'exponential' of 4 ranks: choose at "
            "most 3");
  EXPECT_EQ(refusal({{"peers", "3"}, {"hierarchy", "2"}}, 4),
            "wiring.peers = 3, peers per round, in topology 'exponential' of 2 nodes: choose at "
            "most 2");
}

// Whoever waits names a rank that is still to come: the trace blames it.
TEST(Gossip, WaitsForRanksThatStillCome) {
  int waits = 0, leaves = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const std::int32_t ranks = 5;
    WorldConfig config = make_config(
        make_plan({{"overlap", "true"}, {"staleness", "3"}, {"peers", "3"}}), ranks, seed);
    config.slowness = {{static_cast<Rank>(seed % ranks), 0.9}};
    RoleWorld world(config, nothing);
    std::map<Rank, std::map<Rank, std::int64_t>> gone;  // by who knows of it: the last round
    world.watch([&](const Envelope& envelope, bool delivered) {
      const auto* leave = std::get_if<Leave>(&envelope.payload);
      if (leave == nullptr || !delivered) return;
      gone[envelope.to][envelope.from] = leave->last_round;
      ++leaves;
    });
    std::map<Rank, std::size_t> seen;
    world.start();
    world.run([&] {
      for (Rank rank = 0; rank < ranks; ++rank)
        for (; seen[rank] < world.events(rank).size(); ++seen[rank]) {
          const Event& event = world.events(rank)[seen[rank]];
          if (event.kind != EventKind::wait_begin) continue;
          ++waits;
          const auto left = gone[rank].find(event.peer);
          EXPECT_TRUE(left == gone[rank].end() ||
                      left->second >= *world.saved(rank).integer("round"))
              << "rank " << rank << " waits for " << event.peer;
        }
    });
  }
  EXPECT_GT(waits, 20);
  EXPECT_GT(leaves, 100);
}

}  // namespace gossip_test
}  // namespace grapevine
