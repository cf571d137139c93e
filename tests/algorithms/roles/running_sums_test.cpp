// Gossip with running sums: what a wire loses, repeats or delays costs no mass, and nobody waits.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <deque>
#include <iostream>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "algorithms/lockstep/lockstep.hpp"
#include "algorithms/roles/gossip/round_peers.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "tests/sim/outbox.hpp"
#include "tests/sim/pulled_ranks.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace running_sums_test {

using sim::distance;
using sim::Keys;
using sim::operator+;
using sim::OnTheWire;
using sim::Outbox;
using sim::pull;
using sim::RoleWorld;
using sim::scatter;
using sim::WorldConfig;

const Keys kOverlap = {{"exchange", "gossip"}, {"overlap", "true"}};
const Keys kSums = kOverlap + Keys{{"running_sums", "true"}};

constexpr std::int64_t kDimension = 5;

WorldConfig make_config(const Keys& keys, std::int32_t ranks, std::uint64_t seed) {
  WorldConfig config;
  config.plan = sim::plan_of(keys);
  config.ranks = ranks;
  config.seed = seed;
  config.horizon = {24, 6};
  config.dimension = kDimension;
  config.lr = 0.05;
  return config;
}

bool is_sum(const Envelope& envelope) { return std::holds_alternative<Share>(envelope.payload); }

// Loses each message with a probability that depends on nothing but the message: the same one in
// every run.
class Losses {
 public:
  Losses(double probability, std::uint64_t seed) : probability_(probability), seed_(seed) {}

  bool operator()(const Envelope& envelope) {
    std::uint64_t drawn = mix_seed(seed_, static_cast<std::uint64_t>(envelope.from));
    drawn = mix_seed(drawn, static_cast<std::uint64_t>(envelope.to));
    drawn = mix_seed(drawn, static_cast<std::uint64_t>(envelope.stamp.step));
    drawn = mix_seed(drawn, is_sum(envelope) ? 1 : 0);
    const bool lost = std::ldexp(static_cast<double>(drawn >> 11), -53) < probability_;
    lost_ += lost ? 1 : 0;
    return lost;
  }
  std::int64_t lost() const { return lost_; }

 private:
  const double probability_;
  const std::uint64_t seed_;
  std::int64_t lost_ = 0;
};

std::vector<Keys> variants() {
  return {{},
          {{"peers", "2"}},
          {{"topology", "star"}},
          {{"staleness", "2"}},
          {{"peers", "0:1,1:3"}, {"staleness", "1"}},
          {{"topology", "ring"}, {"local_steps", "3"}},
          {{"local_steps", "2"}, {"staleness", "3"}}};
}

// At every moment the models, and what edges owe, contain all mass; the run ends. What is sent by
// ranks at their end arrives: then the models alone have it.
TEST(RunningSums, LoseNoMassWhereMessagesAreLost) {
  std::int64_t lost = 0;
  for (const Keys& keys : variants())
    for (const std::int32_t n : {1, 2, 3, 5, 8})
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE((keys.empty() ? "osgp" : keys.back().first + "=" + keys.back().second) +
                     ", n=" + std::to_string(n) + ", seed=" + std::to_string(seed));
        const bool to_three = !keys.empty() && keys.front().second == "0:1,1:3";
        if (to_three && n < 4) continue;  // there are not so many others
        WorldConfig config = make_config(kSums + keys, n, seed);
        config.slowness[n - 1] = 0.8;
        RoleWorld world(config, pull);
        Losses losses(0.3, seed);
        world.lose_where([&](const Envelope& envelope) {
          return !world.finished(envelope.from) && losses(envelope);
        });
        scatter(world, n, kDimension);
        const at::Tensor x0 = world.total_x();
        const auto expect_mass = [&](const at::Tensor& x, double w) {
          ASSERT_NEAR(w, n, 1e-9);
          ASSERT_LT(distance(x + world.gradients() * config.lr, x0), 1e-3 * n);
        };
        world.start();
        world.run([&] {
          if (world.gradients().defined() && world.event_count() % 5 == 0)
            expect_mass(world.total_x(), world.total_w());
        });
        at::Tensor x = at::zeros({kDimension}, at::kDouble);
        double w = 0;
        for (Rank rank = 0; rank < n; ++rank) {
          EXPECT_TRUE(world.finished(rank)) << "rank " << rank;
          x += world.model(rank).x.read().to(at::kDouble);
          w += world.model(rank).w;
        }
        expect_mass(x, w);
        lost += losses.lost();
      }
  EXPECT_GT(lost, 500) << "nothing was tested";
}

