// Differences with an outer optimizer in roles that mix models or wait for a quorum, and exchanges
// that overlap: their degenerate cases, their means, and stragglers.
#include <gtest/gtest.h>

#include "algorithms/graphs/gossip_graph.hpp"
#include "tests/sim/short_runs.hpp"

namespace grapevine {
namespace differences_test {

using sim::Keys;
using sim::models_after;
using sim::operator+;
using sim::pull_beyond;
using sim::RoleWorld;
using sim::short_config;
using sim::WorldConfig;

constexpr double kRate = sim::kShortRate;

// Of neither the model nor the schedule, and dyadic: sums of them are exact.
at::Tensor constant(Rank rank, Step step, const at::Tensor& z) {
  return at::full_like(z, static_cast<double>((rank + 1) * 4 + step % 4));
}

// Of all of these.
double sum_of_constants(std::int32_t ranks, Step steps) {
  double sum = 0;
  for (Rank rank = 0; rank < ranks; ++rank)
    for (Step step = 0; step < steps; ++step) sum += (rank + 1) * 4 + static_cast<double>(step % 4);
  return sum;
}

void expect_same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(at::equal(a[i], b[i])) << "rank " << i << "\n" << a[i] << b[i];
}

void expect_close(const at::Tensor& a, const at::Tensor& b, double tolerance = 1e-5) {
  EXPECT_TRUE(at::allclose(a, b, tolerance, tolerance)) << a << b;
}

at::Tensor mean_of(const std::vector<at::Tensor>& models) { return at::stack(models).mean(0); }

const Keys kHeavyBall = {
    {"pack", "difference"}, {"outer", "momentum"}, {"outer_lr", "0.7"}, {"outer_momentum", "0.5"}};
const Keys kPairs = {{"exchange", "gossip"},
                     {"averaging", "symmetric"},
                     {"topology", "round-robin"},
                     {"peers", "1"}};

// ---- NoLoCo (Kolehmainen et al. 2025) ----

// A group of all ranks is DiLoCo with heavy-ball momentum.
TEST(NoLoCo, AmongAllRanksIsDiLoCoWithHeavyBall) {
  for (const char* local_steps : {"1", "3", "5"}) {
    const Keys steps = {{"local_steps", local_steps}};
    const Keys all = {{"exchange", "gossip"}, {"averaging", "symmetric"}, {"topology", "complete"}};
    const auto mixed = models_after(short_config(all + kHeavyBall + steps, 4, 15, 1));
    const auto summed =
        models_after(short_config(Keys{{"exchange", "aggregate"}} + kHeavyBall + steps, 4, 15, 1));
    for (std::size_t rank = 0; rank < 4; ++rank) expect_close(mixed[rank], summed[rank]);
  }
}

// Whatever the pairs: the mean of all models is DiLoCo's, where gradients are linear.
TEST(NoLoCo, MeansFollowDiLoCoWhateverThePairs) {
  for (const char* local_steps : {"1", "2", "5"})
    for (const Keys& graph : {kPairs, kPairs + Keys{{"topology", "ring"}, {"peers", "2"}},
                              kPairs + Keys{{"topology", "exponential"}},
                              kPairs + Keys{{"averaging", "push-sum"}, {"topology", "linear"}}}) {
      const Keys steps = {{"local_steps", local_steps}};
      const auto mixed = models_after(short_config(graph + kHeavyBall + steps, 8, 20, 2));
      const auto summed = models_after(
          short_config(Keys{{"exchange", "aggregate"}} + kHeavyBall + steps, 8, 20, 2));
      expect_close(mean_of(mixed), summed.front(), 1e-4);
    }
}

// Equations 1 to 3 in double precision, pair by pair.
TEST(NoLoCo, FollowsThePapersEquations) {
  constexpr std::int32_t kRanks = 6;
  constexpr std::int64_t kH = 3, kExchanges = 5;
  const auto config =
      short_config(kPairs + kHeavyBall + Keys{{"local_steps", "3"}}, kRanks, kH * kExchanges, 4);
  RoleWorld world(config, pull_beyond);
  const auto graph = world.parts()->graph;
  std::vector<double> phi(kRanks, 0), m(kRanks, 0);
  for (std::int64_t round = 0; round < kExchanges; ++round) {
    std::vector<double> x = phi;
    for (Rank i = 0; i < kRanks; ++i)
      for (std::int64_t h = 0; h < kH; ++h) x[i] -= kRate * (x[i] - (i + 1));
    std::vector<double> next = phi;
    for (Rank i = 0; i < kRanks; ++i) {
      const auto pair = graph->neighbors(round, i);
      ASSERT_EQ(pair.size(), 1U);
      const Rank j = pair.front();
      const double delta = ((x[i] - phi[i]) + (x[j] - phi[j])) / 2, centre = (phi[i] + phi[j]) / 2;
      m[i] = 0.5 * m[i] + 0.7 * delta - 0.7 * (phi[i] - centre);
      next[i] = phi[i] + m[i];
    }
    phi = next;
  }
  const auto models = models_after(config);
  for (Rank i = 0; i < kRanks; ++i)
    EXPECT_NEAR(models[static_cast<std::size_t>(i)][0].item<double>(),
                phi[static_cast<std::size_t>(i)], 1e-4)
        << "rank " << i;
}

// Without an outer optimizer a rank takes the mixed model itself: bit for bit plain gossip.
TEST(MixedDifferences, WithoutAnOuterOptimizerAreModels) {
  for (const Keys& role :
       {kPairs, kPairs + Keys{{"overlap", "true"}}, kPairs + Keys{{"update", "after"}},
        Keys{{"exchange", "group"}}, Keys{{"exchange", "gossip"}}}) {
    const Keys steps = role + Keys{{"local_steps", "2"}};
    expect_same_bits(models_after(short_config(steps + Keys{{"pack", "difference"}}, 6, 13, 3)),
                     models_after(short_config(steps + Keys{{"pack", "model"}}, 6, 13, 3)));
  }
}

// Every exchange is a mean of all models, then the outer step of each rank is DiLoCo's.
TEST(MixedDifferences, OfGlobalGroupsAreDiLoCo) {
  const Keys steps = {{"local_steps", "3"}};
  const auto groups = models_after(
      short_config(Keys{{"exchange", "group"}, {"staleness", "1"}} + kHeavyBall + steps, 4, 13, 5));
  const auto summed =
      models_after(short_config(Keys{{"exchange", "aggregate"}} + kHeavyBall + steps, 4, 13, 5));
  for (std::size_t rank = 0; rank < 4; ++rank) expect_close(groups[rank], summed[rank]);
}

// ---- Decoupled DiLoCo (Douillard et al. 2026) ----

Keys quorum_of(std::int32_t count) {
  return {{"exchange", "partial"},
          {"pack", "difference"},
          {"activation", "quorum"},
          {"quorum", std::to_string(count)}};
}

TEST(DecoupledDiLoCo, AQuorumOfAllIsDiLoCoToTheBit) {
  for (const char* local_steps : {"1", "3", "4"})
    for (const char* scale : {"ranks", "active", "samples"})
      for (const std::int32_t ranks : {1, 3, 4})
        for (const char* outer : {"none", "nesterov", "slowmo"}) {
          SCOPED_TRACE(std::string("H=") + local_steps + ", scale=" + scale + ", outer=" + outer +
                       ", P=" + std::to_string(ranks));
          const Keys steps = {{"local_steps", local_steps}, {"outer", outer}};
          auto some = short_config(quorum_of(ranks) + Keys{{"scale", scale}} + steps, ranks, 12, 6);
          auto all = short_config(Keys{{"exchange", "aggregate"}, {"pack", "difference"}} + steps,
                                  ranks, 12, 6);
          some.optimizer.momentum = all.optimizer.momentum = 0.5;
          some.lr_schedule = all.lr_schedule = "step:0.5@0.4,1.4";  // also amid H steps
          expect_same_bits(models_after(some), models_after(all));
        }
}

// With stragglers, checkpoints amid rounds and local steps, and whatever begins a round: each
// difference enters the common model once, and all ranks end with the same bits.
TEST(DecoupledDiLoCo, EveryDifferenceCountsOnce) {
  constexpr std::int32_t kRanks = 4;
  constexpr Step kSteps = 16;
  const double sum = sum_of_constants(kRanks, kSteps);
  for (const Keys& activation :
       {Keys{{"exchange", "partial"}, {"pack", "difference"}, {"activation", "solo"}},
        Keys{{"exchange", "partial"}, {"pack", "difference"}, {"activation", "majority"}},
        quorum_of(1), quorum_of(2), quorum_of(2) + Keys{{"grace", "0.00000005"}},
        quorum_of(3) + Keys{{"grace", "1"}}})
    for (const char* local_steps : {"1", "4", "5"})
      for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", H " + local_steps);
        auto config =
            short_config(activation + Keys{{"local_steps", local_steps}, {"staleness", "3"}},
                         kRanks, kSteps, seed);
        config.slowness = {{1, 0.9}, {3, 0.6}};
        const auto models = models_after(config, constant, seed % 2 == 0 ? 7 : 0);
        for (const at::Tensor& model : models)
          EXPECT_TRUE(at::equal(model, models.front())) << model << models.front();
        EXPECT_NEAR(models.front()[0].item<double>(), -kRate * sum / kRanks, 1e-9);
        if (HasFailure()) return;
      }
}

