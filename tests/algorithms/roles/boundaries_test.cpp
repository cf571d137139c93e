// Where a schedule changes, where a count is due, and which of two equal things comes first.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <set>

#include "algorithms/collectives/activation.hpp"
#include "algorithms/collectives/butterfly_top_k.hpp"
#include "algorithms/compressors/compressor.hpp"
#include "algorithms/kernels/sparse_vector.hpp"
#include "algorithms/parts/server_rules.hpp"
#include "algorithms/schedules.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace boundaries_test {

// ---- schedules ----

// The peers of epoch e hold from the first round that begins in it.
TEST(GossipGraph, PeersChangeWithTheRoundThatBeginsTheEpoch) {
  for (const auto& [rounds_per_epoch, first] :
       std::vector<std::pair<double, std::int64_t>>{{6, 6}, {2.5, 3}, {1, 1}, {0.4, 1}}) {
    const auto graph =
        *GossipGraph::make("exponential", *CountSchedule::parse("0:1,1:2"), 8, rounds_per_epoch);
    for (std::int64_t round = 0; round < 2 * first + 3; ++round)
      for (const Rank rank : {0, 5}) {
        SCOPED_TRACE(std::to_string(rounds_per_epoch) + " rounds, round " + std::to_string(round));
        const std::size_t peers = round < first ? 1 : 2;
        EXPECT_EQ(graph->out(round, rank).size(), peers);
        EXPECT_EQ(graph->in(round, rank).size(), peers);
      }
  }
}

// Rounds are counted in exchanges: with H local steps an epoch has fewer.
TEST(GossipGraph, LocalStepsStretchTheRoundsOfAnEpoch) {
  const Plan plan =
      sim::plan_of({{"exchange", "gossip"}, {"local_steps", "3"}, {"peers", "0:1,1:2"}});
  const auto parts = *make_parts(plan, {40, 12}, *LrSchedule::make({}), {}, 8);
  EXPECT_EQ(parts->graph->out(3, 0).size(), 1U);
  EXPECT_EQ(parts->graph->out(4, 0).size(), 2U);
}

// Each entry holds for its epochs, from its first moment on, however its product is rounded.
TEST(DensitySchedule, EntriesBeginAtTheirMoment) {
  const double entries[] = {0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2};
  for (const double each : {0.1, 0.3, 0.7, 1.0, 2.5}) {
    const auto schedule =
        *DensitySchedule::parse("0.001", "0.9,0.8,0.7,0.6,0.5,0.4,0.3,0.2@" + std::to_string(each));
    for (int entry = 0; entry < 8; ++entry) {
      SCOPED_TRACE(std::to_string(each) + " epochs each, entry " + std::to_string(entry));
      EXPECT_EQ(schedule.at(entry * each), entries[entry]);
      EXPECT_EQ(schedule.at((entry + 0.99) * each), entries[entry]);
    }
    EXPECT_EQ(schedule.at(8 * each), 0.001);
  }
}

TEST(LrSchedule, HoldsItsLastValueAfterTheEnd) {
  LrConfig config;
  config.lr = 2;
  config.epochs = 4;
  config.spec = "cosine:0.25";
  const auto cosine = *LrSchedule::make(config);
  EXPECT_NEAR(cosine.at(4), 0.5, 1e-12);
  for (const double later : {4.5, 6.0, 8.0}) EXPECT_NEAR(cosine.at(later), 0.5, 1e-12) << later;
  config.spec = "step:0.1@2,3";
  const auto steps = *LrSchedule::make(config);
  EXPECT_DOUBLE_EQ(steps.at(1.999), 2);
  EXPECT_DOUBLE_EQ(steps.at(2), 0.2);
  EXPECT_NEAR(steps.at(3), 0.02, 1e-15);
}

// ---- who begins, and when ----

std::vector<OutgoingMessage> ready(Activation& activation) {
  return activation.on_message({3, false});
}

TEST(Activation, ARankThatPostsAgainIsReadyOnce) {
  // The rank that counts.
  Activation counting({0, 1, 2, 3}, 0, 3, {Trigger::Kind::quorum, 0, 2});
  EXPECT_TRUE(counting.post().empty());
  EXPECT_TRUE(counting.post().empty());
  EXPECT_FALSE(counting.begun()) << "it counted itself twice";
  EXPECT_FALSE(ready(counting).empty());
  EXPECT_TRUE(counting.begun());
  // Another one tells it once, a checkpoint in between or not.
  for (const bool saved : {false, true}) {
    Activation other({0, 1, 2, 3}, 2, 3, {Trigger::Kind::quorum, 0, 2});
    EXPECT_EQ(other.post().size(), 1U);
    Activation loaded({0, 1, 2, 3}, 2, 3, {Trigger::Kind::quorum, 0, 2});
    ASSERT_TRUE(load_state(loaded, save_state(other)).ok());
    EXPECT_TRUE((saved ? loaded : other).post().empty());
  }
}

