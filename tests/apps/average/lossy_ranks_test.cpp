// Averaging over wires that lose messages, by roles that are no wiring's.
#include "apps/average/lossy_ranks.hpp"

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <vector>

#include "algorithms/lockstep/lockstep.hpp"
#include "tests/algorithms/graphs/symmetric_matrix.hpp"

namespace grapevine {
namespace lossy_ranks_test {

std::shared_ptr<const SharedParts> parts_of(const std::string& method, const std::string& topology,
                                            std::int32_t ranks) {
  const GraphSettings graph{topology, *CountSchedule::parse("1")};
  const auto parts = make_lossy_parts(method, graph, ranks);
  EXPECT_TRUE(parts.ok()) << parts.error().message;
  return *parts;
}

at::Tensor no_gradient(Rank, Step, const at::Tensor& z) { return at::zeros_like(z); }

// Of all ranks of a lossy world: [ranks, d] float64.
at::Tensor values_of(const Lockstep& world) {
  std::vector<at::Tensor> rows;
  for (Rank rank = 0; rank < world.ranks(); ++rank)
    rows.push_back(world.role(rank).debiased().read());
  return at::stack(rows);
}

// Three coordinates of random multiples of 1/1000 for each rank.
at::Tensor random_values(std::int32_t ranks, std::uint64_t seed) {
  Rng rng(mix_seed(seed, 99));
  at::Tensor values = at::empty({ranks, 3}, at::kDouble);
  double* value = values.data_ptr<double>();
  for (std::int64_t i = 0; i < values.numel(); ++i)
    value[i] = static_cast<double>(rng() % 20001) / 1000.0 - 10;
  return values;
}

struct World {
  World(const std::string& method, const LossyWire& lossy, const std::string& topology,
        std::int32_t ranks, const at::Tensor& start)
      : wire(lossy),
        lockstep(
            parts_of(method, topology, ranks), ranks, [&](Rank rank) { return start[rank]; },
            &no_gradient, [this](const Envelope&) { return wire.carries(); }) {}

  double weight() const {
    double sum = 0;
    for (Rank rank = 0; rank < lockstep.ranks(); ++rank) sum += lockstep.model(rank).w;
    return sum;
  }

  LossyWire wire;
  Lockstep lockstep;
};

double distance(const at::Tensor& a, const at::Tensor& b) {
  return (a - b).abs().max().item<double>();
}

TEST(LossyRanks, PairsFindTheMeanInSpiteOfLosses) {
  for (const std::string topology : {"bipartite-exponential", "star", "hypercube", "ring"})
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE(topology + ", seed " + std::to_string(seed));
      const at::Tensor start = random_values(8, seed);
      World world("bilateral", {0.3, seed}, topology, 8, start);
      for (int round = 0; round < 800; ++round) world.lockstep.sweep();
      EXPECT_LT(distance(values_of(world.lockstep), start.mean(0)), 1e-9);
    }
}

TEST(LossyRanks, PlainSharesAreLostForGood) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const at::Tensor start = random_values(8, seed);
    World world("push-sum", {0.3, seed}, "exponential", 8, start);
    for (int round = 0; round < 150; ++round) world.lockstep.sweep();
    const at::Tensor values = values_of(world.lockstep);
    EXPECT_LT(distance(values, values[0]), 1e-9) << "agreement";
    EXPECT_GT(distance(values[0], start.mean(0)), 1e-3) << "on another value";
    EXPECT_LT(world.weight(), 1);
  }
}

TEST(LossyRanks, SymmetricLossesKeepConsensusButMoveTheMean) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const at::Tensor start = random_values(8, seed);
    World world("symmetric", {0.3, seed}, "ring", 8, start);
    for (int round = 0; round < 600; ++round) world.lockstep.sweep();
    const at::Tensor values = values_of(world.lockstep);
    EXPECT_LT(distance(values, values[0]), 1e-9);
    EXPECT_GT(distance(values[0], start.mean(0)), 1e-3);
  }
}

// Without losses they are the matrices of the graph, in double precision.
TEST(LossyRanks, WithoutLossesFollowTheMatrices) {
  for (const std::string method : {"push-sum", "symmetric"})
    for (const std::string topology : {"exponential", "star", "grid2d", "base"}) {
      SCOPED_TRACE(method + " on " + topology);
      const at::Tensor start = random_values(6, 17);
      World world(method, {0, 1}, topology, 6, start);
      const auto graph = *make_topology(topology, 6, 1);
      at::Tensor x = start, w = at::ones({6, 1}, at::kDouble);
      for (std::int64_t round = 0; round < 10; ++round) {
        world.lockstep.sweep();
        const at::Tensor matrix = at::tensor(method == "symmetric" ? symmetric_matrix(*graph, round)
                                                                   : graph->mixing_matrix(round),
                                             at::kDouble)
                                      .view({6, 6});
        x = matrix.mm(x);
        w = matrix.mm(w);
        EXPECT_LT(distance(values_of(world.lockstep), x / w), 1e-5) << "round " << round;
      }
    }
}

TEST(LossyRanks, PairsMoveToTheirMean) {
  const at::Tensor start = at::arange(8, at::kDouble).unsqueeze(1);
  World world("bilateral", {0, 1}, "bipartite-exponential", 8, start);
  const auto graph = *make_topology("bipartite-exponential", 8, 1);
  world.lockstep.sweep();
  for (Rank rank = 0; rank < 8; ++rank)
    EXPECT_EQ(values_of(world.lockstep)[rank].item<double>(),
              (rank + graph->out(0, rank)[0]) / 2.0);
  world.lockstep.sweep();
  world.lockstep.sweep();
  EXPECT_LT(distance(values_of(world.lockstep), at::full({1}, 3.5, at::kDouble)), 1e-14)
      << "exact after three rounds";
}

// The only message of a round, the reply to rank 1, is lost; the next reply makes up for it.
TEST(LossyRanks, ALostReplyIsMadeGoodByTheNext) {
  const at::Tensor start = at::tensor({2.0, 10.0}, at::kDouble).unsqueeze(1);
  bool lose = true;
  Lockstep world(
      parts_of("bilateral", "bipartite-linear", 2), 2, [&](Rank rank) { return start[rank]; },
      &no_gradient,
      [&lose](const Envelope& message) {
        const auto* swap = std::get_if<Swap>(&message.payload);
        return !(lose && swap != nullptr && swap->reply);
      });
  world.sweep();
  EXPECT_TRUE(at::equal(values_of(world).flatten(), at::tensor({6.0, 10.0}, at::kDouble)));
  lose = false;
  world.sweep();
  EXPECT_TRUE(at::equal(values_of(world).flatten(), at::tensor({6.0, 6.0}, at::kDouble)));
}

TEST(LossyRanks, TheSameSeedLosesTheSameMessages) {
  const at::Tensor start = random_values(8, 3);
  const auto values = [&](std::uint64_t seed) {
    World world("push-sum", {0.5, seed}, "exponential", 8, start);
    for (int round = 0; round < 10; ++round) world.lockstep.sweep();
    return values_of(world.lockstep);
  };
  EXPECT_TRUE(at::equal(values(3), values(3)));
  EXPECT_FALSE(at::equal(values(3), values(4)));
}

}  // namespace lossy_ranks_test
}  // namespace grapevine
