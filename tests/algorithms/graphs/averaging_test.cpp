#include "algorithms/graphs/averaging.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

namespace grapevine {
namespace averaging_test {

using TopologyPtr = std::shared_ptr<const Topology>;
using Kind = AveragingMessage::Kind;

TopologyPtr make(const std::string& name, std::int32_t ranks, std::int32_t peers = 1) {
  auto topology = make_topology(name, ranks, peers);
  EXPECT_TRUE(topology.ok()) << topology.error().message;
  return *topology;
}

std::vector<std::vector<double>> random_values(std::int32_t ranks, std::size_t dim,
                                               std::uint64_t seed) {
  Rng rng(mix_seed(seed, 99));
  std::vector<std::vector<double>> values(static_cast<std::size_t>(ranks));
  for (auto& value : values) {
    for (std::size_t c = 0; c < dim; ++c) {
      value.push_back(static_cast<double>(rng() % 20001) / 1000.0 - 10);
    }
  }
  return values;
}

AveragingRun start(const TopologyPtr& topology, const std::vector<std::vector<double>>& values,
                   const AveragingOptions& options) {
  auto run = AveragingRun::start(topology, values, options);
  EXPECT_TRUE(run.ok()) << run.error().message;
  return std::move(*run);
}

AveragingRun start_by_rank(const TopologyPtr& topology, const AveragingOptions& options) {
  std::vector<std::vector<double>> values;
  for (Rank i = 0; i < topology->ranks(); ++i) values.push_back({static_cast<double>(i)});
  return start(topology, values, options);
}

void advance(AveragingRun& run, int rounds) {
  for (int round = 0; round < rounds; ++round) run.advance();
}

void expect_near(const Mass& actual, const Mass& expected, double tolerance) {
  ASSERT_EQ(actual.x.size(), expected.x.size());
  for (std::size_t c = 0; c < actual.x.size(); ++c) {
    EXPECT_NEAR(actual.x[c], expected.x[c], tolerance);
  }
  EXPECT_NEAR(actual.w, expected.w, tolerance);
}

const std::tuple<AveragingMethod, bool, const char*> kMethods[] = {
    {AveragingMethod::push_sum, true, "running push-sum"},
    {AveragingMethod::push_sum, false, "plain push-sum"},
    {AveragingMethod::symmetric, false, "symmetric"},
    {AveragingMethod::bilateral, false, "bilateral"}};

TEST(Averaging, EveryMethodFindsTheMeanOnEveryGraph) {
  for (const std::string& name : topology_names()) {
    for (const std::int32_t ranks : {1, 2, 4, 8}) {
      for (const auto& [method, running, label] : kMethods) {
        SCOPED_TRACE(name + " " + std::to_string(ranks) + " " + label);
        AveragingRun run = start(make(name, ranks), random_values(ranks, 3, 1), {method, running});
        advance(run, 300);
        EXPECT_LT(run.report().max_deviation, 1e-9);
      }
    }
  }
}

TEST(Averaging, EveryMethodConservesMassWithoutLosses) {
  for (const std::string name : {"exponential", "star", "grid2d", "ring", "bipartite-linear"}) {
    for (const auto& [method, running, label] : kMethods) {
      SCOPED_TRACE(name + " " + label);
      AveragingRun run = start(make(name, 6, 2), random_values(6, 2, 5), {method, running});
      const Mass before = run.total();
      EXPECT_EQ(before.w, 6);
      for (int round = 0; round < 50; ++round) {
        run.advance();
        expect_near(run.total(), before, 1e-11);
      }
    }
  }
}

// The oracle: x' = W x and w' = W w with the dense matrix of each round.
TEST(PushSum, FollowsTheMixingMatrices) {
  for (const std::string name : {"exponential", "star", "linear", "grid2d", "ring"}) {
    for (const bool running : {false, true}) {
      SCOPED_TRACE(name + (running ? " running" : " plain"));
      const TopologyPtr topology = make(name, 6, 2);
      const auto values = random_values(6, 1, 17);
      AveragingRun run = start(topology, values, {AveragingMethod::push_sum, running});
      std::vector<double> x;
      for (const auto& value : values) x.push_back(value[0]);
      std::vector<double> w(6, 1.0);
      for (std::int64_t round = 0; round < 12; ++round) {
        run.advance();
        const std::vector<double> matrix = topology->mixing_matrix(round);
        std::vector<double> next_x(6, 0.0);
        std::vector<double> next_w(6, 0.0);
        for (std::size_t i = 0; i < 6; ++i) {
          for (std::size_t j = 0; j < 6; ++j) {
            next_x[i] += matrix[i * 6 + j] * x[j];
            next_w[i] += matrix[i * 6 + j] * w[j];
          }
        }
        x = next_x;
        w = next_w;
        for (std::size_t i = 0; i < 6; ++i) {
          const Averager& rank = run.rank(static_cast<Rank>(i));
          EXPECT_NEAR(rank.held().x[0], x[i], 1e-12);
          EXPECT_NEAR(rank.held().w, w[i], 1e-12);
          EXPECT_NEAR(rank.estimate()[0], x[i] / w[i], 1e-12);
        }
      }
    }
  }
}

TEST(PushSum, IsExactAfterOnePeriodOfAPowerOfTwo) {
  AveragingRun run = start_by_rank(make("exponential", 16), {});
  EXPECT_EQ(run.report().round, 0);
  EXPECT_EQ(run.report().max_deviation, 7.5);
  EXPECT_EQ(run.report().mean, 7.5);
  advance(run, 3);
  EXPECT_GT(run.report().max_deviation, 0.1);
  run.advance();
  EXPECT_EQ(run.report().round, 4);
  EXPECT_LT(run.report().max_deviation, 1e-13);
  EXPECT_NEAR(run.report().weight_sum, 16, 1e-12);
}

TEST(PushSum, RunningSumsSurviveLosses) {
  for (const std::string name : {"exponential", "ring", "star", "bipartite-exponential"}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE(name + " seed " + std::to_string(seed));
      AveragingOptions options;
      options.drop = 0.3;
      options.seed = seed;
      AveragingRun run = start(make(name, 8), random_values(8, 3, seed), options);
      const Mass before = run.total();
      for (int round = 0; round < 800; ++round) {
        run.advance();
        expect_near(run.total(), before, 1e-9);
      }
      EXPECT_LT(run.report().max_deviation, 1e-9);
    }
  }
}

TEST(PushSum, PlainSharesAreLostForGood) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(seed);
    AveragingOptions options;
    options.running_sums = false;
    options.drop = 0.3;
    options.seed = seed;
    AveragingRun run = start_by_rank(make("exponential", 8), options);
    advance(run, 100);
    const double deviation = run.report().max_deviation;
    EXPECT_GT(deviation, 1e-3);
    EXPECT_LT(run.report().weight_sum, 1);
    advance(run, 100);
    EXPECT_NEAR(run.report().max_deviation, deviation, 1e-9) << "agreement, but on another value";
  }
}