// A quorum with a grace window waits for the others, without it it does not.
TEST(DecoupledDiLoCo, AGraceWindowTakesInTheOthers) {
  const auto in_sums = [](const std::string& grace) {
    auto config =
        short_config(quorum_of(1) + Keys{{"grace", grace}, {"local_steps", "2"}}, 4, 40, 8);
    config.slowness = {{1, 0.8}, {2, 0.8}, {3, 0.8}};
    RoleWorld world(config, pull_beyond);
    world.start();
    world.run();
    std::int64_t with_own = 0, rounds = 0;
    for (Rank rank = 0; rank < 4; ++rank)
      for (const Event& event : world.events(rank)) {
        rounds += event.kind == EventKind::contributed;
        with_own += event.kind == EventKind::contributed && event.staleness >= 0;
      }
    return static_cast<double>(with_own) / static_cast<double>(rounds);
  };
  const double without = in_sums("0"), some = in_sums("0.00000002"), all = in_sums("1000");
  EXPECT_LT(without, 0.8);
  EXPECT_GT(some, without);
  EXPECT_GT(all, 0.99);
}

// ---- servers: delayed Nesterov (Liu et al. 2024) ----

// With one client every commit is computed at the newest theta.
TEST(DelayedNesterov, OneClientIsDiLoCo) {
  for (const char* local_steps : {"1", "3"})
    for (const char* servers : {"1", "2"}) {
      const Keys steps = {{"local_steps", local_steps}};
      const Keys rule = {
          {"exchange", "server"}, {"rule", "delayed-nesterov"}, {"servers", servers}};
      auto client = short_config(rule + steps, 1, 12, 4);
      auto alone = short_config(
          Keys{{"exchange", "aggregate"}, {"pack", "difference"}, {"outer", "nesterov"}} + steps, 1,
          12, 4);
      client.optimizer.momentum = alone.optimizer.momentum = 0.5;
      expect_close(models_after(client).front(), models_after(alone).front());
    }
}

