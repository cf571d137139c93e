// The weights of edges: what a rank keeps and gives in a round.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>
#include <thread>

#include "algorithms/graphs/gossip_graph.hpp"
#include "messages/check.hpp"
#include "messages/random.hpp"

namespace grapevine {
namespace edge_weights_test {

using Lists = Topology::Lists;
using Edges = Topology::Edges;
using TopologyPtr = std::shared_ptr<const Topology>;
using GraphPtr = std::shared_ptr<const GossipGraph>;

constexpr double kUnit = 1.0 / (1 << 24);
constexpr std::int32_t kRanks[] = {1, 2, 3, 4, 6, 7, 8, 16};

const auto kAll = [](Rank) { return true; };

GraphPtr graph_of(const std::string& name, std::int32_t ranks, const std::string& peers = "1") {
  const auto graph = GossipGraph::make(name, *CountSchedule::parse(peers), ranks, 10);
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  return *graph;
}

// Every graph that exists for these numbers.
template <class Body>
void for_all(const Body& body) {
  for (const std::string& name : topology_names())
    for (const std::int32_t ranks : kRanks)
      for (const std::int32_t peers : {1, 2, 3}) {
        const auto topology = make_topology(name, ranks, peers);
        if (!topology.ok()) continue;
        SCOPED_TRACE(name + " ranks " + std::to_string(ranks) + " peers " + std::to_string(peers));
        body(*graph_of(name, ranks, std::to_string(peers)), ranks, (*topology)->has_weights(0));
      }
}

// What x and w must agree on: float32 holds every weight, and no mass is lost or made.
void expect_exact(const Shares& shares) {
  double sum = shares.kept;
  EXPECT_GT(shares.kept, 0);
  for (const Shares::Link& link : shares.links) {
    sum += link.weight;
    EXPECT_GT(link.weight, 0);
    EXPECT_EQ(link.weight / kUnit, std::floor(link.weight / kUnit));
    EXPECT_EQ(static_cast<double>(static_cast<float>(link.weight)), link.weight);
  }
  EXPECT_EQ(static_cast<double>(static_cast<float>(shares.kept)), shares.kept);
  EXPECT_EQ(sum, 1);
}

std::map<Rank, double> by_peer(const Shares& shares) {
  std::map<Rank, double> weights;
  for (const Shares::Link& link : shares.links) weights[link.peer] = link.weight;
  EXPECT_EQ(weights.size(), shares.links.size()) << "two links to one peer";
  return weights;
}

TEST(EdgeWeights, SharesAreExactAndAddUpToOneInEveryGraph) {
  for_all([](const GossipGraph& graph, std::int32_t ranks, bool) {
    for (std::int64_t round = 0; round < graph.period(0); ++round)
      for (Rank rank = 0; rank < ranks; ++rank) {
        const auto odd = [](Rank peer) { return peer % 2 != 0; };
        expect_exact(graph.even_shares(round, rank, kAll));
        expect_exact(graph.even_shares(round, rank, odd));
        expect_exact(graph.symmetric_shares(round, rank, kAll));
        expect_exact(graph.symmetric_shares(round, rank, odd));
      }
  });
}

// The oracle: Metropolis-Hastings weights in double precision, from the edges alone.
TEST(EdgeWeights, SymmetricSharesAreMetropolisHastingsWithoutOwnWeights) {
  for_all([](const GossipGraph& graph, std::int32_t ranks, bool weighted) {
    if (weighted) return;
    for (std::int64_t round = 0; round < graph.period(0); ++round) {
      const auto degree = [&](Rank r) { return graph.neighbors(round, r).size(); };
      for (Rank i = 0; i < ranks; ++i) {
        const auto weights = by_peer(graph.symmetric_shares(round, i, kAll));
        std::vector<Rank> peers;
        for (const auto& [j, weight] : weights) {
          peers.push_back(j);
          EXPECT_EQ(by_peer(graph.symmetric_shares(round, j, kAll)).at(i), weight);
          const double oracle = 1.0 / (1.0 + static_cast<double>(std::max(degree(i), degree(j))));
          EXPECT_LE(weight, oracle);
          EXPECT_GT(weight, oracle - kUnit);
        }
        EXPECT_EQ(peers, graph.neighbors(round, i));
      }
    }
  });
}

TEST(EdgeWeights, EvenSharesOfThoseThatTakePart) {
  const GraphPtr graph = graph_of("star", 7);
  for (const Rank last : {0, 1, 3, 6}) {
    const Shares shares = graph->even_shares(0, 0, [&](Rank peer) { return peer <= last; });
    ASSERT_EQ(shares.links.size(), static_cast<std::size_t>(last));
    for (const Shares::Link& link : shares.links)
      EXPECT_NEAR(link.weight, 1.0 / (last + 1), kUnit) << "the others get more";
  }
}

TEST(EdgeWeights, ARankKeepsTheSymmetricWeightOfAnAbsentPeer) {
  const GraphPtr graph = graph_of("star", 5);
  const Shares all = graph->symmetric_shares(0, 0, kAll);
  const Shares present = graph->symmetric_shares(0, 0, [](Rank peer) { return peer != 3; });
  ASSERT_EQ(present.links.size(), 3U);
  EXPECT_EQ(present.kept, all.kept + by_peer(all).at(3));
  for (const auto& [peer, weight] : by_peer(present)) EXPECT_EQ(weight, by_peer(all).at(peer));
}

// A complete graph with random weights, the same in both directions.
Edges random_symmetric(std::int32_t ranks, std::uint64_t seed) {
  Rng rng(mix_seed(seed, 5));
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<double> w(n * n, 0.0);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = i + 1; j < n; ++j)
      w[i * n + j] = w[j * n + i] =
          (1 + static_cast<double>(rng() % 1000)) / (1100.0 * static_cast<double>(n));
  Edges edges{Lists(n), std::vector<std::vector<double>>(n)};
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j) {
      if (i == j) continue;
      edges.to[i].push_back(static_cast<Rank>(j));
      edges.weights[i].push_back(w[i * n + j]);
    }
  return edges;
}