TEST(PushSum, OvertakenAndRepeatedMessagesChangeNothing) {
  const TopologyPtr topology = make("ring", 3, 1);
  auto sender = make_averager(AveragingMethod::push_sum, true, topology, 0, {8});
  auto receiver = make_averager(AveragingMethod::push_sum, true, topology, 1, {0});
  const auto first = sender->begin_round(0);
  const auto second = sender->begin_round(1);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].to, 1);
  EXPECT_EQ(first[0].mass.x[0], 4);
  EXPECT_EQ(second[0].mass.x[0], 6) << "the sum of 4 and 2";
  // Looked at after each message: the repeated second would make good what the first took away.
  for (const auto* message : {&second[0], &first[0], &second[0]}) {
    receiver->on_message(*message);
    EXPECT_EQ(receiver->held().x[0], 6) << "after the message of round " << message->round;
    EXPECT_EQ(receiver->held().w, 1.75);
  }
}

// The oracle: x' = M x with the Metropolis-Hastings matrix of each round.
TEST(Symmetric, FollowsTheMetropolisHastingsMatrices) {
  for (const std::string name : {"star", "grid2d", "exponential", "bipartite-exponential"}) {
    SCOPED_TRACE(name);
    const TopologyPtr topology = make(name, 6, 1);
    const auto values = random_values(6, 1, 23);
    AveragingRun run = start(topology, values, {AveragingMethod::symmetric});
    std::vector<double> x;
    for (const auto& value : values) x.push_back(value[0]);
    for (std::int64_t round = 0; round < 10; ++round) {
      run.advance();
      const std::vector<double> matrix = topology->metropolis_hastings(round);
      std::vector<double> next(6, 0.0);
      for (std::size_t i = 0; i < 6; ++i) {
        for (std::size_t j = 0; j < 6; ++j) next[i] += matrix[i * 6 + j] * x[j];
      }
      x = next;
      for (std::size_t i = 0; i < 6; ++i) {
        EXPECT_NEAR(run.rank(static_cast<Rank>(i)).estimate()[0], x[i], 1e-12);
      }
    }
  }
}

TEST(Symmetric, LossesKeepConsensusButMoveTheMean) {
  AveragingRun run = start_by_rank(make("ring", 8, 2), {AveragingMethod::symmetric, false, 0.3, 4});
  advance(run, 400);
  EXPECT_NEAR(run.rank(0).estimate()[0], run.rank(5).estimate()[0], 1e-9);
  EXPECT_GT(run.report().max_deviation, 1e-3);
}

TEST(Bilateral, MatchingsAverageInPairs) {
  const TopologyPtr topology = make("bipartite-exponential", 8, 1);
  AveragingRun run = start_by_rank(topology, {AveragingMethod::bilateral});
  run.advance();
  for (Rank i = 0; i < 8; ++i) {
    EXPECT_EQ(run.rank(i).estimate()[0], (i + topology->out(0, i)[0]) / 2.0) << i;
  }
  advance(run, 2);
  EXPECT_LT(run.report().max_deviation, 1e-14) << "exact after three rounds";
}