// Without momentum theta is the sum of all differences over N, whatever the order, the stragglers
// and the checkpoints.
TEST(DelayedNesterov, EveryDifferenceCountsOnce) {
  constexpr std::int32_t kRanks = 3;
  constexpr Step kSteps = 12;
  const double sum = sum_of_constants(kRanks, kSteps);
  for (const char* local_steps : {"1", "4", "5"})
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed) + ", H " + local_steps);
      auto config = short_config({{"exchange", "server"},
                                  {"rule", "delayed-nesterov"},
                                  {"servers", "2"},
                                  {"outer_lr", "1"},
                                  {"outer_momentum", "0"},
                                  {"local_steps", local_steps}},
                                 kRanks, kSteps, seed);
      config.slowness = {{1, 0.9}};
      RoleWorld world(config, constant);
      world.start();
      std::int64_t events = 0;
      world.run([&] {
        if (seed % 2 == 0 && ++events % 7 == 0) world.save_and_load();
      });
      for (Rank rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(world.finished(rank));
      for (Rank server = kRanks; server < kRanks + 2; ++server)
        EXPECT_NEAR(world.z(server)[0].item<double>(), -kRate * sum / kRanks, 1e-4);
    }
}

// Momentum enters at every N-th commit alone.
TEST(DelayedNesterov, FollowsThePapersEquations) {
  auto config = short_config({{"exchange", "server"},
                              {"rule", "delayed-nesterov"},
                              {"outer_every", "3"},
                              {"outer_lr", "0.5"},
                              {"outer_momentum", "0.75"},
                              {"local_steps", "2"}},
                             1, 20, 1);
  double theta = 0, u = 0, sum = 0;
  for (std::int64_t commit = 1; commit <= 10; ++commit) {
    double x = theta;
    for (int h = 0; h < 2; ++h) x -= kRate * (x - 1);
    const double difference = theta - x;
    sum += difference;
    theta -= 0.5 * difference / 3;
    if (commit % 3 != 0) continue;
    u = 0.75 * u + sum / 3;
    theta -= 0.5 * 0.75 * u;
    sum = 0;
  }
  EXPECT_NEAR(models_after(config).front()[0].item<double>(), theta, 1e-5);
}

