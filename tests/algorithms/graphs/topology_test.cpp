#include "algorithms/graphs/topology.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "algorithms/graphs/gossip_graph.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "tests/algorithms/graphs/symmetric_matrix.hpp"

namespace grapevine {
namespace topology_test {

using Lists = Topology::Lists;
using TopologyPtr = std::shared_ptr<const Topology>;

constexpr double kPi = 3.14159265358979323846;
constexpr double kUnit = 1.0 / (1 << 24);  // of weights
constexpr std::int32_t kRanks[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32};
constexpr std::int32_t kPeers[] = {1, 2, 3};

TopologyPtr make(const std::string& name, std::int32_t ranks, std::int32_t peers = 1) {
  auto topology = make_topology(name, ranks, peers);
  EXPECT_TRUE(topology.ok()) << topology.error().message;
  return *topology;
}

bool is_power_of_two(std::int32_t n) { return (n & (n - 1)) == 0; }

bool is_bipartite(const std::string& name) { return name.rfind("bipartite", 0) == 0; }

bool is_regular(const std::string& name) { return name != "star" && name != "grid2d"; }

// The combinations that the reference definitions exclude; everything else must work.
bool allowed(const std::string& name, std::int32_t ranks, std::int32_t peers) {
  if (ranks == 1) return true;
  if (name == "hypercube") return is_power_of_two(ranks);
  if (name == "random-regular" && peers > 1) return ranks * std::min(peers, ranks - 1) % 2 == 0;
  return true;
}

template <class Body>
void for_all(const Body& body) {
  for (const std::string& name : topology_names()) {
    for (const std::int32_t ranks : kRanks) {
      for (const std::int32_t peers : kPeers) {
        if (!allowed(name, ranks, peers)) continue;
        SCOPED_TRACE(name + " ranks " + std::to_string(ranks) + " peers " + std::to_string(peers));
        body(*make(name, ranks, peers));
      }
    }
  }
}

std::vector<double> multiply(const std::vector<double>& w, const std::vector<double>& x) {
  const std::size_t n = x.size();
  std::vector<double> result(n, 0.0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) result[i] += w[i * n + j] * x[j];
  }
  return result;
}

// Largest |entry of W_rounds ... W_1 - 11^T/n|: 0 where the rounds average exactly.
double distance_to_average(const Topology& topology, std::int64_t rounds) {
  const auto n = static_cast<std::size_t>(topology.ranks());
  double distance = 0;
  for (std::size_t start = 0; start < n; ++start) {
    std::vector<double> x(n, 0.0);
    x[start] = 1;
    for (std::int64_t round = 0; round < rounds; ++round) {
      x = multiply(topology.mixing_matrix(round), x);
    }
    for (const double value : x) {
      distance = std::max(distance, std::abs(value - 1.0 / static_cast<double>(n)));
    }
  }
  return distance;
}

void expect_exact_after(const std::string& name, std::int32_t ranks, std::int32_t peers,
                        std::int64_t rounds) {
  SCOPED_TRACE(name + " ranks " + std::to_string(ranks));
  const TopologyPtr topology = make(name, ranks, peers);
  EXPECT_LT(distance_to_average(*topology, rounds), 1e-14);
  EXPECT_GT(distance_to_average(*topology, rounds - 1), 1e-6) << "sooner than expected";
  EXPECT_EQ(topology->contraction(), 0);
}

// Ranks that rank 0 reaches along the edges of a whole period.
std::size_t reached(const Topology& topology) {
  std::set<Rank> known = {0};
  std::vector<Rank> open = {0};
  while (!open.empty()) {
    const Rank i = open.back();
    open.pop_back();
    for (std::int64_t round = 0; round < topology.period(); ++round) {
      for (const Rank j : topology.out(round, i)) {
        if (known.insert(j).second) open.push_back(j);
      }
    }
  }
  return known.size();
}

std::string message_of(const std::string& name, std::int32_t ranks, std::int32_t peers) {
  const auto topology = make_topology(name, ranks, peers);
  EXPECT_FALSE(topology.ok()) << name << " " << ranks << " " << peers;
  if (topology.ok()) return "";
  EXPECT_EQ(topology.error().code, Errc::bad_input);
  EXPECT_EQ(topology.error().message.find('\n'), std::string::npos);
  return topology.error().message;
}

void expect_mentions(const std::string& message, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << "'" << part << "' not in: " << message;
  }
}

class EdgeList : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + "/edges_" + info->name() + ".txt";
  }
  void TearDown() override { std::remove(path_.c_str()); }
  std::string name() const { return "file:" + path_; }
  void write(const std::string& text) const { std::ofstream(path_) << text; }

  std::string path_;
};