TEST(Bilateral, OnlyOddRanksOfBipartiteGraphsAsk) {
  const TopologyPtr topology = make("bipartite-linear", 6, 2);
  for (Rank i = 0; i < 6; ++i) {
    auto rank = make_averager(AveragingMethod::bilateral, false, topology, i, {1});
    EXPECT_EQ(rank->begin_round(0).size(), i % 2 == 0 ? 0U : 1U) << "one exchange at a time";
  }
}

TEST(Bilateral, SurvivesLossesOfRequestsAndReplies) {
  for (const std::string name : {"bipartite-exponential", "ring", "star", "hypercube"}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE(name + " seed " + std::to_string(seed));
      AveragingRun run = start(make(name, 8), random_values(8, 2, seed),
                               {AveragingMethod::bilateral, false, 0.3, seed});
      const Mass before = run.total();
      for (int round = 0; round < 800; ++round) {
        run.advance();
        expect_near(run.total(), before, 1e-9);
      }
      EXPECT_LT(run.report().max_deviation, 1e-9);
      EXPECT_NEAR(run.report().weight_sum, 8, 1e-9);
    }
  }
}

TEST(Bilateral, ALostReplyIsMadeGoodByTheNext) {
  const TopologyPtr topology = make("bipartite-linear", 2);
  auto asking = make_averager(AveragingMethod::bilateral, false, topology, 1, {10});
  auto serving = make_averager(AveragingMethod::bilateral, false, topology, 0, {2});
  serving->on_message(asking->begin_round(0)[0]);  // the reply is lost
  EXPECT_EQ(serving->held().x[0], 6);
  EXPECT_EQ(asking->held().x[0], 10);
  const auto reply = serving->on_message(asking->begin_round(1)[0]);
  ASSERT_EQ(reply.size(), 1U);
  EXPECT_EQ(serving->held().x[0], 6) << "the other end is due at 6 as well";
  asking->on_message(reply[0]);
  EXPECT_EQ(asking->held().x[0], 6);
}

TEST(Bilateral, OvertakenAndRepeatedRepliesChangeNothing) {
  const TopologyPtr star = make("star", 3);
  auto hub = make_averager(AveragingMethod::bilateral, false, star, 0, {2});
  auto asking = make_averager(AveragingMethod::bilateral, false, star, 1, {10});
  auto third = make_averager(AveragingMethod::bilateral, false, star, 2, {0});
  const auto first = hub->on_message(asking->begin_round(0)[0]);
  ASSERT_EQ(first.size(), 1U);
  // In between the hub moves from 6 to 3, so that the next reply tells another sum.
  hub->on_message(third->on_message(hub->begin_round(0)[0])[0]);
  ASSERT_EQ(hub->held().x[0], 3);
  const auto second = hub->on_message(asking->begin_round(1)[0]);
  ASSERT_EQ(second.size(), 1U);
  for (const auto* reply : {&second[0], &first[0], &second[0]}) {
    asking->on_message(*reply);
    EXPECT_EQ(asking->held().x[0], 4.5) << "after the reply of round " << reply->round;
    EXPECT_EQ(hub->held().x[0], 4.5);
  }
}

TEST(Averaging, SameSeedSameNumbers) {
  const auto deviation = [](std::uint64_t seed) {
    AveragingOptions options;
    options.drop = 0.5;
    options.seed = seed;
    AveragingRun run = start_by_rank(make("exponential", 8), options);
    advance(run, 10);
    return run.report().max_deviation;
  };
  EXPECT_EQ(deviation(3), deviation(3));
  EXPECT_NE(deviation(3), deviation(4));
}

TEST(Averaging, BadArgumentsAreNamed) {
  const TopologyPtr ring = make("ring", 2);
  AveragingOptions options;
  for (const double drop : {-0.1, 1.0, 2.0, std::numeric_limits<double>::quiet_NaN()}) {
    options.drop = drop;
    EXPECT_FALSE(AveragingRun::start(ring, {{0}, {1}}, options).ok()) << drop;
  }
  EXPECT_FALSE(AveragingRun::start(ring, {{0}}, {}).ok());
  EXPECT_FALSE(AveragingRun::start(ring, {{0}, {1, 2}}, {}).ok());
  EXPECT_FALSE(AveragingRun::start(ring, {{}, {}}, {}).ok());
  const auto method = parse_averaging_method("pushsum");
  ASSERT_FALSE(method.ok());
  EXPECT_NE(method.error().message.find("'push-sum'"), std::string::npos);
  for (const std::string& name : averaging_method_names()) {
    EXPECT_TRUE(parse_averaging_method(name).ok()) << name;
  }
}

}  // namespace averaging_test
}  // namespace grapevine