TEST(EdgeWeights, OwnSymmetricWeightsServeBothUses) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Edges edges = random_symmetric(6, seed);
    const Topology topology("own", 6, 1, {edges});
    ASSERT_TRUE(topology.has_weights(0));
    const std::vector<double> matrix = topology.mixing_matrix(0);
    for (Rank i = 0; i < 6; ++i) {
      const auto row = static_cast<std::size_t>(i);
      const auto own = by_peer(topology.own_shares(0, i));
      EXPECT_EQ(own, by_peer(topology.symmetric_shares(0, i)));
      expect_exact(topology.own_shares(0, i));
      double kept = 1;
      for (std::size_t k = 0; k < 5; ++k) {
        const Rank to = edges.to[row][k];
        const double weight = edges.weights[row][k];
        kept -= weight;
        EXPECT_LE(own.at(to), weight);
        EXPECT_GT(own.at(to), weight - kUnit);
        EXPECT_EQ(matrix[static_cast<std::size_t>(to) * 6 + row], weight) << "not rounded";
      }
      EXPECT_NEAR(matrix[row * 6 + row], kept, 1e-15);
    }
    EXPECT_TRUE(topology.doubly_stochastic());
    EXPECT_GT(topology.contraction(), 0);
  }
}

TEST(EdgeWeights, OwnWeightsOfOneDirectionAreForPushSumAlone) {
  const Topology ring("own", 3, 1, {Edges(Lists{{1}, {2}, {0}}, {{0.25}, {0.5}, {0.125}})});
  EXPECT_EQ(by_peer(ring.own_shares(0, 1)), (std::map<Rank, double>{{2, 0.5}}));
  EXPECT_EQ(ring.own_shares(0, 2).kept, 0.875);
  for (Rank i = 0; i < 3; ++i)
    for (const auto& [peer, weight] : by_peer(ring.symmetric_shares(0, i)))
      EXPECT_NEAR(weight, 1.0 / 3, kUnit) << "two neighbours each";
  EXPECT_FALSE(ring.doubly_stochastic());
  const Topology unequal("own", 2, 1, {Edges(Lists{{1}, {0}}, {{0.25}, {0.5}})});
  EXPECT_EQ(by_peer(unequal.symmetric_shares(0, 0)), (std::map<Rank, double>{{1, 0.5}}));
}

