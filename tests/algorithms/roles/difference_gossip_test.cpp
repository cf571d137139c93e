// Gossip with compressed differences: the paper's equations, the conserved mean, consensus.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "algorithms/roles/gossip/gossip.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace difference_gossip_test {

using sim::Keys;
using sim::operator+;
using sim::RoleWorld;
using sim::WorldConfig;

constexpr std::int64_t kD = 12;

WorldConfig make_config(std::int32_t ranks, std::uint64_t seed, const Keys& keys) {
  WorldConfig config;
  Keys all = sim::keys_of("choco-sgd") + keys;
  const bool sparse = std::none_of(keys.begin(), keys.end(), [](const auto& own) {
    return own == std::pair<std::string, std::string>("compress", "int8");
  });
  if (!sparse)
    all.erase(std::remove_if(all.begin(), all.end(),
                             [](const auto& own) { return own.first == "density"; }),
              all.end());
  config.plan = sim::plan_of(all);
  config.ranks = ranks;
  config.dimension = kD;
  config.seed = seed;
  config.horizon.steps = 20;
  return config;
}

at::Tensor no_pull(Rank, Step, const at::Tensor& z) { return at::zeros_like(z); }

at::Tensor pull(Rank rank, Step step, const at::Tensor& z) {
  return z * 0.5 - at::arange(kD) * 0.1 * static_cast<double>(rank) +
         0.01 * static_cast<double>(step);
}

at::Tensor start_of(Rank rank, std::uint64_t seed) {
  return at::randn(
      {kD},
      at::make_generator<at::CPUGeneratorImpl>(mix_seed(seed, static_cast<std::uint64_t>(rank))),
      at::TensorOptions());
}

void place(RoleWorld& world, const WorldConfig& config) {
  for (Rank r = 0; r < config.ranks; ++r) world.set_x(r, start_of(r, config.seed));
}

std::vector<at::Tensor> run(const WorldConfig& config, const sim::GradientOf& gradient) {
  RoleWorld world(config, gradient);
  place(world, config);
  world.start();
  world.run();
  std::vector<at::Tensor> z;
  for (Rank r = 0; r < config.ranks; ++r) {
    EXPECT_TRUE(world.finished(r));
    z.push_back(world.z(r));
  }
  return z;
}

// The models of a run, against those of an oracle in double precision.
void expect_follows(const std::vector<at::Tensor>& z, const std::vector<at::Tensor>& expected,
                    double tolerance) {
  for (std::size_t r = 0; r < z.size(); ++r)
    EXPECT_TRUE(at::allclose(z[r].to(at::kDouble), expected[r], tolerance, tolerance))
        << "rank " << r;
}

double spread(const std::vector<at::Tensor>& z) {
  const at::Tensor all = at::stack(z);
  return (all - all.mean(0)).square().sum().sqrt().item<double>();
}

// Algorithm 2 of the paper for top-k, in double precision, with the copies of each edge.
std::vector<at::Tensor> oracle(const WorldConfig& config) {
  const auto n = static_cast<std::size_t>(config.ranks);
  const auto graph = *GossipGraph::make(config.plan.graph.topology, config.plan.graph.peers,
                                        config.ranks, config.horizon.steps_per_epoch);
  const auto take_all = [](Rank) { return true; };
  const std::int64_t k = config.plan.compression.density.entries(0, kD);
  std::vector<at::Tensor> x, told(n * n, at::zeros({kD}, at::kDouble));
  for (std::size_t i = 0; i < n; ++i)
    x.push_back(start_of(static_cast<Rank>(i), config.seed).to(at::kDouble));
  for (Step step = 0; step < config.horizon.steps; ++step) {
    std::vector<at::Tensor> gradients;
    for (std::size_t i = 0; i < n; ++i) gradients.push_back(pull(static_cast<Rank>(i), step, x[i]));
    const bool before =
        data_as<GossipSettings>(config.plan.settings).update == Update::before_exchange;
    const auto update = [&] {
      for (std::size_t i = 0; i < n; ++i) x[i] = x[i] - config.lr * gradients[i];
    };
    if (before) update();
    for (std::size_t i = 0; i < n; ++i)
      for (const auto& link : graph->symmetric_shares(step, static_cast<Rank>(i), take_all).links) {
        at::Tensor& copy = told[i * n + static_cast<std::size_t>(link.peer)];
        const at::Tensor difference = x[i] - copy;
        const at::Tensor chosen = std::get<1>(difference.abs().topk(k));
        copy = copy.scatter_add(0, chosen, difference.gather(0, chosen));
      }
    std::vector<at::Tensor> mixed = x;
    for (std::size_t i = 0; i < n; ++i)
      for (const auto& link : graph->symmetric_shares(step, static_cast<Rank>(i), take_all).links) {
        const auto j = static_cast<std::size_t>(link.peer);
        mixed[i] = mixed[i] + config.plan.compression.consensus_step * link.weight *
                                  (told[j * n + i] - told[i * n + j]);
      }
    x = mixed;
    if (!before) update();
  }
  return x;
}