// Ranks take steps and messages arrive in turns: no round is late.
Lockstep in_turns(const WorldConfig& config, Lockstep::OnMessage on_message = nullptr) {
  LrConfig rate;
  rate.lr = config.lr;
  rate.spec = config.lr_schedule;
  const auto parts = *make_parts(config.plan, config.horizon, *LrSchedule::make(rate),
                                 config.optimizer, config.ranks);
  return Lockstep(
      parts, config.ranks,
      [d = config.dimension](Rank rank) { return at::arange(d, at::kFloat) * 0.7 + 3.1 * rank; },
      pull, std::move(on_message));
}

// Bit for bit where w is 1 in all rounds; elsewhere a sum of weights may differ in its last bit.
TEST(RunningSums, ArePlainSharesWhereNothingIsLost) {
  for (const auto& [topology, n, regular] :
       std::vector<std::tuple<std::string, std::int32_t, bool>>{{"exponential", 1, true},
                                                                {"exponential", 5, true},
                                                                {"exponential", 8, true},
                                                                {"ring", 5, true},
                                                                {"complete", 6, true},
                                                                {"linear", 7, true},
                                                                {"star", 5, false},
                                                                {"grid2d", 6, false},
                                                                {"base", 5, false}})
    for (const Keys& keys : std::vector<Keys>{{},
                                              {{"peers", "0:1,3:2"}},
                                              {{"staleness", "2"}},
                                              {{"local_steps", "3"}},
                                              {{"pack", "difference"}, {"outer", "slowmo"}}}) {
      SCOPED_TRACE(topology + ", n=" + std::to_string(n) + ", " +
                   (keys.empty() ? "" : keys.back().second));
      if (!keys.empty() && keys[0].first == "peers" && topology != "exponential") continue;
      const Keys graph = {{"topology", topology}};
      WorldConfig plain = make_config(kOverlap + graph + keys, n, 1);
      plain.horizon = {60, 10};
      plain.optimizer.momentum = 0.9;
      WorldConfig summed = plain;
      summed.plan = sim::plan_of(kSums + graph + keys);
      Lockstep a = in_turns(plain), b = in_turns(summed);
      bool more = true;
      while (more) {
        more = a.sweep();
        ASSERT_EQ(more, b.sweep());
        for (Rank rank = 0; rank < n; ++rank) {
          const at::Tensor &x = a.model(rank).x.read(), &y = b.model(rank).x.read();
          if (regular) {
            ASSERT_TRUE(at::equal(x, y)) << "rank " << rank << x << y;
          }
          ASSERT_LT(distance(x, y), 1e-3) << "rank " << rank;
          ASSERT_NEAR(a.model(rank).w, b.model(rank).w, 1e-12);
        }
      }
      for (Rank rank = 0; rank < n; ++rank) EXPECT_TRUE(b.finished(rank)) << "rank " << rank;
    }
}

// The same wire costs plain shares their mass, and ranks wait for what never comes.
TEST(RunningSums, PlainSharesAreLostForGood) {
  WorldConfig config = make_config(kOverlap, 4, 1);
  for (const bool sums : {false, true}) {
    SCOPED_TRACE(sums ? "running sums" : "shares");
    config.plan = sim::plan_of(sums ? kSums : kOverlap);
    Losses losses(0.3, 5);
    const Lockstep* ranks = nullptr;
    Lockstep world = in_turns(config, [&](const Envelope& envelope) {
      return ranks->finished(envelope.from) || !losses(envelope);
    });
    ranks = &world;
    while (world.sweep()) {
    }
    double w = 0;
    for (Rank rank = 0; rank < 4; ++rank) {
      w += world.model(rank).w;
      EXPECT_EQ(world.finished(rank), sums) << "rank " << rank;
    }
    if (sums) {
      EXPECT_NEAR(w, 4, 1e-12);
    } else {
      EXPECT_LT(w, 3.5);
    }
  }
}