TEST(Activation, BeginsWithTheLastOfItsQuorum) {
  for (const std::int32_t quorum : {1, 2, 3, 4}) {
    Activation activation({0, 1, 2, 3}, 1, 3, {Trigger::Kind::quorum, 1, quorum});
    for (std::int32_t others = 1; others < quorum; ++others) {
      EXPECT_FALSE(activation.begun());
      ready(activation);
    }
    EXPECT_FALSE(activation.begun()) << quorum;
    activation.post();
    EXPECT_TRUE(activation.begun()) << quorum;
  }
}

// At the end next_round() posts for what is pending, and so does the gradient that comes then: a
// rank is one of the quorum all the same.
TEST(Partial, ARankVotesOnceInEachRound) {
  for (const std::int32_t quorum : {2, 3, 5})
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      constexpr std::int32_t kRanks = 5;
      SCOPED_TRACE("quorum " + std::to_string(quorum) + ", seed=" + std::to_string(seed));
      sim::WorldConfig config;
      config.plan = sim::plan_of({{"exchange", "partial"},
                                  {"activation", "quorum"},
                                  {"quorum", std::to_string(quorum)},
                                  {"staleness", "4"}});
      config.ranks = kRanks;
      config.seed = seed;
      config.horizon = {16, 4};
      config.slowness = {{1, 0.95}, {3, 0.6}};
      sim::RoleWorld world(config,
                           [](Rank, Step, const at::Tensor& z) { return at::ones_like(z); });
      // By round: who said to the rank that counts that it is ready.
      std::map<std::int64_t, std::vector<Rank>> votes;
      world.watch([&](const Envelope& e, bool delivered) {
        if (const auto* a = std::get_if<Activate>(&e.payload); a && !a->begun && !delivered)
          votes[a->operation].push_back(e.from);
      });
      world.start();
      world.run();
      for (const auto& [round, ranks] : votes) {
        const std::set<Rank> distinct(ranks.begin(), ranks.end());
        EXPECT_EQ(distinct.size(), ranks.size()) << "a rank votes twice in round " << round;
      }
      for (Rank rank = 0; rank < kRanks; ++rank) EXPECT_TRUE(world.finished(rank));
    }
}

// ---- which comes first ----