TEST(DifferenceGossip, FollowsThePapersEquations) {
  for (const Keys& keys : std::vector<Keys>{{},
                                            {{"update", "after"}},
                                            {{"topology", "exponential"}},
                                            {{"topology", "exponential"}, {"update", "after"}},
                                            {{"topology", "star"}},
                                            {{"peers", "0:1,8:2"}, {"topology", "exponential"}}})
    for (const std::int32_t n : {1, 2, 5, 8})
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE((keys.empty() ? "" : keys[0].second) + ", n=" + std::to_string(n) +
                     ", seed=" + std::to_string(seed));
        WorldConfig config = make_config(n, seed, keys);
        EXPECT_TRUE(config.plan.compression.enabled());
        config.lr = 0.1;
        config.horizon.steps = 12;
        expect_follows(run(config, pull), oracle(config), 1e-5);
      }
}

// All weights and the step are powers of two and all values whole numbers: no sum is rounded.
TEST(DifferenceGossip, KeepsTheMeanExactly) {
  for (const std::string topology : {"complete", "exponential"})
    for (const std::string feedback : {"true", "false"})
      for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        SCOPED_TRACE(topology + ", seed=" + std::to_string(seed));
        WorldConfig config = make_config(
            topology == "complete" ? 4 : 2, seed,
            {{"topology", topology}, {"consensus_step", "0.5"}, {"error_feedback", feedback}});
        config.horizon.steps = 4;
        RoleWorld world(config, no_pull);
        at::Tensor sum = at::zeros({kD}, at::kDouble);
        for (Rank r = 0; r < config.ranks; ++r) {
          const at::Tensor x = (start_of(r, seed) * 10).round();
          world.set_x(r, x);
          sum += x.to(at::kDouble);
        }
        world.start();
        world.run();
        EXPECT_TRUE(at::equal(world.total_x(), sum));
        EXPECT_FALSE(at::equal(world.z(0), (start_of(0, seed) * 10).round())) << "nothing moved";
      }
}

TEST(DifferenceGossip, SparseModelsReachConsensusWithErrorFeedbackAlone) {
  for (const std::string compress : {"top-k", "random-k"})
    for (const bool feedback : {true, false}) {
      if (compress == "random-k" && !feedback) continue;  // all ranks of this world draw the same
      SCOPED_TRACE(compress + (feedback ? "" : " without error feedback"));
      WorldConfig config = make_config(6, 3,
                                       {{"compress", compress},
                                        {"density", "0.2"},
                                        {"error_feedback", feedback ? "true" : "false"}});
      config.horizon.steps = 1;
      const double at_start = spread(run(config, no_pull));
      config.horizon.steps = 1500;
      const double at_end = spread(run(config, no_pull));
      if (feedback) {
        EXPECT_LT(at_end, 1e-3 * at_start);
      } else {
        EXPECT_GT(at_end, 0.1 * at_start);
      }
    }
}

// Quantised differences shrink with the differences themselves.
TEST(DifferenceGossip, QuantisersReachConsensus) {
  for (const std::string compress : {"sign", "int8", "bf16", "fp16"}) {
    SCOPED_TRACE(compress);
    WorldConfig config = make_config(6, 3, {});
    config.plan = sim::plan_of({{"exchange", "gossip"},
                                {"averaging", "symmetric"},
                                {"topology", "ring"},
                                {"compress", compress}});
    config.horizon.steps = 1;
    const double at_start = spread(run(config, no_pull));
    config.horizon.steps = 400;
    EXPECT_LT(spread(run(config, no_pull)), 1e-3 * at_start);
  }
}