// ---- quasi-global momentum (Lin et al. 2021) and gradient tracking ----

// The paper's equations in double precision, on a ring.
TEST(QuasiGlobalMomentum, FollowsThePapersEquations) {
  constexpr std::int32_t kRanks = 5;
  constexpr Step kSteps = 12;
  constexpr double kBeta = 0.75, kMu = 0.25;
  for (const bool nesterov : {false, true})
    for (const char* update : {"before", "after"}) {
      SCOPED_TRACE(std::string(update) + (nesterov ? ", nesterov" : ""));
      auto config = short_config({{"exchange", "gossip"},
                                  {"averaging", "symmetric"},
                                  {"topology", "ring"},
                                  {"peers", "2"},
                                  {"update", update},
                                  {"quasi_global", "0.25"}},
                                 kRanks, kSteps, 2);
      config.optimizer.momentum = kBeta;
      config.optimizer.nesterov = nesterov;
      const auto mixed = [](const std::vector<double>& x) {
        std::vector<double> mean(x.size());
        for (std::size_t i = 0; i < x.size(); ++i)
          mean[i] = (x[i] + x[(i + 1) % x.size()] + x[(i + x.size() - 1) % x.size()]) / 3;
        return mean;
      };
      std::vector<double> x(kRanks, 0), m(kRanks, 0);
      for (Step step = 0; step < kSteps; ++step) {
        std::vector<double> direction(kRanks), half = x;
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double g = x[i] - (static_cast<double>(i) + 1), u = kBeta * m[i] + g;
          direction[i] = nesterov ? g + kBeta * u : u;
        }
        std::vector<double> next = x;
        if (std::string(update) == "after") next = mixed(x);
        for (std::size_t i = 0; i < x.size(); ++i) next[i] -= kRate * direction[i];
        if (std::string(update) == "before") next = mixed(next);
        for (std::size_t i = 0; i < x.size(); ++i)
          m[i] = (1 - kMu) * m[i] + kMu * (x[i] - next[i]) / kRate;
        x = next;
      }
      const auto models = models_after(config, pull_beyond, nesterov ? 9 : 0);
      for (std::size_t i = 0; i < x.size(); ++i)
        EXPECT_NEAR(models[i][0].item<double>(), x[i], 1e-4) << "rank " << i;
    }
}

// Without momentum it is gossip, bit for bit.
TEST(QuasiGlobalMomentum, OfNothingIsGossip) {
  const Keys ring = {
      {"exchange", "gossip"}, {"averaging", "symmetric"}, {"topology", "ring"}, {"peers", "2"}};
  expect_same_bits(models_after(short_config(ring + Keys{{"quasi_global", "0.1"}}, 5, 12, 2)),
                   models_after(short_config(ring, 5, 12, 2)));
}