float nan_of(std::uint32_t payload) {
  const std::uint32_t bits = 0x7fc00000U | payload;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// NaN + NaN is the first of them: the ranks must add in one order, or their bits differ.
TEST(Butterfly, NansAreTheSameBitsOnAllRanks) {
  for (const std::int32_t n : {2, 4, 5, 8}) {
    SCOPED_TRACE("n=" + std::to_string(n));
    std::vector<std::unique_ptr<ButterflyTopK>> nodes;
    std::vector<PackedInbox> inboxes(static_cast<std::size_t>(n));
    std::deque<OutgoingPacked> wire;
    for (std::int32_t position = 0; position < n; ++position) {
      CollectivePlace place{{}, position, 0, 9, {{9, 4}}, ValueType::f32};
      for (Rank rank = 0; rank < n; ++rank) place.ranks.push_back(rank);
      nodes.push_back(std::make_unique<ButterflyTopK>(place));
      SparseVector own;
      own.add(2, nan_of(static_cast<std::uint32_t>(position) + 1));
      own.add(5, 1.0F + static_cast<float>(position));
      for (auto& message :
           nodes.back()->start(to_packed(own), inboxes[static_cast<std::size_t>(position)]))
        wire.push_back(std::move(message));
    }
    for (; !wire.empty(); wire.pop_front()) {
      const auto to = static_cast<std::size_t>(wire.front().to);
      inboxes[to].put(std::move(wire.front().chunk));
      if (nodes[to]->done()) continue;
      for (auto& message : nodes[to]->advance(inboxes[to])) wire.push_back(std::move(message));
    }
    std::vector<FrozenTensor> results;
    for (const auto& node : nodes) {
      ASSERT_TRUE(node->done());
      results.push_back(node->take_result().front().values);
      ASSERT_EQ(results.back().numel(), results.front().numel());
      EXPECT_EQ(std::memcmp(results.back().raw(), results.front().raw(), results.front().nbytes()),
                0)
          << "position " << results.size() - 1;
    }
  }
}

// ((a + b) + (c + d)) + e, in float32: no other order has these bits.
TEST(SparseVector, SumsOfListsAreTakenPairwise) {
  const auto sum_of = [](const std::vector<float>& values) {
    std::vector<SparseVector> lists;
    for (const float value : values) {
      lists.emplace_back();
      lists.back().add(3, value);
    }
    return merge_all(std::move(lists)).values.front();
  };
  EXPECT_EQ(sum_of({1e8F, 1, -1e8F, 1}), (1e8F + 1) + (-1e8F + 1));
  EXPECT_EQ(sum_of({1e8F, 3, -1e8F, 3}), (1e8F + 3) + (-1e8F + 3));
  EXPECT_NE(sum_of({1e8F, 3, -1e8F, 3}), ((1e8F + 3) + -1e8F) + 3);
  EXPECT_EQ(sum_of({1e8F, 3, -1e8F, 3, 5}), ((1e8F + 3) + (-1e8F + 3)) + 5);
}

TEST(Compressor, ZerosOfEitherSignCountAsPositive) {
  CompressionSettings settings;
  settings.name = "sign";
  const auto sign = make_compressor(settings);
  Rng rng(1);
  const Packed packed = sign->pack(at::tensor({-0.0F, 0.0F, -4.0F, 4.0F}), 0, rng);
  EXPECT_EQ(packed.values.data<std::uint8_t>()[0], 0b0100);
  at::Tensor x = at::zeros({4});
  ASSERT_TRUE(sign->fold(x, packed, 1).ok());
  EXPECT_TRUE(at::equal(x, at::tensor({2.0F, 2.0F, -2.0F, 2.0F})));
}

// ---- what a device without kernels of its own runs, here on host memory ----

const c10::DispatchKeySet kOtherDevice(c10::DispatchKey::CUDA);

at::Tensor random(std::uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn({257}, generator, at::kFloat);
}

TEST(ServerRules, ComposedOfAtenCallsTheyAreTheLoops) {
  using ProxySignature = void(at::Tensor&, at::Tensor&, const at::Tensor&, double, double, double);
  using RescaleSignature = void(at::Tensor&, const at::Tensor&, const at::Tensor&,
                                const at::Tensor&, const at::Tensor&, double);
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  const auto proxy =
      dispatcher.findSchemaOrThrow("grapevine::gem_proxy", "").typed<ProxySignature>();
  const auto rescale =
      dispatcher.findSchemaOrThrow("grapevine::gem_rescale", "").typed<RescaleSignature>();
  std::int64_t at_zero = 0, at_five = 0;
  for (std::uint64_t seed = 1; seed <= 4; ++seed)
    for (const double kappa : {0.5, 1.0, 40.0}) {
      SCOPED_TRACE("seed=" + std::to_string(seed) + ", kappa " + std::to_string(kappa));
      at::Tensor gradient = random(seed), m = random(seed + 10);
      const at::Tensor s = random(seed + 20);
      at::Tensor other_gradient = gradient.clone(), other_m = m.clone();
      kernels::advance_proxy(gradient, m, s, 0.1, 0.9, 0.01);
      proxy.redispatch(kOtherDevice, other_gradient, other_m, s, 0.1, 0.9, 0.01);
      EXPECT_TRUE(at::allclose(gradient, other_gradient, 1e-6, 1e-7));
      EXPECT_TRUE(at::allclose(m, other_m, 1e-6, 1e-7));
      const at::Tensor theta = s + 0.3 * random(seed + 30);
      at::Tensor u = at::empty_like(m), other_u = at::empty_like(m);
      kernels::match_energy_into(u, gradient, m, theta, s, kappa);
      rescale.redispatch(kOtherDevice, other_u, gradient, m, theta, s, kappa);
      EXPECT_TRUE(at::allclose(u, other_u, 1e-5, 1e-6));
      at_zero += u.eq(0).sum().item<std::int64_t>();
      at_five += u.eq(5 * gradient).sum().item<std::int64_t>();
    }
  EXPECT_GT(at_zero, 0);
  EXPECT_GT(at_five, 0);
}

}  // namespace boundaries_test
}  // namespace grapevine