TEST(DifferenceGossip, TheOrderOfMessagesAndCheckpointsChangeNoBit) {
  for (const Keys& keys : std::vector<Keys>{{}, {{"topology", "exponential"}, {"update", "after"}}})
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE("seed=" + std::to_string(seed));
      WorldConfig config = make_config(5, 1, keys);
      config.lr = 0.1;
      config.optimizer.momentum = 0.9;
      RoleWorld straight(config, pull);
      place(straight, config);
      straight.start();
      straight.run();

      RoleWorld broken(config, pull);
      place(broken, config);
      for (std::uint64_t i = 0; i < seed; ++i) broken.rng()();  // another order of events
      broken.start();
      const auto when = static_cast<std::int64_t>(1 + broken.rng()() % 150);
      broken.run_until(when);
      broken.save_and_load();
      broken.run();
      for (Rank r = 0; r < 5; ++r) EXPECT_TRUE(at::equal(straight.z(r), broken.z(r))) << r;
    }
}

TEST(DifferenceGossip, GoesOnWithoutADeadPeer) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    WorldConfig config = make_config(6, seed, {});
    config.horizon.steps = 300;
    RoleWorld world(config, no_pull);
    place(world, config);
    world.start();
    for (int i = 0; i < 100; ++i) world.step();
    world.kill(2);
    world.run();
    std::vector<at::Tensor> left;
    for (Rank r = 0; r < 6; ++r)
      if (r != 2) {
        EXPECT_TRUE(world.finished(r));
        left.push_back(world.z(r));
      }
    EXPECT_LT(spread(left), 0.3) << "the others do not agree";
  }
}

TEST(DifferenceGossip, EveryContributionIsCommittedOnceAndIsFresh) {
  WorldConfig config = make_config(5, 2, {});
  RoleWorld world(config, pull);
  world.start();
  world.run();
  for (Rank r = 0; r < 5; ++r) {
    std::map<Step, int> committed;
    int applied = 0;
    for (const Event& event : world.events(r)) {
      if (event.kind == EventKind::committed) ++committed[event.stamp.step];
      if (event.kind != EventKind::applied) continue;
      ++applied;
      EXPECT_EQ(event.staleness, 0);
    }
    EXPECT_EQ(applied, 2 * config.horizon.steps) << "a ring has two neighbours";
    EXPECT_EQ(committed.size(), static_cast<std::size_t>(config.horizon.steps));
    for (const auto& [step, count] : committed) EXPECT_EQ(count, 1) << "step " << step;
  }
}

// ---- skipped exchanges ----

const Keys kSkips = {{"overlap", "true"}, {"staleness", "2"}};

// The replicas that both ends of each edge keep, of ranks to which no message is on its way.
void expect_one_replica_at_both_ends(const RoleWorld& world, std::int32_t ranks) {
  std::int64_t compared = 0;
  for (Rank from = 0; from < ranks; ++from) {
    const StateDict own = world.saved(from).under("replicas");
    const std::vector<std::int64_t> keys = *own.list("own.keys");
    for (const std::int64_t key : keys)
      for (Rank to = 0; to < ranks; ++to) {
        const StateDict other = world.saved(to).under("replicas");
        const std::vector<std::int64_t> peers = *other.list("peers.keys");
        if ((key >= 0 && key != to) || std::find(peers.begin(), peers.end(), from) == peers.end())
          continue;
        ++compared;
        EXPECT_TRUE(at::equal(*own.tensor("own." + std::to_string(key) + ".x"),
                              *other.tensor("peers." + std::to_string(from) + ".x")))
            << "of rank " << from << " at rank " << to;
      }
  }
  EXPECT_GE(compared, ranks) << "nothing was compared";
}

WorldConfig skipping_config(const Keys& keys, std::uint64_t seed) {
  WorldConfig config = make_config(5, seed, kSkips + keys);
  config.horizon.steps = 25;
  config.slowness = {{0, 0.9}, {3, 0.95}};
  return config;
}