// Ranks whose optima differ agree on the optimum of their mean, at a constant rate: gossip without
// the estimate keeps them apart.
TEST(GradientTracking, ReachesTheOptimumOfTheMean) {
  for (const char* averaging : {"symmetric", "push-sum"}) {
    const Keys ring = {
        {"exchange", "gossip"}, {"averaging", averaging}, {"topology", "ring"}, {"peers", "1"}};
    const auto farthest = [&](const Keys& more, std::int64_t checkpoints) {
      double most = 0;
      for (const at::Tensor& model :
           models_after(short_config(ring + more, 5, 300, 3), pull_beyond, checkpoints))
        most = std::max(most, (model - 3).abs().max().item<double>());
      return most;
    };
    EXPECT_LT(farthest({{"tracking", "true"}}, 0), 1e-4);
    EXPECT_LT(farthest({{"tracking", "true"}}, 17), 1e-4);
    EXPECT_GT(farthest({}, 0), 0.05);
  }
}

// In every form of gossip; with local steps (LU-GT: Nguyen, Alghunaim, Yuan, Uribe 2022), and where
// exchanges are hidden, skipped or compressed. Plain gossip stays where the rate and H keep it.
TEST(GradientTracking, ReachesTheOptimumOfTheMeanHoweverRanksMix) {
  const Keys gossip = {{"exchange", "gossip"}, {"tracking", "true"}};
  const Keys ring = gossip + Keys{{"averaging", "symmetric"}, {"topology", "ring"}};
  const Keys overlap = {{"overlap", "true"}};
  for (const Keys& keys :
       {ring + Keys{{"update", "after"}}, ring + Keys{{"local_steps", "3"}},
        ring + Keys{{"update", "after"}, {"local_steps", "2"}}, ring + overlap, gossip + overlap,
        gossip + overlap + Keys{{"staleness", "2"}, {"local_steps", "2"}},
        gossip + overlap + Keys{{"running_sums", "true"}}, ring + Keys{{"compress", "int8"}},
        ring + Keys{{"compress", "top-k"}, {"density", "0.4"}}, gossip + Keys{{"compress", "int8"}},
        ring + overlap + Keys{{"compress", "int8"}, {"staleness", "2"}}}) {
    std::string name;
    for (const auto& [key, value] : keys) name += key + "=" + value + " ";
    SCOPED_TRACE(name);
    WorldConfig config = short_config(keys, 5, 1200, 3);
    config.lr = 0.03;
    config.slowness = {{2, 0.5}};
    for (const at::Tensor& model : models_after(config, pull_beyond, 171))
      EXPECT_LT((model - 3).abs().max().item<double>(), 1e-3) << model;
  }
}

// On the complete graph it is synchronous SGD; and the sum of estimates is that of the gradients.
TEST(GradientTracking, KeepsTheSumOfGradients) {
  const Keys tracking = {{"exchange", "gossip"}, {"averaging", "symmetric"}, {"tracking", "true"}};
  const auto tracked =
      models_after(short_config(tracking + Keys{{"topology", "complete"}}, 4, 12, 1));
  const auto summed = models_after(short_config({{"exchange", "aggregate"}}, 4, 12, 1));
  for (std::size_t rank = 0; rank < 4; ++rank) expect_close(tracked[rank], summed[rank]);

  RoleWorld world(short_config(tracking + Keys{{"topology", "ring"}}, 4, 9, 5), constant);
  world.start();
  world.run();
  at::Tensor estimates = at::zeros({7}), newest = at::zeros({7});
  for (Rank rank = 0; rank < 4; ++rank) {
    estimates += *world.saved(rank).under("tracker").tensor("y");
    newest += constant(rank, 8, at::zeros({7}));
  }
  expect_close(estimates, newest);
}

// ---- local steps by a schedule ----