TEST(Topology, NoSelfEdgesNoDuplicatesAndRanksInRange) {
  for_all([](const Topology& topology) {
    for (std::int64_t round = 0; round < topology.period(); ++round) {
      for (Rank i = 0; i < topology.ranks(); ++i) {
        const std::vector<Rank>& out = topology.out(round, i);
        const std::set<Rank> unique(out.begin(), out.end());
        EXPECT_EQ(unique.size(), out.size());
        EXPECT_EQ(unique.count(i), 0U);
        if (!unique.empty()) {
          EXPECT_GE(*unique.begin(), 0);
          EXPECT_LT(*unique.rbegin(), topology.ranks());
        }
      }
    }
  });
}

TEST(Topology, InIsTheAscendingInverseOfOut) {
  for_all([](const Topology& topology) {
    for (std::int64_t round = 0; round < topology.period(); ++round) {
      Lists expected(static_cast<std::size_t>(topology.ranks()));
      for (Rank i = 0; i < topology.ranks(); ++i) {
        for (const Rank to : topology.out(round, i)) {
          expected[static_cast<std::size_t>(to)].push_back(i);
        }
      }
      for (Rank i = 0; i < topology.ranks(); ++i) {
        EXPECT_EQ(topology.in(round, i), expected[static_cast<std::size_t>(i)]);
      }
    }
  });
}

TEST(Topology, RoundsRepeatWithThePeriod) {
  for_all([](const Topology& topology) {
    for (std::int64_t round = 0; round < topology.period(); ++round) {
      for (Rank i = 0; i < topology.ranks(); ++i) {
        EXPECT_EQ(topology.out(round, i), topology.out(round + 3 * topology.period(), i));
      }
    }
  });
}

TEST(Topology, EveryMatrixIsColumnStochastic) {
  for_all([](const Topology& topology) {
    const auto n = static_cast<std::size_t>(topology.ranks());
    for (std::int64_t round = 0; round < topology.period(); ++round) {
      const std::vector<double> w = topology.mixing_matrix(round);
      for (std::size_t j = 0; j < n; ++j) {
        double column = 0;
        for (std::size_t i = 0; i < n; ++i) {
          EXPECT_GE(w[i * n + j], 0);
          column += w[i * n + j];
        }
        EXPECT_NEAR(column, 1, 1e-14);
      }
    }
  });
}

TEST(Topology, RegularGraphsAreDoublyStochastic) {
  for_all([](const Topology& topology) {
    const std::vector<double> ones(static_cast<std::size_t>(topology.ranks()), 1.0);
    bool rows_sum_to_one = true;
    for (std::int64_t round = 0; round < topology.period(); ++round) {
      for (const double row : multiply(topology.mixing_matrix(round), ones)) {
        rows_sum_to_one = rows_sum_to_one && std::abs(row - 1) < 1e-12;
      }
    }
    EXPECT_EQ(topology.doubly_stochastic(), rows_sum_to_one);
    const bool rests = is_bipartite(topology.name()) && topology.ranks() % 2 != 0;
    EXPECT_TRUE(rows_sum_to_one || !is_regular(topology.name()) || rests);
    EXPECT_FALSE(rows_sum_to_one && topology.name() == "star" && topology.ranks() > 2);
  });
}

TEST(Topology, SlotsOfBipartiteGraphsAndHypercubesAreSwaps) {
  for_all([](const Topology& topology) {
    const std::string& name = topology.name();
    const bool bipartite = is_bipartite(name);
    const bool matchings = name == "random-regular" && topology.ranks() % 2 == 0;
    if (!bipartite && name != "hypercube" && !matchings) return;
    EXPECT_TRUE(topology.symmetric());
    for (std::int64_t round = 0; round < topology.period(); ++round) {
      for (Rank i = 0; i < topology.ranks(); ++i) {
        for (const Rank j : topology.out(round, i)) {
          const auto& back = topology.out(round, j);
          EXPECT_EQ(std::count(back.begin(), back.end(), i), 1);
          EXPECT_TRUE(!bipartite || i % 2 != j % 2);
        }
      }
    }
  });
}

// An odd number of ranks: in each round one of them rests, and in a period all meet others.
TEST(Topology, OneRankOfABipartiteGraphRestsWhereTheirNumberIsOdd) {
  for (const std::string name : {"bipartite-exponential", "bipartite-linear"})
    for (const std::int32_t n : {3, 5, 7, 13}) {
      SCOPED_TRACE(name + ", n " + std::to_string(n));
      const TopologyPtr topology = make(name, n, 1);
      std::vector<int> met(static_cast<std::size_t>(n), 0);
      for (std::int64_t round = 0; round < topology->period(); ++round) {
        int resting = 0;
        for (Rank i = 0; i < n; ++i) {
          const auto peers = topology->out(round, i).size();
          resting += peers == 0 ? 1 : 0;
          met[static_cast<std::size_t>(i)] += static_cast<int>(peers);
        }
        EXPECT_EQ(resting, 1) << "round " << round;
      }
      EXPECT_GT(*std::min_element(met.begin(), met.end()), 0);
      EXPECT_LT(topology->contraction(), 1);
    }
}