// ---- the mixer alone ----

// One rank's end of the exchange.
struct End {
  End(const std::shared_ptr<const SharedParts>& parts, Rank rank, std::int32_t ranks, at::Tensor x)
      : env(rank, ranks) {
    model.x = FrozenTensor::freeze(std::move(x));
    mixer = make_sums_mixer(parts, MixingRule::push_sum, rank, model, pool);
  }
  void push(bool whole = false) { mixer->push({env, ++round, {}, peers}, whole); }
  void flush() { mixer->flush({env, round, {}, peers}); }

  Outbox env;
  ModelState model;
  BufferPool pool;
  RoundPeers peers;  // all take part
  std::unique_ptr<Mixer> mixer;
  std::int64_t round = -1;
};

std::shared_ptr<const SharedParts> parts_of(const Keys& keys, std::int32_t ranks) {
  return *make_parts(sim::plan_of(kSums + keys), {1'000'000, 100}, *LrSchedule::make({}), {},
                     ranks);
}

TEST(RunningSums, OvertakenAndRepeatedMessagesCountForNothing) {
  const auto parts = parts_of({}, 2);
  const at::Tensor ones = at::ones({3});
  for (const std::vector<std::size_t>& order : std::vector<std::vector<std::size_t>>{
           {0, 1, 2, 3}, {3}, {0, 3, 1}, {3, 3, 2, 0, 1}, {1, 0, 2, 1, 3, 3, 0}}) {
    End giver(parts, 0, 2, ones * 8), taker(parts, 1, 2, ones.clone());
    for (int round = 0; round < 4; ++round) {
      giver.model.w = 1;  // as if as much came back
      giver.push();
    }
    ASSERT_EQ(giver.env.sent.size(), 4U);
    for (const std::size_t i : order) {
      taker.mixer->take(giver.env.sent[i]);
      if (i % 2 == 0) taker.mixer->fold(taker.env, 0);
      EXPECT_TRUE(taker.mixer->has(static_cast<std::int64_t>(i), 0));
    }
    taker.mixer->fold(taker.env, 0);
    EXPECT_FALSE(taker.mixer->has(4, 0));
    EXPECT_EQ(taker.model.w, 3) << "1, and 4 halves";
    EXPECT_TRUE(at::equal(taker.model.x.read(), ones * 8.5)) << "1, and 4 + 2 + 1 + 1/2";
  }
}

// Without this a rank that hears of nobody has no weight left, and its steps are endless.
TEST(RunningSums, ARankThatIsLightKeepsItsMassAndRepeatsItsSums) {
  End giver(parts_of({}, 2), 0, 2, at::ones({3}));
  for (int round = 0; round < 40; ++round) giver.push();
  EXPECT_EQ(giver.model.w, 1.0 / 16);
  EXPECT_TRUE(at::equal(giver.model.x.read(), at::ones({3}) / 16));
  ASSERT_EQ(giver.env.sent.size(), 40U);
  const auto& last = std::get<Share>(giver.env.sent.back().payload);
  EXPECT_EQ(last.w, 15.0 / 16);
  EXPECT_EQ(last.round, 39);
  EXPECT_TRUE(at::equal(last.x.read(), at::ones({3}, at::kDouble) * 15 / 16));
}

TEST(RunningSums, TheFinalFlushRepeatsTheSumsOfAllEdges) {
  const auto parts = parts_of({}, 8);
  End giver(parts, 0, 8, at::ones({3}));
  for (int round = 0; round < 3; ++round) giver.push();
  std::deque<Envelope> sent = std::exchange(giver.env.sent, {});
  giver.flush();
  ASSERT_EQ(giver.env.sent.size(), 3U) << "to 1, 2 and 4";
  for (std::size_t i = 0; i < 3; ++i) {
    const auto &before = std::get<Share>(sent[i].payload),
               &after = std::get<Share>(giver.env.sent[i].payload);
    EXPECT_EQ(sent[i].to, giver.env.sent[i].to);
    EXPECT_EQ(before.w, after.w);
    EXPECT_TRUE(at::equal(before.x.read(), after.x.read()));
  }
}