// Ranks end in different rounds. What one of them sends afterwards moves nothing, and its peers'
// replicas follow, so that a longer run goes on from the same bits; twice as long, it ends anew.
TEST(DifferenceGossip, ReplicasStayEqualWhereRanksSkipExchangesAndEndInDifferentRounds) {
  std::int64_t apart = 0;  // runs whose ranks ended in different rounds
  for (const Keys& keys : std::vector<Keys>{{},
                                            {{"topology", "exponential"}},
                                            {{"topology", "star"}, {"compress", "int8"}},
                                            {{"local_steps", "2"}},
                                            {{"averaging", "push-sum"}},
                                            {{"averaging", "push-sum"}, {"peers", "2"}},
                                            {{"tracking", "true"}}})
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE((keys.empty() ? "" : keys[0].second) + ", seed=" + std::to_string(seed));
      WorldConfig config = skipping_config(keys, seed);
      RoleWorld first(config, no_pull);
      place(first, config);
      const at::Tensor sum = first.total_x();
      std::set<std::int64_t> last_rounds;
      first.watch([&](const Envelope& envelope, bool delivered) {
        const auto* left = std::get_if<Leave>(&envelope.payload);
        if (left != nullptr && delivered) last_rounds.insert(left->last_round);
      });
      first.start();
      first.run();
      apart += last_rounds.size() > 1 ? 1 : 0;
      expect_one_replica_at_both_ends(first, 5);
      config.horizon.steps = 60;
      RoleWorld longer(config, no_pull);
      longer.resume(first);
      longer.run();
      expect_one_replica_at_both_ends(longer, 5);
      for (Rank r = 0; r < 5; ++r) EXPECT_TRUE(longer.finished(r)) << "rank " << r;
      EXPECT_LT((longer.total_x() - sum).abs().max().item<double>(), 1e-4);
      EXPECT_NEAR(longer.total_w(), 5, 1e-9);
    }
  EXPECT_GT(apart, 20) << "all ranks ended alike";
}

// A skipped exchange is late, not lost: without gradients the ranks agree on the mean. With
// push-sum a rank still gives when those that give to it have ended, and its weight shrinks: no
// rank's z moves by that.
TEST(DifferenceGossip, RanksThatSkipExchangesReachConsensus) {
  for (const Keys& keys : std::vector<Keys>{{{"averaging", "symmetric"}, {"density", "0.3"}},
                                            {{"averaging", "push-sum"}, {"density", "0.3"}},
                                            {{"averaging", "push-sum"}, {"topology", "ring"}},
                                            {{"averaging", "push-sum"}, {"topology", "star"}},
                                            {{"averaging", "push-sum"}, {"compress", "int8"}}})
    for (const std::uint64_t seed : {1, 3}) {
      SCOPED_TRACE(keys[0].second + " " + keys[1].second + ", seed=" + std::to_string(seed));
      WorldConfig config = skipping_config(keys, seed);
      config.horizon.steps = 1;
      const auto start = run(config, no_pull);
      config.horizon.steps = 1000;
      std::int64_t applied = 0;
      RoleWorld world(config, no_pull);
      place(world, config);
      const at::Tensor mean = world.total_x() / 5;
      world.start();
      world.run();
      std::vector<at::Tensor> z;
      for (Rank r = 0; r < 5; ++r) {
        z.push_back(world.z(r));
        for (const Event& event : world.events(r)) applied += event.kind == EventKind::applied;
      }
      EXPECT_LT(applied, 2 * 5 * 1000) << "nothing was skipped";
      EXPECT_LT(spread(z), 1e-2 * spread(start));
      EXPECT_LT((at::stack(z).mean(0).to(at::kDouble) - mean).abs().max().item<double>(), 1e-2);
      EXPECT_LT((world.total_x() / 5 - mean).abs().max().item<double>(), 1e-4);
    }
}

// On a directed ring nobody gives to the rank behind a dead one any more, and its weight shrinks.
TEST(DifferenceGossip, ARankThatIsGivenNothingKeepsItsModel) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    WorldConfig config =
        make_config(5, seed, {{"averaging", "push-sum"}, {"topology", "ring"}, {"density", "0.3"}});
    config.horizon.steps = 400;
    RoleWorld world(config, no_pull);
    place(world, config);
    world.start();
    while (world.model(0).step < 350) world.step();
    world.kill(2);
    world.run();
    std::vector<at::Tensor> left;
    for (const Rank r : {0, 1, 3, 4}) left.push_back(world.z(r));
    EXPECT_LT(world.model(3).w, 0.5) << "the rank was given something";
    EXPECT_GT(world.model(3).w, 0.05) << "the rank gave nearly all of its weight";
    EXPECT_LT(spread(left), 1e-2);
  }
}

// ---- gradient tracking ----

at::Tensor pull_apart(Rank rank, Step, const at::Tensor& z) {
  return z * 0.5 - at::arange(kD) * 0.1 * static_cast<double>(rank);
}

