// Compressed sums: they send no more than the plain one, and momentum stays where values do.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "algorithms/collectives/reduction.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "messages/codec.hpp"
#include "tests/sim/role_world.hpp"
#include "tests/sim/wirings.hpp"

namespace grapevine {
namespace compressed_aggregate_test {

using sim::Keys;
using sim::RoleWorld;
using sim::WorldConfig;

// ---- bytes ----

std::string refusal_of(const Keys& keys, std::int32_t ranks) {
  const auto parts = make_parts(sim::plan_of(keys), {10, 5}, *LrSchedule::make({}), {}, ranks);
  if (!parts.ok()) {
    EXPECT_EQ(parts.error().code, Errc::bad_input);
  }
  return parts.ok() ? "" : parts.error().message;
}

TEST(DenseCompression, IsTakenAtEveryNumberOfRanks) {
  for (const std::string name : {"fp16", "bf16", "int8", "sign"}) {
    for (const std::int32_t ranks : {1, 2, 8, 1000})
      for (const Keys& keys : std::vector<Keys>{
               {}, {{"exchange", "partial"}}, {{"pack", "difference"}, {"local_steps", "4"}}})
        EXPECT_EQ(refusal_of(sim::operator+(keys, {{"compress", name}}), ranks), "");
    EXPECT_EQ(refusal_of({{"exchange", "gossip"},
                          {"averaging", "symmetric"},
                          {"topology", "ring"},
                          {"compress", name}},
                         64),
              "");
    EXPECT_EQ(refusal_of({{"exchange", "server"}, {"rule", "downpour"}, {"compress", name}}, 64),
              "");
  }
}

std::uint64_t bytes_of(const Keys& keys, std::int32_t ranks) {
  WorldConfig config;
  config.plan = sim::plan_of(keys);
  config.ranks = ranks;
  config.dimension = 1 << 16;
  config.horizon = {2, 5};
  config.lr = 0.1;
  RoleWorld world(config, [](Rank rank, Step, const at::Tensor& z) { return z - rank; });
  std::uint64_t bytes = 0;
  world.watch([&](const Envelope& envelope, bool delivered) {
    if (!delivered) bytes += wire_size(envelope);
  });
  world.start();
  world.run();
  return bytes;
}

// As the codec counts it, headers included. A partial all-reduce waits for all ranks here: the
// number of its rounds would depend on the order of the messages otherwise.
TEST(DenseCompression, SendsItsShareOfThePlainBytesAtEveryNumberOfRanks) {
  for (const std::string exchange : {"aggregate", "partial"})
    for (const std::int32_t ranks : {2, 3, 4, 5, 7, 8, 16}) {
      Keys plain = {{"exchange", exchange}};
      if (exchange == "partial")
        plain =
            sim::operator+(plain, {{"activation", "quorum"}, {"quorum", std::to_string(ranks)}});
      const auto without = static_cast<double>(bytes_of(plain, ranks));
      for (const auto& [name, share] : std::vector<std::pair<std::string, double>>{
               {"fp16", 0.55}, {"int8", 0.32}, {"sign", 0.1}}) {
        SCOPED_TRACE(exchange + ", " + name + ", P=" + std::to_string(ranks));
        const Keys keys = sim::operator+(plain, {{"compress", name}});
        EXPECT_LE(static_cast<double>(bytes_of(keys, ranks)), share * without);
      }
    }
}

// ---- momentum ----

using Reductions = std::vector<std::unique_ptr<Reduction>>;

Reductions make_reductions(const std::string& reduce, std::int32_t ranks, std::int64_t d,
                           const std::string& value_type = "f32") {
  OptimizerConfig optimizer;
  optimizer.momentum = 0.9;
  const auto parts = *make_parts(sim::plan_of({{"compress", "top-k"},
                                               {"density", "0.5"},
                                               {"sparse_reduce", reduce},
                                               {"value_type", value_type},
                                               {"momentum_correction", "true"}}),
                                 {10, 1e9}, *LrSchedule::make({}), optimizer, ranks);
  Reductions all;
  for (Rank r = 0; r < ranks; ++r)
    all.push_back(make_reduction(reduction_settings(*parts), all_ranks(ranks), r, d));
  return all;
}

// One operation; `between` is called once all have started and before anything arrives.
template <class F>
void run_once(Reductions& all, const std::vector<at::Tensor>& given, F&& between) {
  Rng rng(1);
  std::deque<std::tuple<Rank, Rank, Payload>> wire;
  const auto send = [&](Rank from, std::vector<OutgoingMessage> messages) {
    for (OutgoingMessage& message : messages)
      wire.emplace_back(from, message.to, std::move(message.payload));
  };
  for (std::size_t r = 0; r < all.size(); ++r)
    send(static_cast<Rank>(r), all[r]->start(0, 0, given[r].clone(), rng));
  between();
  while (!wire.empty()) {
    auto [from, to, payload] = std::move(wire.front());
    wire.pop_front();
    send(to, all[static_cast<std::size_t>(to)]->on_message(from, std::move(payload)));
  }
  for (const auto& reduction : all) {
    ASSERT_TRUE(reduction->done());
    reduction->take_sum();
  }
}

at::Tensor kept(const Reduction& reduction, const std::string& what) {
  return *save_state(reduction, std::int64_t{0}, 0.0).under("feedback").tensor(what);
}

// An entry that the ranks reject was not applied: its momentum stays with its value. d = 2, k = 1.
TEST(MomentumCorrection, RejectedEntriesKeepTheirMomentum) {
  for (const std::string how : {"all-gather-reselect", "butterfly", "tree"})
    for (const std::string type : {"f32", "f16"})
      for (const bool checkpoint : {false, true}) {
        SCOPED_TRACE(how + ", " + type + (checkpoint ? ", with a checkpoint" : ""));
        auto ranks = make_reductions(how, 2, 2, type);
        run_once(ranks, {at::tensor({3.0F, 0.0F}), at::tensor({0.0F, 1.0F})}, [&] {
          if (!checkpoint) return;
          auto fresh = make_reductions(how, 2, 2, type);
          for (std::size_t r = 0; r < 2; ++r)
            ASSERT_TRUE(
                load_state(*fresh[r], save_state(*ranks[r], std::int64_t{0}, 0.0), 0, 0.0).ok());
          ranks = std::move(fresh);
        });
        EXPECT_TRUE(at::equal(kept(*ranks[0], "velocity"), at::zeros({2})))
            << "applied, and masked";
        EXPECT_TRUE(at::equal(kept(*ranks[1], "velocity"), at::tensor({0.0F, 1.0F})));
        const at::Tensor left = kept(*ranks[0], "residual") + kept(*ranks[1], "residual");
        EXPECT_TRUE(at::equal(left, at::tensor({0.0F, 1.0F}))) << left;
      }
}

// Where all lists are added, all that is sent is applied.
TEST(MomentumCorrection, EntriesOfASumLoseTheirMomentum) {
  auto ranks = make_reductions("all-gather", 2, 4);
  run_once(ranks, {at::tensor({3.0F, 2.0F, 1.0F, 0.5F}), at::tensor({0.0F, 1.0F, 4.0F, 0.5F})},
           [] {});
  EXPECT_TRUE(at::equal(kept(*ranks[0], "velocity"), at::tensor({0.0F, 0.0F, 1.0F, 0.5F})));
  EXPECT_TRUE(at::equal(kept(*ranks[1], "velocity"), at::tensor({0.0F, 0.0F, 0.0F, 0.5F})));
}

// Dropped on the way, though its index came back by the other pair of ranks. k = 1 of 2:
// ranks 0, 1 keep entry 0; ranks 2, 3 keep entry 1; together entry 1 wins.
TEST(MomentumCorrection, EntriesDroppedOnTheWayKeepTheirMomentum) {
  auto ranks = make_reductions("butterfly", 4, 2);
  run_once(ranks,
           {at::tensor({5.0F, 0.0F}), at::tensor({0.0F, 1.0F}), at::tensor({0.0F, 9.0F}),
            at::tensor({0.0F, 9.0F})},
           [] {});
  EXPECT_TRUE(at::equal(kept(*ranks[0], "velocity"), at::tensor({5.0F, 0.0F})));
  EXPECT_TRUE(at::equal(kept(*ranks[1], "velocity"), at::tensor({0.0F, 1.0F})));
  for (const std::size_t r : {2U, 3U})
    EXPECT_TRUE(at::equal(kept(*ranks[r], "velocity"), at::zeros({2})));
}

}  // namespace compressed_aggregate_test
}  // namespace grapevine