// Post-local SGD (Lin et al. 2020) that begins at once, or never, and the quadratic rule (Gu et al.
// 2024) at a constant rate, are a constant H.
TEST(LocalStepsSchedule, ConstantOnesAreAConstantH) {
  for (const Keys& role :
       {Keys{{"exchange", "aggregate"}, {"pack", "model"}}, Keys{{"exchange", "group"}},
        Keys{{"exchange", "gossip"}, {"update", "after"}}, quorum_of(4)}) {
    const auto after = [&](const Keys& steps) {
      return models_after(short_config(role + steps, 4, 14, 3));
    };
    const auto four = after({{"local_steps", "4"}}), one = after({{"local_steps", "1"}});
    expect_same_bits(after({{"local_steps", "0:4,1:4"}}), four);
    expect_same_bits(after({{"qsr", "0.25"}}), four);  // (0.25 / 0.125)^2
    expect_same_bits(after({{"local_steps", "0:1,90:4"}}), one);
    expect_same_bits(after({{"qsr", "0.0625"}}), one);
  }
}

// Every role with an H that changes, with stragglers and checkpoints amid local steps: all
// gradients count once, and the models are near the optimum.
TEST(LocalStepsSchedule, RunsWithEveryRole) {
  for (const Keys& role : {Keys{{"exchange", "aggregate"}, {"pack", "model"}, {"overlap", "true"}},
                           Keys{{"exchange", "group"}}, Keys{{"exchange", "gossip"}},
                           Keys{{"exchange", "gossip"}, {"overlap", "true"}, {"staleness", "1"}},
                           Keys{{"exchange", "bilateral"}, {"topology", "hypercube"}}, quorum_of(2),
                           Keys{{"exchange", "server"}, {"rule", "downpour"}}})
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE("seed " + std::to_string(seed));
      auto config = short_config(role + Keys{{"local_steps", "0:1,2:3,5:2"}}, 4, 41, seed);
      config.slowness = {{2, 0.8}};
      RoleWorld world(config, pull_beyond);
      world.start();
      std::int64_t events = 0;
      world.run([&] {
        if (++events % 11 == 0) world.save_and_load();
      });
      double mean = 0;
      std::int64_t committed = 0, steps = 0;
      for (Rank rank = 0; rank < 4; ++rank) {
        EXPECT_TRUE(world.finished(rank)) << "rank " << rank;
        mean += world.z(rank).mean().item<double>() / 4;
        steps += world.model(rank).step;
        for (const Event& event : world.events(rank))
          committed += event.kind == EventKind::committed;
      }
      EXPECT_NEAR(mean, 2.5, 1.25);
      EXPECT_EQ(committed, steps);
    }
}

// ---- overlap ----

// Gradients: x_{k+1} = x_k - gamma mean g(x_{k-1}).
TEST(Overlap, OfGradientsIsOneStepLate) {
  constexpr std::int32_t kRanks = 3;
  constexpr Step kSteps = 9;
  const double target = 2;  // the mean of 1, 2, 3
  // at[k]: the model at which gradient k is computed; the sum of gradient k - 1 enters after it.
  std::vector<double> at = {0, 0};
  while (static_cast<Step>(at.size()) <= kSteps)
    at.push_back(at.back() - kRate * (at[at.size() - 2] - target));
  const double last = at.back() - kRate * (at[at.size() - 2] - target);
  const auto models = models_after(
      short_config({{"exchange", "aggregate"}, {"overlap", "true"}}, kRanks, kSteps, 1));
  for (const at::Tensor& model : models) {
    EXPECT_TRUE(at::equal(model, models.front()));
    EXPECT_NEAR(model[0].item<double>(), last, 1e-5);
  }
}