// BEER (Zhao et al. 2022) in the order of CHOCO-SGD: y <- y + g - g of the step before;
// x <- x - lr y;  both are mixed by differences of their own, each by top-k.
std::vector<at::Tensor> tracked_oracle(const WorldConfig& config) {
  const auto n = static_cast<std::size_t>(config.ranks);
  const auto graph = *GossipGraph::make(config.plan.graph.topology, config.plan.graph.peers,
                                        config.ranks, config.horizon.steps_per_epoch);
  const auto take_all = [](Rank) { return true; };
  const std::int64_t k = config.plan.compression.density.entries(0, kD);
  const at::Tensor zeros = at::zeros({kD}, at::kDouble);
  std::vector<at::Tensor> x, y(n, zeros), newest(n, zeros);
  for (std::size_t i = 0; i < n; ++i)
    x.push_back(start_of(static_cast<Rank>(i), config.seed).to(at::kDouble));
  std::vector<at::Tensor> of_x(n * n, zeros), of_y(n * n, zeros);
  const auto mix = [&](std::vector<at::Tensor>& values, std::vector<at::Tensor>& replicas,
                       Step step) {
    const auto links = [&](std::size_t i) {
      return graph->symmetric_shares(step, static_cast<Rank>(i), take_all).links;
    };
    for (std::size_t i = 0; i < n; ++i)
      for (const auto& link : links(i)) {
        at::Tensor& replica = replicas[i * n + static_cast<std::size_t>(link.peer)];
        const at::Tensor difference = values[i] - replica;
        const at::Tensor chosen = std::get<1>(difference.abs().topk(k));
        replica = replica.scatter_add(0, chosen, difference.gather(0, chosen));
      }
    std::vector<at::Tensor> mixed = values;
    for (std::size_t i = 0; i < n; ++i)
      for (const auto& link : links(i)) {
        const auto j = static_cast<std::size_t>(link.peer);
        mixed[i] = mixed[i] + config.plan.compression.consensus_step * link.weight *
                                  (replicas[j * n + i] - replicas[i * n + j]);
      }
    values = mixed;
  };
  for (Step step = 0; step < config.horizon.steps; ++step) {
    for (std::size_t i = 0; i < n; ++i) {
      const at::Tensor g = pull_apart(static_cast<Rank>(i), step, x[i]);
      y[i] = y[i] + g - newest[i];
      newest[i] = g;
      x[i] = x[i] - config.lr * y[i];
    }
    mix(x, of_x, step);
    mix(y, of_y, step);
  }
  return x;
}

TEST(DifferenceGossip, OfTrackedGradientsFollowsThePapersEquations) {
  for (const std::string topology : {"ring", "exponential", "star"})
    for (const std::int32_t n : {2, 5}) {
      SCOPED_TRACE(topology + ", n=" + std::to_string(n));
      WorldConfig config =
          make_config(n, 4, {{"tracking", "true"}, {"topology", topology}, {"density", "0.25"}});
      config.lr = 0.1;
      config.horizon.steps = 12;
      expect_follows(run(config, pull_apart), tracked_oracle(config), 1e-4);
    }
}

// The sum of estimates is that of the newest gradients, whatever was left out of messages.
TEST(DifferenceGossip, OfTrackedGradientsKeepsTheirSum) {
  for (const Keys& keys :
       std::vector<Keys>{{},
                         {{"averaging", "push-sum"}},
                         {{"compress", "int8"}, {"topology", "star"}},
                         kSkips,
                         kSkips + Keys{{"averaging", "push-sum"}, {"local_steps", "2"}}}) {
    SCOPED_TRACE(keys.empty() ? "" : keys[0].second);
    WorldConfig config = make_config(5, 7, Keys{{"tracking", "true"}} + keys);
    config.lr = 0.05;
    config.slowness = {{1, 0.9}};
    std::vector<at::Tensor> newest(5);
    RoleWorld world(config, [&newest](Rank rank, Step step, const at::Tensor& z) {
      newest[static_cast<std::size_t>(rank)] = pull(rank, step, z);
      return newest[static_cast<std::size_t>(rank)].clone();
    });
    place(world, config);
    world.start();
    world.run();
    at::Tensor estimates = at::zeros({kD});
    for (Rank r = 0; r < 5; ++r) estimates += *world.saved(r).under("tracker").tensor("y");
    EXPECT_TRUE(at::allclose(estimates, at::stack(newest).sum(0), 1e-3, 1e-4))
        << estimates << at::stack(newest).sum(0);
  }
}

}  // namespace difference_gossip_test
}  // namespace grapevine