TEST(RunningSums, MessagesThatAreNoneAreFound) {
  const auto parts = parts_of({}, 2);
  End taker(parts, 1, 2, at::ones({3}));
  const auto take = [&](Payload payload) { taker.mixer->take({0, 1, {}, std::move(payload)}); };
  const auto sum = [](std::int64_t d, at::ScalarType type) {
    return FrozenTensor::freeze(at::ones({d}, type));
  };
  EXPECT_THROW(take(Share{0, 1, sum(3, at::kFloat)}), InvariantBroken);
  EXPECT_THROW(take(Share{0, 1, sum(2, at::kDouble)}), InvariantBroken);
  EXPECT_THROW(take(Share{0, 1, {}}), InvariantBroken);
  EXPECT_THROW(take(Share{0, 0, sum(3, at::kDouble)}), InvariantBroken);
  EXPECT_THROW(take(Share{-1, 1, sum(3, at::kDouble)}), InvariantBroken);
  EXPECT_THROW(take(Share{0, std::nan(""), sum(3, at::kDouble)}), InvariantBroken);
  EXPECT_THROW(take(Leave{1}), InvariantBroken);
  EXPECT_NO_THROW(take(Share{0, 1, sum(3, at::kDouble)}));
}

// ---- precision ----

// Weights of 1/3, which float32 does not hold, and values that differ by a factor of a thousand.
// Sums in float32 would misplace a thousandth of a share in every round by the end.
TEST(RunningSums, KeepTheirPrecisionOverTenThousandRounds) {
  constexpr std::int32_t kRanks = 5;
  constexpr Step kRounds = 10'000;
  constexpr std::int64_t kValues = 64;
  for (const double probability : {0.0, 0.3}) {
    SCOPED_TRACE("losses: " + std::to_string(probability));
    const auto parts = *make_parts(sim::plan_of(kSums + Keys{{"peers", "2"}}), {kRounds, 1000},
                                   *LrSchedule::make({}), {}, kRanks);
    const auto start = [](Rank rank) {
      return at::logspace(0, 3, kValues) * (1 + 0.3 * static_cast<double>(rank));
    };
    Losses losses(probability, 7);
    const Lockstep* ranks = nullptr;
    Lockstep world(
        parts, kRanks, start, [](Rank, Step, const at::Tensor& z) { return at::zeros_like(z); },
        [&](const Envelope& envelope) {
          return ranks->finished(envelope.from) || !losses(envelope);
        });
    ranks = &world;
    while (world.sweep()) {
    }
    at::Tensor before = at::zeros({kValues}, at::kDouble), after = before.clone();
    double w = 0;
    for (Rank rank = 0; rank < kRanks; ++rank) {
      EXPECT_TRUE(world.finished(rank)) << "rank " << rank;
      before += start(rank).to(at::kDouble);
      after += world.model(rank).x.read().to(at::kDouble);
      w += world.model(rank).w;
    }
    for (Rank rank = 0; rank < kRanks; ++rank) {
      const at::Tensor z = world.role(rank).debiased().read().to(at::kDouble);
      EXPECT_LT(distance(z * kRanks / before, at::ones({kValues})), 1e-4) << "rank " << rank;
    }
    EXPECT_NEAR(w, kRanks, 1e-8);
    const double error = ((after - before) / before).abs().max().item<double>();
    EXPECT_LT(error, 1e-4);
    RecordProperty("error_" + std::to_string(static_cast<int>(10 * probability)),
                   std::to_string(error));
    std::cout << "relative error of the mass after 10 000 rounds: " << error << ", of the weight "
              << std::abs(w / kRanks - 1) << '\n';
  }
}

// ---- runs ----

