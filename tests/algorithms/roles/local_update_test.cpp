// Local steps, overlap and clipping, with every role that takes them.
#include <gtest/gtest.h>

#include "tests/sim/short_runs.hpp"

namespace grapevine {
namespace local_update_test {

using sim::Keys;
using sim::models_after;
using sim::operator+;
using sim::pull_beyond;
using sim::RoleWorld;
using sim::short_config;
using sim::WorldConfig;

void expect_close(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(at::allclose(a[i], b[i], 1e-5, 1e-5)) << "rank " << i << "\n" << a[i] << b[i];
}

// Groups whose every average is global are local SGD (Stich 2019), also where H does not divide
// the run.
TEST(LocalUpdate, GroupsWithGlobalAveragesAreLocalSgd) {
  for (const char* local_steps : {"1", "2", "3", "5"})
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(std::string("H=") + local_steps + ", seed=" + std::to_string(seed));
      const Keys steps = {{"local_steps", local_steps}};
      expect_close(models_after(short_config(
                       Keys{{"exchange", "group"}, {"staleness", "1"}} + steps, 4, 13, seed)),
                   models_after(short_config(
                       Keys{{"exchange", "aggregate"}, {"pack", "model"}} + steps, 4, 13, seed)));
    }
}

const Keys kDifferences = {{"exchange", "aggregate"}, {"pack", "difference"}};

WorldConfig with_momentum(WorldConfig config, double momentum) {
  config.optimizer.momentum = momentum;
  return config;
}

// Wang et al. 2020: without momentum and with rate 1 the slow step is the average.
TEST(LocalUpdate, SlowMoWithoutMomentumIsLocalSgd) {
  for (const char* local_steps : {"1", "3", "5"}) {
    const Keys steps = {{"local_steps", local_steps}};
    const Keys slowmo = {{"outer", "slowmo"}, {"outer_lr", "1"}, {"outer_momentum", "0"}};
    const Keys models = {{"exchange", "aggregate"}, {"pack", "model"}};
    expect_close(
        models_after(with_momentum(short_config(kDifferences + steps + slowmo, 3, 13, 1), 0.5)),
        models_after(with_momentum(short_config(models + steps, 3, 13, 1), 0.5)));
  }
}

// One local step of plain SGD, rate 1: momentum SGD on the mean gradient, with SlowMo's factor.
TEST(LocalUpdate, SlowMoAfterEveryStepIsMomentumSgd) {
  const Keys slowmo = {{"outer", "slowmo"}, {"outer_lr", "1"}, {"outer_momentum", "0.75"}};
  expect_close(
      models_after(short_config(kDifferences + slowmo, 4, 12, 2)),
      models_after(with_momentum(short_config({{"exchange", "aggregate"}}, 4, 12, 2), 0.75)));
}

// At a constant learning rate the division by it cancels.
TEST(LocalUpdate, SlowMoAtAConstantRateIsTheHeavyBall) {
  const Keys numbers = {{"local_steps", "4"}, {"outer_lr", "0.5"}, {"outer_momentum", "0.5"}};
  expect_close(
      models_after(short_config(kDifferences + numbers + Keys{{"outer", "slowmo"}}, 3, 14, 3)),
      models_after(short_config(kDifferences + numbers + Keys{{"outer", "momentum"}}, 3, 14, 3)));
}

// Zhang et al. 2019: alone and without momentum, a <- a + alpha (x - a) after H steps.
TEST(LocalUpdate, SlowMoAloneIsLookahead) {
  const Keys slowmo = {
      {"local_steps", "3"}, {"outer", "slowmo"}, {"outer_lr", "0.5"}, {"outer_momentum", "0"}};
  const WorldConfig config = short_config(kDifferences + slowmo, 1, 12, 4);
  double slow = 0;
  for (int round = 0; round < 4; ++round) {
    double fast = slow;
    for (int step = 0; step < 3; ++step) fast -= config.lr * (fast - 1);
    slow += 0.5 * (fast - slow);
  }
  EXPECT_NEAR(models_after(config)[0][0].item<double>(), slow, 1e-5);
}

// Sarfi et al. 2025: where everything is sent there is no residual to decay.
TEST(LocalUpdate, SparseDifferencesThatKeepAllAreLocalSgd) {
  for (const char* decay : {"1", "0.9", "0.1"}) {
    const Keys sparse = {
        {"local_steps", "3"}, {"compress", "top-k"}, {"density", "1"}, {"residual_decay", decay}};
    expect_close(models_after(short_config(kDifferences + sparse, 3, 13, 5)),
                 models_after(short_config(kDifferences + Keys{{"local_steps", "3"}}, 3, 13, 5)));
  }
}

// Differences that lose nothing, mixed with eta = 1, are symmetric gossip of models.
TEST(LocalUpdate, DifferencesThatLoseNothingAreGossipOfModels) {
  const Keys symmetric = {{"exchange", "gossip"}, {"averaging", "symmetric"}, {"peers", "2"}};
  const Keys lossless = {{"compress", "top-k"}, {"density", "1"}, {"consensus_step", "1"}};
  const std::vector<Keys> uses = {{},
                                  {{"local_steps", "3"}},
                                  {{"update", "after"}},
                                  {{"update", "after"}, {"local_steps", "4"}},
                                  {{"overlap", "true"}},
                                  {{"overlap", "true"}, {"local_steps", "2"}}};
  for (const Keys& use : uses)
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(testing::PrintToString(use) + ", seed=" + std::to_string(seed));
      expect_close(models_after(short_config(symmetric + use + lossless, 6, 14, seed)),
                   models_after(short_config(symmetric + use, 6, 14, seed)));
    }
}