// Pairs, or one rank that rests; over a period each pair meets once.
TEST(Topology, RoundRobinJoinsEveryTwoRanksOnceInAPeriod) {
  for (std::int32_t n = 1; n <= 13; ++n) {
    SCOPED_TRACE("n " + std::to_string(n));
    const TopologyPtr topology = make("round-robin", n, 1);
    EXPECT_EQ(topology->period(), n <= 2 ? 1 : n - 1 + n % 2);
    std::map<std::pair<Rank, Rank>, int> met;
    for (std::int64_t round = 0; round < topology->period(); ++round) {
      std::int32_t resting = 0;
      for (Rank i = 0; i < n; ++i) {
        const auto& out = topology->out(round, i);
        ASSERT_LE(out.size(), 1U);
        resting += out.empty();
        if (out.empty()) continue;
        EXPECT_EQ(topology->out(round, out.front()), std::vector<Rank>{i});
        ++met[{i, out.front()}];
      }
      EXPECT_EQ(resting, n % 2);
    }
    EXPECT_EQ(static_cast<std::int32_t>(met.size()), n * (n - 1));
    for (const auto& [pair, count] : met)
      EXPECT_EQ(count, 1) << pair.first << " and " << pair.second;
  }
}

TEST(Topology, SymmetricTellsTwoWayRoundsFromOneWayOnes) {
  EXPECT_FALSE(make("ring", 5, 1)->symmetric());
  EXPECT_TRUE(make("ring", 5, 2)->symmetric());
  EXPECT_FALSE(make("exponential", 8, 1)->symmetric());
  EXPECT_TRUE(make("grid2d", 12)->symmetric());
}

TEST(Topology, DefaultGraphFollowsThePowersOfPeersPlusOne) {
  const TopologyPtr one = make("exponential", 8, 1);
  ASSERT_EQ(one->period(), 3);
  EXPECT_EQ(one->out(0, 6), (std::vector<Rank>{7}));
  EXPECT_EQ(one->out(1, 6), (std::vector<Rank>{0}));
  EXPECT_EQ(one->out(2, 6), (std::vector<Rank>{2}));
  const TopologyPtr two = make("exponential", 10, 2);
  ASSERT_EQ(two->period(), 3) << "powers 1, 3, 9";
  EXPECT_EQ(two->out(2, 0), (std::vector<Rank>{9, 8}));
}

TEST(Topology, CountsOfPowersAreExactWhereFloatingLogarithmsAreNot) {
  EXPECT_EQ(make("exponential", 243, 2)->period(), 5);
  EXPECT_EQ(make("exponential", 244, 2)->period(), 6);
  EXPECT_EQ(make("exponential", 1000, 9)->period(), 3);
  EXPECT_EQ(make("exponential", 1001, 9)->period(), 4);
}

TEST(Topology, SixRanksWithTwoPeersDropTheSelfEdge) {
  // Powers 1 and 3: the second round's 2 * 3 is the rank itself.
  const TopologyPtr topology = make("exponential", 6, 2);
  ASSERT_EQ(topology->period(), 2);
  EXPECT_EQ(topology->out(0, 4), (std::vector<Rank>{5, 0}));
  EXPECT_EQ(topology->out(1, 4), (std::vector<Rank>{1}));
}

TEST(Topology, BipartiteListsMirrorActiveAndPassiveRanks) {
  const TopologyPtr topology = make("bipartite-exponential", 8, 1);
  const std::vector<Rank> active = {4, 2, 6, 0, 0, 6};   // rank 3: +1 -1 +3 -3 +5 -5
  const std::vector<Rank> passive = {1, 3, 7, 5, 5, 7};  // rank 2: -1 +1 -3 +3 -5 +5
  ASSERT_EQ(topology->period(), 6);
  for (std::size_t round = 0; round < 6; ++round) {
    SCOPED_TRACE(round);
    EXPECT_EQ(topology->out(static_cast<std::int64_t>(round), 3), std::vector<Rank>{active[round]});
    EXPECT_EQ(topology->out(static_cast<std::int64_t>(round), 2),
              std::vector<Rank>{passive[round]});
  }
}

TEST(Topology, LinearGraphsOfferEveryOddDistance) {
  const TopologyPtr topology = make("linear", 7, 1);
  const std::vector<Rank> expected = {1, 6, 3, 4, 5, 2};  // rank 0: +1 -1 +3 -3 +5 -5
  ASSERT_EQ(topology->period(), 6);
  for (std::size_t round = 0; round < 6; ++round) {
    EXPECT_EQ(topology->out(static_cast<std::int64_t>(round), 0),
              std::vector<Rank>{expected[round]});
  }
}