// CoCoD-SGD (Shen et al. 2019): x_i <- mean of what was sent + own steps since.
TEST(Overlap, OfModelsIsCoCoD) {
  constexpr std::int32_t kRanks = 4;
  constexpr std::int64_t kH = 3, kExchanges = 5;
  std::vector<double> x(kRanks, 0), sent;
  for (std::int64_t exchange = 0; exchange < kExchanges; ++exchange) {
    for (Rank i = 0; i < kRanks; ++i)
      for (std::int64_t h = 0; h < kH; ++h) x[i] -= kRate * (x[i] - (i + 1));
    if (!sent.empty()) {
      double mean = 0;
      for (const double s : sent) mean += s / kRanks;
      for (Rank i = 0; i < kRanks; ++i) x[i] += mean - sent[i];
    }
    sent = x;
  }
  double mean = 0;
  for (const double s : sent) mean += s / kRanks;
  const auto models = models_after(short_config(
      {{"exchange", "aggregate"}, {"pack", "model"}, {"overlap", "true"}, {"local_steps", "3"}},
      kRanks, kH * kExchanges, 2));
  for (const at::Tensor& model : models) {
    EXPECT_TRUE(at::equal(model, models.front())) << "the last exchange is waited for";
    EXPECT_NEAR(model[0].item<double>(), mean, 1e-5);
  }
}

// Delayed differences: each enters once, one exchange late, with or without checkpoints.
TEST(Overlap, OfDifferencesLosesNone) {
  constexpr std::int32_t kRanks = 3;
  constexpr Step kSteps = 13;
  const double sum = sum_of_constants(kRanks, kSteps);
  for (const char* pack : {"gradient", "model", "difference"})
    for (const char* local_steps : {"1", "4"})
      for (const std::int64_t checkpoints : {0, 5, 11}) {
        if (std::string(pack) == "gradient" && std::string(local_steps) != "1") continue;
        SCOPED_TRACE(std::string(pack) + ", H=" + local_steps);
        Keys keys = {{"exchange", "aggregate"}, {"overlap", "true"}, {"pack", pack}};
        if (std::string(pack) != "gradient") keys.emplace_back("local_steps", local_steps);
        const auto models =
            models_after(short_config(keys, kRanks, kSteps, 3), constant, checkpoints);
        for (const at::Tensor& model : models) {
          EXPECT_TRUE(at::equal(model, models.front()));
          EXPECT_NEAR(model[0].item<double>(), -kRate * sum / kRanks, 1e-5);
        }
      }
}

// ---- compressed pairs and push-sum ----

// Zero gradients: what one end of an edge gains the other loses, and all agree in the end.
TEST(CompressedMixing, KeepsTheMeanAndAgrees) {
  for (const Keys& role : {Keys{{"exchange", "bilateral"}, {"topology", "bipartite-exponential"}},
                           Keys{{"exchange", "gossip"}, {"averaging", "push-sum"}},
                           Keys{{"exchange", "gossip"}, {"overlap", "true"}},
                           Keys{{"exchange", "gossip"}, {"averaging", "symmetric"}}})
    for (const Keys& compress :
         {Keys{{"compress", "top-k"}, {"density", "0.3"}}, Keys{{"compress", "int8"}},
          Keys{{"compress", "fp16"}}, Keys{{"compress", "sign"}, {"consensus_step", "0.3"}}})
      for (const std::int64_t checkpoints : {0, 13}) {
        constexpr std::int32_t kRanks = 4;
        auto config = short_config(role + compress, kRanks, 400, 9);
        RoleWorld world(config, [](Rank, Step, const at::Tensor& z) { return at::zeros_like(z); });
        for (Rank rank = 0; rank < kRanks; ++rank)
          world.set_x(rank, at::arange(7, at::kFloat) * (rank % 2 == 0 ? 1 : -0.5) + rank);
        const double before = world.total_x().sum().item<double>();
        world.start();
        std::int64_t events = 0;
        world.run([&] {
          if (checkpoints > 0 && ++events % checkpoints == 0) world.save_and_load();
        });
        for (Rank rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(world.finished(rank));
        EXPECT_NEAR(world.total_w(), kRanks, 1e-9);
        EXPECT_NEAR(world.total_x().sum().item<double>(), before, 1e-3);
        for (Rank rank = 1; rank < kRanks; ++rank) expect_close(world.z(rank), world.z(0), 0.05);
      }
}

}  // namespace differences_test
}  // namespace grapevine