// With H local steps pairs exchange at most once for H gradients of the rank that asks.
TEST(LocalUpdate, PairsExchangeAfterHSteps) {
  WorldConfig config = short_config(
      {{"exchange", "bilateral"}, {"topology", "bipartite-exponential"}, {"local_steps", "4"}}, 6,
      16, 5);
  RoleWorld world(config, pull_beyond);
  std::int64_t exchanges = 0;
  world.watch([&](const Envelope& envelope, bool delivered) {
    const auto* swap = std::get_if<Swap>(&envelope.payload);
    exchanges += swap != nullptr && !swap->reply && delivered;
  });
  world.start();
  world.run();
  std::int64_t gradients = 0;
  for (Rank rank = 0; rank < 6; ++rank) gradients += world.model(rank).step;
  EXPECT_GT(exchanges, 0);
  EXPECT_LE(exchanges, gradients / 4);
}

// A gradient of any size moves a model by lr * clip at most, whatever ranks exchange.
TEST(LocalUpdate, ClippingBoundsEveryStep) {
  const Keys partial = {{"exchange", "partial"}, {"staleness", "2"}};
  const std::vector<Keys> wirings = {
      {{"exchange", "aggregate"}},
      {{"exchange", "aggregate"}, {"clip_at", "local"}},
      {{"exchange", "aggregate"}, {"pack", "model"}, {"local_steps", "2"}},
      {{"exchange", "aggregate"}, {"pack", "difference"}, {"local_steps", "2"}},
      {{"exchange", "gossip"}},
      {{"exchange", "gossip"}, {"overlap", "true"}},
      {{"exchange", "gossip"}, {"averaging", "symmetric"}, {"compress", "int8"}},
      {{"exchange", "bilateral"}, {"topology", "bipartite-exponential"}},
      partial,
      partial + Keys{{"clip_at", "local"}},
      {{"exchange", "group"}, {"staleness", "3"}},
      {{"exchange", "server"}, {"rule", "gem"}},
      {{"exchange", "server"}, {"rule", "downpour"}},
      {{"exchange", "server"}, {"rule", "easgd"}, {"local_steps", "2"}}};
  constexpr double kClip = 0.5;
  for (const Keys& wiring : wirings) {
    SCOPED_TRACE(testing::PrintToString(wiring));
    WorldConfig config = short_config(wiring + Keys{{"clip", "0.5"}}, 4, 6, 3);
    RoleWorld world(config, [](Rank, Step, const at::Tensor& z) { return at::full_like(z, 1e6); });
    world.start();
    world.run();
    std::int64_t gradients = 0;
    for (Rank rank = 0; rank < 4; ++rank) gradients += world.model(rank).step;
    for (Rank rank = 0; rank < 4; ++rank) {
      const double moved = world.z(rank).norm().item<double>();
      EXPECT_GT(moved, 0) << "rank " << rank;
      EXPECT_LE(moved, config.lr * kClip * static_cast<double>(gradients) * 1.001)
          << "rank " << rank;
    }
  }
}

}  // namespace local_update_test
}  // namespace grapevine