TEST(Topology, SlotsWrapAroundWherePeersDoNotDivideThem) {
  const TopologyPtr topology = make("bidirectional-exponential", 5, 4);
  EXPECT_EQ(topology->period(), 3) << "slots +1 -1 +2 -2 +4 -4, four a round";
  EXPECT_EQ(topology->out(0, 0), (std::vector<Rank>{1, 4, 2, 3}));
  EXPECT_EQ(topology->out(1, 0), (std::vector<Rank>{4, 1})) << "+4 and -4 repeat -1 and +1";
  EXPECT_EQ(topology->out(2, 0), (std::vector<Rank>{2, 3, 4, 1}));
}

TEST(Topology, MorePeersThanSlotsUseAllOfThem) {
  EXPECT_EQ(make("hypercube", 8, 9)->out(0, 5), (std::vector<Rank>{4, 7, 1}));
  EXPECT_EQ(make("ring", 6, 9)->out(0, 0), (std::vector<Rank>{1, 5}));
  EXPECT_EQ(make("exponential", 4, 1000000)->out(0, 0), (std::vector<Rank>{1, 2, 3}));
  EXPECT_EQ(make("random-regular", 6, 100)->out(0, 0), (std::vector<Rank>{1, 2, 3, 4, 5}));
}

TEST(Topology, OneRankSendsNothingInAnyGraph) {
  for (const std::string& name : topology_names()) {
    SCOPED_TRACE(name);
    const TopologyPtr topology = make(name, 1, 2);
    EXPECT_EQ(topology->period(), 1);
    EXPECT_TRUE(topology->out(7, 0).empty());
    EXPECT_EQ(topology->contraction(), 0);
    EXPECT_TRUE(topology->doubly_stochastic());
  }
}

TEST(Topology, StarAndGridAndCompleteListAllNeighbours) {
  EXPECT_EQ(make("star", 4)->out(0, 0), (std::vector<Rank>{1, 2, 3}));
  EXPECT_EQ(make("star", 4)->out(5, 3), (std::vector<Rank>{0}));
  EXPECT_EQ(make("complete", 4)->out(0, 2), (std::vector<Rank>{0, 1, 3}));
  const TopologyPtr grid = make("grid2d", 12);  // 3 x 4
  EXPECT_EQ(grid->out(0, 5), (std::vector<Rank>{1, 4, 6, 9}));
  EXPECT_EQ(grid->out(0, 3), (std::vector<Rank>{2, 7}));
  EXPECT_EQ(make("grid2d", 7)->out(0, 3), (std::vector<Rank>{2, 4})) << "a path";
}

TEST(Topology, EveryGraphReachesEveryRank) {
  for_all([](const Topology& topology) {
    EXPECT_EQ(reached(topology), static_cast<std::size_t>(topology.ranks()));
  });
}

TEST(Exactness, ExponentialInLogRounds) {
  for (std::int32_t k = 1; k <= 6; ++k) expect_exact_after("exponential", 1 << k, 1, k);
  std::int32_t ranks = 1;
  for (std::int32_t k = 1; k <= 5; ++k) {
    ranks *= 3;
    expect_exact_after("exponential", ranks, 2, k);
  }
}

TEST(Exactness, BidirectionalExponentialInTwiceTheLogarithmLessOne) {
  for (std::int32_t k = 1; k <= 6; ++k) {
    expect_exact_after("bidirectional-exponential", 1 << k, 1, 2 * k - 1);
  }
}

TEST(Exactness, HypercubeInLogRounds) {
  for (std::int32_t k = 1; k <= 6; ++k) expect_exact_after("hypercube", 1 << k, 1, k);
}

TEST(Exactness, BipartiteExponentialUpToSixteenRanks) {
  expect_exact_after("bipartite-exponential", 4, 1, 2);
  expect_exact_after("bipartite-exponential", 8, 1, 3);
  expect_exact_after("bipartite-exponential", 16, 1, 5);
  const TopologyPtr topology = make("bipartite-exponential", 32, 1);
  const double left = distance_to_average(*topology, topology->period());
  EXPECT_GT(left, 5e-4);
  EXPECT_LT(left, 5e-3);
}

TEST(Exactness, CompleteInOneRound) {
  for (const std::int32_t ranks : {2, 3, 5, 8}) expect_exact_after("complete", ranks, 1, 1);
}