TEST(RunningSums, SavedAndLoadedAtAnyEventTheyAreTheSameRun) {
  for (const Keys& keys : variants())
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE((keys.empty() ? "osgp" : keys.back().first + "=" + keys.back().second) +
                   ", seed=" + std::to_string(seed));
      WorldConfig config = make_config(kSums + keys, 5, seed);
      config.optimizer.momentum = 0.9;
      config.slowness[1] = 0.8;
      RoleWorld straight(config, pull), saved(config, pull);
      Rng moments(seed);
      for (RoleWorld* world : {&straight, &saved}) {
        world->lose_where(Losses(0.3, seed));
        scatter(*world, 5, kDimension);
        world->start();
        world->run([&] {
          if (world == &saved && moments() % 9 == 0) world->save_and_load();
        });
      }
      EXPECT_EQ(straight.event_count(), saved.event_count());
      EXPECT_NEAR(saved.total_w(), 5, 1e-9);
      for (Rank rank = 0; rank < 5; ++rank) {
        EXPECT_TRUE(at::equal(straight.z(rank), saved.z(rank))) << "rank " << rank;
        EXPECT_EQ(straight.model(rank).w, saved.model(rank).w) << "rank " << rank;
      }
    }
}

TEST(RunningSums, RunsThatAreMadeLongerLoseNoMassEither) {
  for (const Keys& keys : variants())
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE((keys.empty() ? "osgp" : keys.back().first + "=" + keys.back().second) +
                   ", seed=" + std::to_string(seed));
      WorldConfig config = make_config(kSums + keys, 5, seed);
      config.slowness[4] = 0.9;
      RoleWorld first(config, pull);
      first.lose_where(Losses(0.3, seed));
      first.start();
      first.run();
      config.horizon.steps = 40;
      RoleWorld second(config, pull);
      second.lose_where(Losses(0.3, seed + 1));
      second.resume(first);
      second.run();
      EXPECT_NEAR(second.total_w(), 5, 1e-9);
      for (Rank rank = 0; rank < 5; ++rank) {
        EXPECT_TRUE(second.finished(rank)) << "rank " << rank;
        EXPECT_EQ(second.model(rank).step, 40) << "rank " << rank;
      }
    }
}

TEST(RunningSums, DeadRanksHoldUpNobodyAndTakeOnlyTheirMass) {
  for (const Keys& keys :
       std::vector<Keys>{{}, {{"staleness", "2"}}, {{"peers", "2"}}, {{"topology", "star"}}})
    for (const OnTheWire fate : {OnTheWire::delivered, OnTheWire::lost})
      for (const std::int32_t n : {2, 3, 6})
        for (std::uint64_t seed = 1; seed <= 4; ++seed) {
          SCOPED_TRACE((keys.empty() ? "osgp" : keys.back().first + "=" + keys.back().second) +
                       (fate == OnTheWire::lost ? ", lost" : ", delivered") +
                       ", n=" + std::to_string(n) + ", seed=" + std::to_string(seed));
          RoleWorld world(make_config(kSums + keys, n, seed), pull);
          world.lose_where(Losses(0.3, seed));
          scatter(world, n, kDimension);
          const at::Tensor x0 = world.total_x();
          world.start();
          world.run_until(static_cast<std::int64_t>(5 + world.rng()() % 60));
          const Rank dead = static_cast<Rank>(world.rng()() % static_cast<std::uint64_t>(n));
          world.kill(dead, fate);
          world.run([&] {
            if (world.event_count() % 5 != 0) return;
            ASSERT_NEAR(world.total_w() + world.lost_w(), n, 1e-9);
            at::Tensor x = world.total_x() + world.lost_x();
            if (world.gradients().defined()) x += world.gradients() * 0.05;
            ASSERT_LT(distance(x, x0), 1e-3 * n);
          });
          for (Rank r = 0; r < n; ++r) {
            EXPECT_TRUE(r == dead || world.finished(r)) << "rank " << r;
            EXPECT_GE(world.model(r).w, 1.0 / 64) << "rank " << r;
          }
        }
}

// All messages are lost: each rank comes to its end, at its own optimum.
TEST(RunningSums, RanksThatHearOfNobodyTrainAlone) {
  for (const Keys& keys : variants()) {
    SCOPED_TRACE(keys.empty() ? "osgp" : keys.back().first + "=" + keys.back().second);
    WorldConfig config = make_config(kSums + keys, 5, 3);
    config.horizon = {300, 10};
    config.lr = 0.02;
    RoleWorld world(config, pull);
    world.lose_where([](const Envelope&) { return true; });
    scatter(world, 5, kDimension);
    world.start();
    world.run();
    for (Rank rank = 0; rank < 5; ++rank) {
      EXPECT_TRUE(world.finished(rank)) << "rank " << rank;
      EXPECT_GE(world.model(rank).w, 1.0 / 64) << "rank " << rank;
      EXPECT_LT(distance(world.z(rank), at::full({kDimension}, rank)), 0.05) << "rank " << rank;
    }
  }
}