TEST(EdgeWeights, BrokenWeightsThrow) {
  const auto build = [](const Edges& edges) { return Topology("own", 3, 1, {edges}); };
  const Lists chain = {{1}, {2}, {}};
  EXPECT_NO_THROW(build(Edges(chain, {{0.5}, {0.9}, {}})));
  EXPECT_THROW(build(Edges(chain, {{0.5}, {0.9}})), InvariantBroken);
  EXPECT_THROW(build(Edges(chain, {{0.5}, {}, {}})), InvariantBroken);
  EXPECT_THROW(build(Edges(chain, {{0.5}, {1.0}, {}})), InvariantBroken);
  EXPECT_THROW(build(Edges(chain, {{0.5}, {0.0}, {}})), InvariantBroken);
  EXPECT_THROW(build(Edges({{2, 1}, {}, {}}, {{0.2, 0.2}, {}, {}})), InvariantBroken);
  EXPECT_THROW(build(Edges({{1, 1}, {}, {}}, {{0.2, 0.2}, {}, {}})), InvariantBroken);
  EXPECT_THROW(build(Edges({{0}, {}, {}}, {{0.2}, {}, {}})), InvariantBroken);
}

TEST(EdgeWeights, ThreadsMayWeighRoundsTogether) {
  const TopologyPtr shared = *make_topology("grid2d", 60, 1);
  const TopologyPtr alone = *make_topology("grid2d", 60, 1);
  std::vector<std::thread> threads;
  std::vector<double> kept(4, 0);
  for (std::size_t t = 0; t < kept.size(); ++t)
    threads.emplace_back([&, t] {
      for (Rank i = 0; i < 60; ++i) kept[t] += shared->symmetric_shares(t, i).kept;
    });
  for (std::thread& thread : threads) thread.join();
  double expected = 0;
  for (Rank i = 0; i < 60; ++i) expected += alone->symmetric_shares(0, i).kept;
  EXPECT_EQ(kept, std::vector<double>(4, expected));
}

class WeightedEdgeList : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + "/weights_" + info->name() + ".txt";
  }
  void TearDown() override { std::remove(path_.c_str()); }
  GraphPtr graph(const std::string& text, std::int32_t ranks) const {
    std::ofstream(path_) << text;
    return graph_of("file:" + path_, ranks);
  }

  std::string path_;
};

TEST_F(WeightedEdgeList, TheThirdColumnIsTheWeight) {
  const GraphPtr path = graph("0 1 0.25 # both ways\n1\t2  0.5\n2 1 0.5\n2 2 0.9\n", 3);
  const std::map<Rank, double> middle = {{0, 0.25}, {2, 0.5}};
  EXPECT_EQ(by_peer(path->even_shares(0, 1, kAll)), middle);
  EXPECT_EQ(by_peer(path->symmetric_shares(0, 1, kAll)), middle);
  EXPECT_EQ(path->even_shares(0, 0, kAll).kept, 0.75);
  const auto without_two = [](Rank peer) { return peer != 2; };
  EXPECT_EQ(path->even_shares(0, 1, without_two).kept, 0.75) << "it keeps what 2 would get";
}

TEST_F(WeightedEdgeList, OneWayEdgesHaveTheirOwnWeights) {
  const GraphPtr ring = graph("0 -> 1 0.25\n1 -> 2 0.5\n2 -> 0 0.75\n", 3);
  EXPECT_TRUE(ring->check_strongly_connected().ok());
  for (Rank i = 0; i < 3; ++i)
    EXPECT_EQ(by_peer(ring->even_shares(7, i, kAll)),
              (std::map<Rank, double>{{(i + 1) % 3, 0.25 * (i + 1)}}));
}

}  // namespace edge_weights_test
}  // namespace grapevine