TEST(Contraction, ExponentialAsPublished) {
  EXPECT_NEAR(make("exponential", 5)->contraction(), 0.202, 5e-4);
  EXPECT_NEAR(make("exponential", 6)->contraction(), 0.217, 5e-4);
  EXPECT_NEAR(make("exponential", 12)->contraction(), 0.209, 5e-4);
}

TEST(Contraction, DirectedRingIsTheCosine) {
  for (const std::int32_t ranks : {2, 3, 4, 5, 8, 16, 33}) {
    SCOPED_TRACE(ranks);
    const TopologyPtr ring = make("ring", ranks, 1);
    EXPECT_EQ(ring->period(), 1);
    EXPECT_NEAR(ring->contraction(), std::cos(kPi / ranks), 1e-6);
  }
}

// Circulant matrices share their eigenvectors: each eigenvalue of the product is the product of the
// rounds' sums over k-th roots of unity.
TEST(Contraction, CirculantGraphsMatchTheirFourierSums) {
  for (const std::string name : {"exponential", "bidirectional-exponential", "linear", "ring"}) {
    for (const std::int32_t ranks : {3, 5, 6, 7, 12, 20}) {
      for (const std::int32_t peers : kPeers) {
        SCOPED_TRACE(name + " " + std::to_string(ranks) + " " + std::to_string(peers));
        const TopologyPtr topology = make(name, ranks, peers);
        double expected = 0;
        for (std::int32_t k = 1; k < ranks; ++k) {
          std::complex<double> eigenvalue = 1;
          for (std::int64_t round = 0; round < topology->period(); ++round) {
            std::complex<double> sum = 1;
            for (const Rank to : topology->out(round, 0)) {
              sum += std::polar(1.0, 2 * kPi * k * to / ranks);
            }
            eigenvalue *= sum / static_cast<double>(topology->out(round, 0).size() + 1);
          }
          expected = std::max(expected, std::abs(eigenvalue));
        }
        EXPECT_NEAR(topology->contraction(), expected, 1e-6);
      }
    }
  }
}

// The star's W has the eigenvalue 1/2 (differences of leaves) and one given by its trace.
TEST(Contraction, StarFromItsTrace) {
  for (const std::int32_t n : {3, 5, 9, 16}) {
    const double hub = 1.0 / n + (n - 1) / 2.0 - 1 - (n - 2) / 2.0;
    EXPECT_NEAR(make("star", n)->contraction(), std::max(0.5, std::abs(hub)), 1e-6) << n;
  }
}

TEST(Contraction, SeesThatRepeatedPeriodsAreExact) {
  // The first and the last round average exactly where they meet, which they do only across the end
  // of a period: the deviation that one period leaves is not zero, but its square is. Eigenvalue
  // solvers report about 1e-8 for such a matrix.
  const Topology topology(
      "own", 4, 1, {Lists{{2}, {3}, {0}, {1}}, Lists{{3}, {}, {}, {0}}, Lists{{1}, {0}, {3}, {2}}});
  EXPECT_GT(distance_to_average(topology, 3), 0.1);
  EXPECT_LT(distance_to_average(topology, 6), 1e-15);
  EXPECT_EQ(topology.contraction(), 0);
}

TEST(Contraction, DisconnectedGraphsNeverAgree) {
  const Topology pairs("pairs", 4, 1, {Lists{{1}, {0}, {3}, {2}}});
  EXPECT_NEAR(pairs.contraction(), 1, 1e-6);
}

TEST(Contraction, BoundsTheSpreadOfEveryGraph) {
  for_all([](const Topology& topology) {
    if (topology.ranks() == 1) return;
    const double contraction = topology.contraction();
    EXPECT_GE(contraction, 0);
    EXPECT_LT(contraction, 1);
    if (!topology.doubly_stochastic()) return;  // there the limit is not the plain mean
    // It is what the spread shrinks by, neither less nor more, up to a factor that does not grow.
    constexpr int kPeriods = 12;
    const double spread = distance_to_average(topology, kPeriods * topology.period());
    EXPECT_LE(spread, topology.ranks() * std::pow(contraction + 1e-4, kPeriods) + 1e-12);
    EXPECT_GE(spread + 1e-12, std::pow(contraction, kPeriods) / topology.ranks() - 1e-12);
  });
}

TEST(MetropolisHastings, IsSymmetricDoublyStochasticAndPositive) {
  for_all([](const Topology& topology) {
    const auto n = static_cast<std::size_t>(topology.ranks());
    const std::vector<double> w = symmetric_matrix(topology, 0);
    for (std::size_t i = 0; i < n; ++i) {
      double row = 0;
      for (std::size_t j = 0; j < n; ++j) {
        EXPECT_GE(w[i * n + j], 0);
        EXPECT_EQ(w[i * n + j], w[j * n + i]);
        row += w[i * n + j];
      }
      EXPECT_EQ(row, 1) << "all weights are multiples of 2^-24";
      EXPECT_GT(w[i * n + i], 0);
    }
  });
}

