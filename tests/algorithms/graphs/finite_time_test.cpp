// Graphs whose rounds average exactly: base-(k+1), one-peer exponential.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>

#include "algorithms/graphs/gossip_graph.hpp"
#include "messages/random.hpp"

namespace grapevine {
namespace finite_time_test {

using TopologyPtr = std::shared_ptr<const Topology>;

constexpr double kUnit = 1.0 / (1 << 24);  // of the weights that are sent

TopologyPtr make(const std::string& name, std::int32_t ranks, std::int32_t peers) {
  auto topology = make_topology(name, ranks, peers);
  EXPECT_TRUE(topology.ok()) << topology.error().message;
  return *topology;
}

std::int64_t length(std::int32_t ranks, std::int32_t peers) {
  return make("base", ranks, peers)->period();
}

// One round of the weights that are not rounded.
std::vector<double> mixed(const Topology& topology, std::int64_t round, std::vector<double> x) {
  const std::vector<double> w = topology.mixing_matrix(round);
  std::vector<double> next(x.size(), 0.0);
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < x.size(); ++j) next[i] += w[i * x.size() + j] * x[j];
  return next;
}

// The largest distance of a rank from the mean, where rank `start` begins with 1 and the others
// with 0, after `rounds` rounds from round `first`.
double distance_from(const Topology& topology, Rank start, std::int64_t first,
                     std::int64_t rounds) {
  std::vector<double> x(static_cast<std::size_t>(topology.ranks()), 0.0);
  x[static_cast<std::size_t>(start)] = 1;
  for (std::int64_t round = first; round < first + rounds; ++round) x = mixed(topology, round, x);
  double distance = 0;
  for (const double value : x)
    distance = std::max(distance, std::abs(value - 1.0 / static_cast<double>(topology.ranks())));
  return distance;
}

// Symmetric, not negative, rows of 1, at most `peers` edges of a rank.
void expect_valid_rounds(const Topology& topology, std::int32_t peers) {
  const auto n = static_cast<std::size_t>(topology.ranks());
  for (std::int64_t round = 0; round < topology.period(); ++round) {
    const std::vector<double> w = topology.mixing_matrix(round);
    for (std::size_t i = 0; i < n; ++i) {
      const auto row = w.begin() + static_cast<std::ptrdiff_t>(i * n);
      EXPECT_NEAR(std::accumulate(row, row + static_cast<std::ptrdiff_t>(n), 0.0), 1, 1e-12);
      EXPECT_LE(topology.out(round, static_cast<Rank>(i)).size(), static_cast<std::size_t>(peers));
      for (std::size_t j = 0; j < n; ++j) {
        EXPECT_GE(w[i * n + j], 0);
        EXPECT_EQ(w[i * n + j], w[j * n + i]);
      }
    }
  }
}

// Takezawa et al. 2023; the reference computed them in exact arithmetic.
TEST(BaseGraph, HasThePublishedNumbersOfRounds) {
  const std::vector<std::vector<std::int64_t>> lengths = {
      {1, 1, 3, 2, 5, 4, 5, 3, 7, 6, 7, 5, 7, 6, 7, 4},
      {1, 1, 1, 2, 3, 2, 4, 3, 2, 4, 5, 3, 5, 5, 4, 4},
      {1, 1, 1, 1, 3, 2, 3, 2, 2, 4, 4, 2, 4, 4, 4, 2}};
  for (std::int32_t k = 1; k <= 3; ++k)
    for (std::int32_t n = 1; n <= 16; ++n)
      EXPECT_EQ(length(n, k),
                lengths[static_cast<std::size_t>(k - 1)][static_cast<std::size_t>(n - 1)])
          << "n=" << n << ", k=" << k;
}

TEST(BaseGraph, AveragesExactlyInOnePeriod) {
  for (std::int32_t k = 1; k <= 3; ++k)
    for (std::int32_t n = 1; n <= 32; ++n) {
      SCOPED_TRACE("n=" + std::to_string(n) + ", k=" + std::to_string(k));
      const TopologyPtr base = make("base", n, k);
      expect_valid_rounds(*base, k);
      for (Rank start = 0; start < n; ++start)
        EXPECT_LT(distance_from(*base, start, 0, base->period()), 1e-14) << "rank " << start;
      EXPECT_EQ(base->contraction(), 0);
      EXPECT_TRUE(base->doubly_stochastic());
      EXPECT_TRUE(base->symmetric());
      EXPECT_LE(static_cast<double>(base->period()), 2 * std::log(n) / std::log(k + 1) + 2);
    }
}

// A floating logarithm takes log_3 243 for 4.99…: degree 3 for 244, 245 and 250.
TEST(BaseGraph, PowersAreWholeNumbersAroundTwoHundredFortyThree) {
  for (std::int32_t n = 243; n <= 250; ++n) {
    SCOPED_TRACE("n=" + std::to_string(n));
    const TopologyPtr base = make("base", n, 2);
    expect_valid_rounds(*base, 2);
    for (const Rank start : {0, 1, n / 2, n - 1})
      EXPECT_LT(distance_from(*base, start, 0, base->period()), 1e-14) << "rank " << start;
  }
  EXPECT_EQ(length(243, 2), 5);
}

TEST(BaseGraph, RandomNumbersOfRanksAndPeers) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    Rng rng(mix_seed(seed, 31));
    const auto n = static_cast<std::int32_t>(2 + rng() % 120);
    const auto k = static_cast<std::int32_t>(1 + rng() % 12);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": n=" + std::to_string(n) +
                 ", k=" + std::to_string(k));
    const TopologyPtr base = make("base", n, k);
    expect_valid_rounds(*base, k);
    const auto start = static_cast<Rank>(rng() % static_cast<std::uint64_t>(n));
    EXPECT_LT(distance_from(*base, start, 0, base->period()), 1e-14);
  }
}