// As the rate falls, all come to the optimum of the mean, c = 2. Alone they would come to their
// own.
TEST(RunningSums, TrainOverAWireThatLosesMessages) {
  for (const Keys& keys : variants())
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE((keys.empty() ? "osgp" : keys.back().first + "=" + keys.back().second) +
                   ", seed=" + std::to_string(seed));
      WorldConfig config = make_config(kSums + keys, 5, seed);
      config.horizon = {600, 6};
      config.lr_schedule = "step:0.1@50,75";
      config.optimizer.momentum = 0.5;
      Losses losses(0.3, seed);
      Lockstep world =
          in_turns(config, [&](const Envelope& envelope) { return !losses(envelope); });
      while (world.sweep()) {
      }
      for (Rank rank = 0; rank < 5; ++rank) {
        const at::Tensor z = world.role(rank).debiased().read();
        EXPECT_LT(distance(z, at::full({kDimension}, 2.0)), 0.4) << "rank " << rank;
      }
    }
}

// With a bound a rank begins no round while the one before is incomplete, that many times running.
TEST(RunningSums, StalenessPutsOffRoundsThatAreIncomplete) {
  for (const int tau : {0, 1, 3}) {
    WorldConfig config = make_config(kSums + Keys{{"staleness", std::to_string(tau)}}, 3, 1);
    config.horizon = {40, 10};
    RoleWorld world(config, pull);
    std::int64_t sent = 0;
    world.watch([&](const Envelope& envelope, bool delivered) {
      sent += !delivered && envelope.from == 0 && is_sum(envelope);
    });
    world.lose_where([](const Envelope&) { return true; });
    world.start();
    world.run();
    // A round at step 0 and after each tau + 1 steps before the last; then the flush on two edges.
    EXPECT_EQ(sent, 1 + 39 / (tau + 1) + 2) << "tau=" << tau;
  }
}

// They would not give them on.
TEST(RunningSums, RanksThatHaveEndedGetNoShares) {
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE("seed=" + std::to_string(seed));
    WorldConfig config = make_config(kSums, 4, seed);
    config.slowness[3] = 0.95;
    RoleWorld world(config, pull);
    std::set<std::pair<Rank, Rank>> left;  // known to the first: the second has ended
    world.watch([&](const Envelope& envelope, bool delivered) {
      if (delivered && std::holds_alternative<Leave>(envelope.payload))
        left.insert({envelope.to, envelope.from});
      const bool is_last = world.model(envelope.from).step == config.horizon.steps;
      if (!delivered && !is_last && left.count({envelope.from, envelope.to}) > 0) ADD_FAILURE();
    });
    world.start();
    while (left.count({3, 0}) == 0) ASSERT_TRUE(world.step());
    EXPECT_LT(world.model(3).step, 20) << "nothing was tested";
    world.run();
    EXPECT_NEAR(world.total_w(), 4, 1e-9);
  }
}

TEST(RunningSums, WhatCannotBeIsRefusedWithItsReason) {
  const auto expect_refused = [](const Keys& keys, const std::string& why) {
    const std::string refusal = sim::refusal_of(kSums + keys);
    EXPECT_NE(refusal.find(why), std::string::npos) << refusal;
  };
  expect_refused({{"averaging", "symmetric"}}, "weights other than 1");
  expect_refused({{"averaging", "biased"}}, "weights other than 1");
  expect_refused({{"overlap", "false"}}, "for ever");
  expect_refused({{"compress", "int8"}}, "replicas");
  expect_refused({{"quasi_global", "0.5"}}, "1/w times as far");
  expect_refused({{"update", "after"}}, "overlap");
  EXPECT_EQ(sim::refusal_of(kSums), "accepted");
  EXPECT_EQ(sim::refusal_of({{"exchange", "gossip"}, {"running_sums", "false"}}), "accepted");
}

}  // namespace running_sums_test
}  // namespace grapevine