TEST(MetropolisHastings, IsUniformOnUndirectedRegularGraphs) {
  for (const std::string name : {"ring", "complete", "random-regular", "bipartite-linear"}) {
    const TopologyPtr topology = make(name, 8, 2);
    const std::vector<double> w = symmetric_matrix(*topology, 0);
    const std::vector<double> uniform = topology->mixing_matrix(0);
    for (std::size_t k = 0; k < w.size(); ++k) EXPECT_NEAR(w[k], uniform[k], 8 * kUnit) << name;
  }
}

TEST(MetropolisHastings, PathByHand) {
  const std::vector<double> w = symmetric_matrix(*make("grid2d", 3), 0);
  const double third = 1.0 / 3;
  const std::vector<double> expected = {2 * third, third, 0,     third,    third,
                                        third,     0,     third, 2 * third};
  for (std::size_t k = 0; k < w.size(); ++k) EXPECT_NEAR(w[k], expected[k], 2 * kUnit) << k;
}

TEST(RandomRegular, HasTheDegreeAskedForIsConnectedAndUndirected) {
  for (const std::int32_t ranks : {4, 6, 8, 12, 16, 33, 64, 200}) {
    for (const std::int32_t degree : {2, 3, 4, 5}) {
      if (degree >= ranks || ranks * degree % 2 != 0) continue;
      for (std::int32_t seed = 0; seed < 5; ++seed) {
        SCOPED_TRACE(std::to_string(ranks) + " " + std::to_string(degree) + " seed " +
                     std::to_string(seed));
        const TopologyPtr topology = make("random-regular:" + std::to_string(seed), ranks, degree);
        EXPECT_EQ(topology->period(), 1);
        for (Rank i = 0; i < ranks; ++i) {
          EXPECT_EQ(topology->out(0, i).size(), static_cast<std::size_t>(degree));
        }
        EXPECT_TRUE(topology->symmetric());
        EXPECT_EQ(reached(*topology), static_cast<std::size_t>(ranks));
      }
    }
  }
}

TEST(RandomRegular, OnePeerWalksTheEdgesOfOneRegularGraph) {
  for (const std::int32_t ranks : {2, 3, 4, 5, 6, 7, 8, 16, 33, 101}) {
    SCOPED_TRACE(ranks);
    const TopologyPtr topology = make("random-regular:3", ranks, 1);
    const std::size_t degree =
        std::min<std::size_t>(ranks % 2 == 0 ? 3 : 4, static_cast<std::size_t>(ranks) - 1);
    EXPECT_EQ(topology->period(), static_cast<std::int64_t>(degree));
    for (Rank i = 0; i < ranks; ++i) {
      std::set<Rank> all;
      for (std::int64_t round = 0; round < topology->period(); ++round) {
        ASSERT_EQ(topology->out(round, i).size(), 1U);
        ASSERT_EQ(topology->in(round, i).size(), 1U);
        all.insert(topology->out(round, i)[0]);
      }
      EXPECT_EQ(all.size(), degree);
    }
    EXPECT_EQ(reached(*topology), static_cast<std::size_t>(ranks));
  }
}

TEST(RandomRegular, IsDeterminedByItsSeed) {
  for (const std::int32_t peers : {1, 3}) {
    const auto edges = [&](const std::string& name) {
      const TopologyPtr topology = make(name, 32, peers);
      Lists lists;
      for (Rank i = 0; i < 32; ++i) lists.push_back(topology->out(0, i));
      return lists;
    };
    EXPECT_EQ(edges("random-regular:7"), edges("random-regular:7"));
    EXPECT_NE(edges("random-regular:7"), edges("random-regular:8"));
    EXPECT_EQ(edges("random-regular"), edges("random-regular:0"));
  }
}

TEST_F(EdgeList, ReadsBothKindsOfEdgesAndComments) {
  write("# a graph\n0 1   # both ways\n\n1 -> 2\n2->0\n 0\t1\n2 2\r\n");
  const TopologyPtr topology = make(name(), 4);
  EXPECT_EQ(topology->out(0, 0), (std::vector<Rank>{1})) << "a duplicate is one edge";
  EXPECT_EQ(topology->out(0, 1), (std::vector<Rank>{0, 2}));
  EXPECT_EQ(topology->out(0, 2), (std::vector<Rank>{0})) << "a self-edge is none";
  EXPECT_TRUE(topology->out(0, 3).empty());
  EXPECT_EQ(topology->in(0, 0), (std::vector<Rank>{1, 2}));
}