TEST(BaseGraph, FiveAndSixRanksByHand) {
  using Pairs = std::set<std::pair<Rank, Rank>>;
  const auto pairs = [](const Topology& topology, std::int64_t round) {
    Pairs edges;
    for (Rank i = 0; i < topology.ranks(); ++i)
      for (const Rank j : topology.out(round, i))
        if (i < j) edges.insert({i, j});
    return edges;
  };
  const TopologyPtr five = make("base", 5, 1);
  const std::vector<Pairs> of_five = {
      {{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}, {{0, 1}, {3, 4}}, {{0, 1}, {2, 3}}, {{0, 2}, {1, 3}}};
  for (std::int64_t round = 0; round < 5; ++round)
    EXPECT_EQ(pairs(*five, round), of_five[static_cast<std::size_t>(round)]) << round;
  EXPECT_DOUBLE_EQ(five->mixing_matrix(2)[3 * 5 + 4], 0.8);
  const TopologyPtr six = make("base", 6, 1);
  const std::vector<Pairs> of_six = {
      {{0, 1}, {3, 4}}, {{1, 2}, {4, 5}}, {{0, 1}, {3, 4}}, {{0, 3}, {1, 4}, {2, 5}}};
  for (std::int64_t round = 0; round < 4; ++round)
    EXPECT_EQ(pairs(*six, round), of_six[static_cast<std::size_t>(round)]) << round;
  EXPECT_DOUBLE_EQ(six->mixing_matrix(1)[1 * 6 + 2], 2.0 / 3);
}

TEST(BaseGraph, OneRankAndAsManyPeersAsThereAre) {
  const TopologyPtr alone = make("base", 1, 1);
  EXPECT_EQ(alone->period(), 1);
  EXPECT_EQ(alone->mixing_matrix(0), std::vector<double>{1});
  for (const std::int32_t peers : {6, 7, 1000000}) {
    const TopologyPtr base = make("base", 7, peers);
    EXPECT_EQ(base->period(), 1);
    EXPECT_EQ(base->out(0, 3).size(), 6U) << "every rank averages with all others";
  }
  const auto large = make_topology("base", 1 << 20, 1 << 19);
  ASSERT_FALSE(large.ok());
  EXPECT_NE(large.error().message.find("too many edges"), std::string::npos);
}

// Both uses take the graph's own weights, rounded: they still average in one period.
TEST(BaseGraph, SharesOfBothUsesAverageInOnePeriod) {
  for (const std::int32_t n : {2, 5, 6, 7, 12, 25}) {
    const auto graph = GossipGraph::make("base", *CountSchedule::parse("1"), n, 10);
    ASSERT_TRUE(graph.ok());
    for (const bool symmetric : {false, true}) {
      SCOPED_TRACE("n=" + std::to_string(n) + (symmetric ? ", symmetric" : ", push-sum"));
      std::vector<double> x(static_cast<std::size_t>(n));
      std::iota(x.begin(), x.end(), 0.0);
      for (std::int64_t round = 0; round < (*graph)->period(0); ++round) {
        std::vector<double> next(x.size(), 0.0);
        for (Rank i = 0; i < n; ++i) {
          const auto all = [](Rank) { return true; };
          const Shares shares = symmetric ? (*graph)->symmetric_shares(round, i, all)
                                          : (*graph)->even_shares(round, i, all);
          next[static_cast<std::size_t>(i)] += shares.kept * x[static_cast<std::size_t>(i)];
          for (const Shares::Link& link : shares.links)
            next[static_cast<std::size_t>(link.peer)] +=
                link.weight * x[static_cast<std::size_t>(i)];
        }
        x = next;
      }
      for (const double value : x) EXPECT_NEAR(value, (n - 1) / 2.0, 100 * n * kUnit);
    }
  }
}

TEST(BaseGraph, PeersMayFollowASchedule) {
  const auto graph = GossipGraph::make("base", *CountSchedule::parse("0:1,1:2"), 9, 7);
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ((*graph)->period(0), 7) << "one peer: 8 + 1 ranks";
  EXPECT_EQ((*graph)->period(7), 2) << "two peers: 3 times 3 ranks";
  EXPECT_EQ((*graph)->out(7, 0).size(), 2U);
  EXPECT_EQ((*graph)->component_count(), 1);
  EXPECT_TRUE((*graph)->check_strongly_connected().ok());
}

TEST(OnePeerExponential, IsTheExponentialGraphWithOnePeer) {
  for (const std::int32_t n : {1, 2, 3, 8, 13, 16})
    for (const std::int32_t peers : {1, 3}) {
      SCOPED_TRACE(n);
      const TopologyPtr one = make("one-peer-exponential", n, peers);
      const TopologyPtr other = make("exponential", n, 1);
      ASSERT_EQ(one->period(), other->period());
      EXPECT_TRUE(one->doubly_stochastic());
      for (std::int64_t round = 0; round < one->period(); ++round)
        for (Rank i = 0; i < n; ++i) EXPECT_EQ(one->out(round, i), other->out(round, i));
    }
}

// Ying et al. 2021: the rounds commute.
TEST(OnePeerExponential, AveragesAPowerOfTwoFromAnyRoundOn) {
  for (std::int32_t p = 1; p <= 5; ++p) {
    const TopologyPtr one = make("one-peer-exponential", 1 << p, 1);
    for (std::int64_t first = 0; first < 2 * p; ++first) {
      SCOPED_TRACE("n=" + std::to_string(1 << p) + " from round " + std::to_string(first));
      EXPECT_LT(distance_from(*one, 0, first, p), 1e-15);
      EXPECT_GT(distance_from(*one, 0, first, p - 1), 1e-3) << "sooner than expected";
    }
  }
  for (const std::int32_t n : {3, 5, 6, 12})
    EXPECT_GT(make("one-peer-exponential", n, 1)->contraction(), 1e-3) << n << ": never exact";
}

}  // namespace finite_time_test
}  // namespace grapevine