TEST_F(EdgeList, ErrorsNameFileAndLine) {
  const std::pair<const char*, const char*> cases[] = {{"0 1\n1\n", ":2: "},
                                                       {"0 1\n\n0 4\n", ":3: rank 4"},
                                                       {"zero one\n", ":1: "},
                                                       {"0 1 2\n", ":1: weight 2"},
                                                       {"0 1 0.2 0.3\n", ":1: "},
                                                       {"0 1.5\n", ":1: "},
                                                       {"0 1 half\n", ":1: "},
                                                       {"0 1 0\n", ":1: weight 0"},
                                                       {"0 1 -0.5\n", ":1: weight -0.5"},
                                                       {"0 1 nan\n", ":1: "},
                                                       {"0 1 1e-7\n", ":1: weight 1e-07"},
                                                       {"0 1 0.5\n1 2\n", ":2: edges with and"},
                                                       {"0 1\n1 2 0.5\n", ":2: edges with and"},
                                                       {"0 1 0.5\n0 -> 1 0.25\n", ": the edge"},
                                                       {"0 1 0.5\n0 2 0.5\n", ": rank 0 gives"},
                                                       {"# ok\n0 -1\n", ":2: rank -1"},
                                                       {"0 -> 1 -> 2\n", ":1: "},
                                                       {"0 99999999999999999999\n", ":1: "}};
  for (const auto& [text, expected] : cases) {
    SCOPED_TRACE(text);
    write(text);
    expect_mentions(message_of(name(), 4, 1), {path_, expected});
  }
}

TEST_F(EdgeList, MissingFilesAreNamed) {
  expect_mentions(message_of("file:/no/such/edges.txt", 4, 1), {"/no/such/edges.txt"});
  expect_mentions(message_of("file:" + testing::TempDir(), 4, 1), {testing::TempDir()});
  // It has no end.
  expect_mentions(message_of("file:/dev/zero", 4, 1), {"/dev/zero", "not a plain file"});
}

TEST(TopologyErrors, NumbersThatDoNotFitNameGraphRanksAndChoices) {
  expect_mentions(message_of("hypercube", 12, 1), {"hypercube", "12 ranks", "use 8 or 16"});
  expect_mentions(message_of("random-regular", 7, 3), {"random-regular", "use 2 or 4 peers"});
}

TEST(TopologyErrors, NumbersOutOfRange) {
  expect_mentions(message_of("ring", 0, 1), {"ring", "0 ranks"});
  expect_mentions(message_of("ring", -3, 1), {"-3 ranks"});
  expect_mentions(message_of("ring", 4, 0), {"0 peers"});
  expect_mentions(message_of("complete", 1 << 20, 1), {"complete", "too many edges"});
  expect_mentions(message_of("exponential", 1 << 20, 1 << 20), {"too many edges"});
}

TEST(TopologyErrors, UnknownNamesComeWithAGuess) {
  expect_mentions(message_of("expnential", 4, 1), {"expnential", "did you mean 'exponential'"});
  expect_mentions(message_of("ring:3", 4, 1), {"ring:3", "'ring'"});
  expect_mentions(message_of("random-regular:x", 4, 2), {"'x'", "random-regular:SEED"});
  expect_mentions(message_of("random-regular:", 4, 2), {"random-regular:SEED"});
  expect_mentions(message_of("random-regular:99999999999999999999", 4, 2), {"19 digits"});
}

TEST(TopologyErrors, BrokenContractsThrow) {
  const TopologyPtr ring = make("ring", 4, 1);
  EXPECT_THROW(ring->out(-1, 0), InvariantBroken);
  EXPECT_THROW(ring->out(0, 4), InvariantBroken);
  EXPECT_THROW(ring->symmetric_shares(0, 4), InvariantBroken);
  EXPECT_THROW(ring->own_shares(0, 0), InvariantBroken) << "it has no weights of its own";
  EXPECT_THROW(Topology("own", 2, 1, {Lists{{2}, {0}}}), InvariantBroken);
  EXPECT_THROW(Topology("own", 2, 1, {Lists{{1}}}), InvariantBroken);
}

TEST(Topology, OwnRoundsAreCleanedLikeNamedOnes) {
  const Topology topology("own", 3, 2, {Lists{{0, 1, 1}, {2, 0, 2}, {}}});
  EXPECT_EQ(topology.out(0, 0), (std::vector<Rank>{1}));
  EXPECT_EQ(topology.out(0, 1), (std::vector<Rank>{2, 0}));
  EXPECT_EQ(topology.in(0, 2), (std::vector<Rank>{1}));
  EXPECT_EQ(topology.neighbors(0, 0), (std::vector<Rank>{1}));
}

TEST(Topology, ThreadsMayBuildRoundsTogether) {
  const TopologyPtr shared = make("linear", 64, 1);
  const TopologyPtr alone = make("linear", 64, 1);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (std::int64_t round = 0; round < shared->period(); ++round) {
        for (Rank i = 0; i < 64; ++i) wrong[t] += shared->out(round, i).size() != 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
  for (std::int64_t round = 0; round < alone->period(); ++round) {
    for (Rank i = 0; i < 64; ++i) EXPECT_EQ(shared->out(round, i), alone->out(round, i));
  }
}

TEST(Topology, AThousandRanksInEveryGraph) {
  for (const std::string& name : topology_names()) {
    SCOPED_TRACE(name);
    const TopologyPtr topology = make(name, name == "hypercube" ? 1024 : 1000, 2);
    for (Rank i = 0; i < topology->ranks(); ++i) {
      for (const Rank to : topology->out(5, i)) {
        const auto& back = topology->in(5, to);
        EXPECT_TRUE(std::binary_search(back.begin(), back.end(), i));
      }
    }
  }
}

// A run that continues with another batch size keeps the rounds that lie behind it: the schedule is
// followed by the epochs of both batch sizes together. Among other members rounds begin anew.
TEST(GossipGraph, SchedulesFollowTheEpochsOfARunWithAnotherBatchSize) {
  const std::string text = "0:1,1:2,2.5:3,4:4";
  const CountSchedule peers = *CountSchedule::parse(text);
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 rng(seed);
    const auto local_steps = static_cast<Step>(1 + rng() % 4);
    Horizon horizon;
    horizon.steps = 400;
    horizon.steps_per_epoch = static_cast<double>(4 + rng() % 30);
    horizon.first_step = static_cast<Step>(rng() % 60);
    horizon.first_epoch = static_cast<double>(horizon.first_step) / (4.0 + rng() % 30);
    Wiring wiring;
    ASSERT_TRUE(wiring.set("exchange", "gossip"));
    ASSERT_TRUE(wiring.set("topology", "exponential"));
    ASSERT_TRUE(wiring.set("peers", text));
    ASSERT_TRUE(wiring.set("local_steps", std::to_string(local_steps)));
    const Plan plan = *resolve(wiring);
    constexpr std::int32_t kMembers = 16;
    const auto parts =
        make_parts(plan, horizon, *LrSchedule::make({}), OptimizerConfig(), kMembers);
    ASSERT_TRUE(parts.ok()) << parts.error().message;
    for (Step step = horizon.first_step; step < horizon.steps; ++step) {
      if (step % local_steps != 0) continue;
      const std::int64_t round = step / local_steps;
      EXPECT_EQ((*parts)->graph->out(round, 3).size(),
                static_cast<std::size_t>(peers.at(horizon.epoch_of(step) + 1e-9)))
          << "round " << round;
    }
    // Messages of the last rounds may be on their way.
    for (std::int64_t round = 0; round * local_steps < horizon.first_step; ++round) {
      const double epoch = horizon.first_epoch * static_cast<double>(round * local_steps) /
                           static_cast<double>(horizon.first_step);
      EXPECT_EQ((*parts)->graph->out(round, 3).size(),
                static_cast<std::size_t>(peers.at(epoch + 1e-9)))
          << "round " << round << ", behind";
    }
    MemberChange change;
    for (Rank rank = 0; rank < kMembers; ++rank) change.before.push_back(rank);
    change.horizon = horizon.among(kMembers, kMembers, 60, horizon.epoch_of(60));
    const auto among = *parts_among(**parts, change);
    EXPECT_EQ(among->graph->out(0, 3).size(),
              static_cast<std::size_t>(peers.at(horizon.epoch_of(60))));
  }
}

std::int32_t component_count(const std::string& topology, std::int32_t ranks) {
  const auto peers = CountSchedule::parse("1");
  const auto graph = GossipGraph::make(topology, *peers, ranks, 10);
  EXPECT_TRUE(graph.ok()) << graph.error().message;
  return (*graph)->component_count();
}

TEST(GossipGraph, BuiltInGraphsAreOneComponent) {
  for (const char* topology : {"exponential", "ring", "complete", "star"})
    for (const std::int32_t ranks : {1, 2, 5, 8, 16})
      EXPECT_EQ(component_count(topology, ranks), 1) << topology << " " << ranks;
}

TEST_F(EdgeList, ComponentsAreCounted) {
  const auto components_with = [this](const std::string& edges) {
    write(edges);
    return component_count(name(), 6);
  };
  EXPECT_EQ(components_with("0 1\n2 3\n4 5\n"), 3);
  EXPECT_EQ(components_with("0 1\n2 3\n4 5\n1 2\n"), 2);
  EXPECT_EQ(components_with("0 1\n2 3\n4 5\n1 -> 2\n3 -> 4\n"), 1);
  EXPECT_EQ(components_with("5 0\n"), 5);
}

}  // namespace topology_test
}  // namespace grapevine
