// Sums of whole vectors, by each algorithm and by the one that is chosen.
#include "algorithms/collectives/exact_reduction.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace grapevine {
namespace exact_reduction_test {

constexpr ExactReduce kAlgorithms[] = {ExactReduce::ring, ExactReduce::direct,
                                       ExactReduce::doubling, ExactReduce::automatic};
// Around those at which `automatic` changes, with 2 to 9 ranks, too.
constexpr std::int64_t kSizes[] = {0,   1,   2,   3,   7,    64,   409,  410,
                                   512, 513, 682, 683, 1024, 1025, 2048, 2049};

at::Tensor fractions(Rng& rng, std::int64_t d) {
  at::Tensor x = at::empty({d}, at::kFloat);
  for (std::int64_t i = 0; i < d; ++i)
    x.data_ptr<float>()[i] = static_cast<float>(static_cast<double>(rng() >> 11) * 0x1p-52 - 1);
  return x;
}

using Inputs = std::vector<std::vector<at::Tensor>>;  // by operation and rank

Inputs inputs_of(std::int32_t ranks, std::int64_t d, std::uint64_t seed) {
  Rng rng(mix_seed(seed, 1));
  Inputs inputs(2);
  for (auto& operation : inputs)
    for (Rank r = 0; r < ranks; ++r) operation.push_back(fractions(rng, d));
  return inputs;
}

// The reductions of all ranks, one operation after the other; messages arrive in a seeded order,
// FIFO for each pair. A rank starts when it likes: others may be an operation behind.
class Ranks {
 public:
  Ranks(std::int32_t ranks, std::int64_t d, ExactReduce algorithm, std::uint64_t seed)
      : d_(d),
        algorithm_(algorithm),
        rng_(mix_seed(seed, 2)),
        seats_(static_cast<std::size_t>(ranks)) {
    for (std::size_t r = 0; r < seats_.size(); ++r) seats_[r].reduction = make(r);
  }

  // Calls `disturb` after each event.
  void run(
      const Inputs& inputs, const std::function<void()>& disturb = [] {}) {
    while (!testing::Test::HasFatalFailure()) {
      std::vector<std::function<void()>> choices;
      for (std::size_t r = 0; r < seats_.size(); ++r)
        if (!seats_[r].reduction->running() && seats_[r].sums.size() < inputs.size())
          choices.push_back([&, r] { start(r, inputs[seats_[r].sums.size()][r].clone()); });
      for (auto& [pair, queue] : wires_)
        if (!queue.empty()) choices.push_back([this, pair = pair] { deliver(pair); });
      if (choices.empty()) break;
      choices[rng_() % choices.size()]();
      disturb();
    }
    for (const Seat& seat : seats_) EXPECT_EQ(seat.sums.size(), inputs.size());
  }

  void save_and_load() {
    for (std::size_t r = 0; r < seats_.size(); ++r) {
      const StateDict state = save_state(*seats_[r].reduction, std::int64_t{0}, 0.0);
      seats_[r].reduction = make(r);
      const auto loaded = load_state(*seats_[r].reduction, state, operation(r), 0.0);
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    }
  }

  const std::vector<at::Tensor>& sums(std::size_t rank) const { return seats_[rank].sums; }

  std::int64_t messages = 0;

 private:
  struct Seat {
    std::unique_ptr<Reduction> reduction;
    std::vector<at::Tensor> sums;
  };

  std::unique_ptr<Reduction> make(std::size_t r) const {
    return make_exact_reduction(all_ranks(static_cast<std::int32_t>(seats_.size())),
                                static_cast<std::int32_t>(r), d_, algorithm_);
  }
  std::int64_t operation(std::size_t r) const {
    return static_cast<std::int64_t>(seats_[r].sums.size());
  }

  void start(std::size_t r, at::Tensor vector) {
    send(r, seats_[r].reduction->start(operation(r), 0, std::move(vector), rng_));
    take(r);
  }
  void deliver(std::pair<Rank, Rank> pair) {
    Payload payload = std::move(wires_[pair].front());
    wires_[pair].pop_front();
    const auto to = static_cast<std::size_t>(pair.second);
    send(to, seats_[to].reduction->on_message(pair.first, std::move(payload)));
    take(to);
  }
  void send(std::size_t from, std::vector<OutgoingMessage> out) {
    messages += static_cast<std::int64_t>(out.size());
    for (OutgoingMessage& message : out)
      wires_[{static_cast<Rank>(from), message.to}].push_back(std::move(message.payload));
  }
  void take(std::size_t r) {
    Seat& seat = seats_[r];
    if (!seat.reduction->running()) return;
    EXPECT_EQ(seat.reduction->awaited().empty(), seat.reduction->done());
    if (seat.reduction->done()) seat.sums.push_back(seat.reduction->take_sum());
  }

  const std::int64_t d_;
  const ExactReduce algorithm_;
  Rng rng_;
  std::vector<Seat> seats_;
  std::map<std::pair<Rank, Rank>, std::deque<Payload>> wires_;
};

// In double precision, to the rounding of P - 1 sums of numbers below 1; all ranks the same bits.
void expect_sums(const Ranks& world, const Inputs& inputs) {
  const auto ranks = inputs.front().size();
  for (std::size_t operation = 0; operation < inputs.size(); ++operation) {
    at::Tensor exact = at::zeros(inputs[operation].front().sizes(), at::kDouble);
    for (const at::Tensor& one : inputs[operation]) exact += one.to(at::kDouble);
    for (std::size_t r = 0; r < ranks; ++r) {
      const at::Tensor& sum = world.sums(r)[operation];
      EXPECT_TRUE(at::equal(sum, world.sums(0)[operation])) << "rank " << r;
      ASSERT_EQ(sum.sizes(), exact.sizes());
      if (sum.numel() == 0) continue;
      const double error = (sum.to(at::kDouble) - exact).abs().max().item<double>();
      EXPECT_LE(error, std::ldexp(static_cast<double>(ranks * ranks), -24)) << "rank " << r;
    }
  }
}

std::string trace_of(ExactReduce algorithm, std::int32_t ranks, std::int64_t d,
                     std::uint64_t seed) {
  return "algorithm " + std::to_string(static_cast<int>(algorithm)) +
         ", P=" + std::to_string(ranks) + ", d=" + std::to_string(d) +
         ", seed=" + std::to_string(seed);
}

TEST(ExactReduction, AddsUpAlikeOnAllRanksByEachAlgorithm) {
  for (const ExactReduce algorithm : kAlgorithms)
    for (std::int32_t ranks = 1; ranks <= 9; ++ranks)
      for (const std::int64_t d : kSizes) {
        const auto seed = static_cast<std::uint64_t>(ranks * 10'000 + d);
        SCOPED_TRACE(trace_of(algorithm, ranks, d, seed));
        const Inputs inputs = inputs_of(ranks, d, seed);
        Ranks world(ranks, d, algorithm, seed);
        world.run(inputs);
        ASSERT_FALSE(testing::Test::HasFailure());
        expect_sums(world, inputs);
      }
}

TEST(ExactReduction, ContinuesFromWhatItSavedAtAnyEvent) {
  for (const ExactReduce algorithm : kAlgorithms)
    for (const std::int32_t ranks : {1, 2, 3, 6, 9})
      for (const std::int64_t d : {0, 5, 1000})
        for (std::uint64_t seed = 1; seed <= 3; ++seed) {
          SCOPED_TRACE(trace_of(algorithm, ranks, d, seed));
          Rng moments(seed);
          const Inputs inputs = inputs_of(ranks, d, seed);
          Ranks world(ranks, d, algorithm, seed);
          world.run(inputs, [&] {
            if (moments() % 3 == 0) world.save_and_load();
          });
          ASSERT_FALSE(testing::Test::HasFailure());
          expect_sums(world, inputs);
        }
}

TEST(ExactReduction, SendsAsManyMessagesAsItsAlgorithmSays) {
  const auto messages = [](ExactReduce algorithm, std::int32_t ranks) {
    Ranks world(ranks, 100, algorithm, 1);
    world.run(inputs_of(ranks, 100, 1));
    return world.messages / 2;  // operations
  };
  for (const std::int32_t ranks : {2, 3, 6, 8}) {
    EXPECT_EQ(messages(ExactReduce::ring, ranks), 2 * ranks * (ranks - 1));
    EXPECT_EQ(messages(ExactReduce::direct, ranks), 2 * ranks * (ranks - 1));
  }
  EXPECT_EQ(messages(ExactReduce::doubling, 8), 8 * 3);
  EXPECT_EQ(messages(ExactReduce::doubling, 6), 4 * 2 + 2 * 2);
  EXPECT_EQ(messages(ExactReduce::automatic, 16), 16 * 4);
}

// ---- The choice

ExactReduce chosen(std::int32_t ranks, std::int64_t bytes) {
  return all_reduce_for(ExactReduce::automatic, ranks, bytes);
}

TEST(AllReduceFor, FollowsTheWiringWhereItNamesOne) {
  for (const ExactReduce algorithm :
       {ExactReduce::ring, ExactReduce::direct, ExactReduce::doubling})
    for (const std::int32_t ranks : {1, 2, 9, 1000})
      for (const std::int64_t bytes : {0, 8, 1 << 30})
        EXPECT_EQ(all_reduce_for(algorithm, ranks, bytes), algorithm);
}

TEST(AllReduceFor, SumsShortVectorsByPairsLongOnesOfFewRanksDirectlyOthersAroundARing) {
  for (const auto& [ranks, rounds] : std::vector<std::pair<std::int32_t, std::int64_t>>{
           {2, 1}, {3, 3}, {4, 2}, {5, 4}, {7, 4}, {8, 3}, {9, 5}, {64, 6}, {1000, 11}}) {
    const std::int64_t longest = kMostShortBytes / rounds / 4 * 4;
    EXPECT_EQ(chosen(ranks, 8), ExactReduce::doubling) << ranks << " ranks";
    EXPECT_EQ(chosen(ranks, longest), ExactReduce::doubling) << ranks << " ranks";
    const ExactReduce of_long = ranks <= 4 ? ExactReduce::direct : ExactReduce::ring;
    EXPECT_EQ(chosen(ranks, longest + 4), of_long) << ranks << " ranks";
    EXPECT_EQ(chosen(ranks, std::int64_t{1} << 40), of_long) << ranks << " ranks";
  }
}

// By the model of the header's top, where a latency costs as many bytes as it says there.
TEST(AllReduceFor, TakesNoLongerThanARing) {
  for (std::int32_t ranks = 2; ranks <= 128; ++ranks)
    for (std::int64_t bytes = 0; bytes <= kMostShortBytes; bytes += 4) {
      if (chosen(ranks, bytes) != ExactReduce::doubling) continue;
      const double a = static_cast<double>(kMostShortBytes) / (ranks == 3 ? 1.8 : 6);
      const double p = ranks, n = static_cast<double>(bytes), levels = std::floor(std::log2(p));
      const double rounds = std::exp2(levels) == p ? levels : levels + 2;
      EXPECT_LE(rounds * (a + n), 2 * (p - 1) * (a + n / p)) << ranks << " ranks, " << bytes;
    }
}

// ---- Saved states

// A sum that is running, on the first of two ranks.
StateDict saved(ExactReduce algorithm, std::int64_t d) {
  Rng rng(1);
  const auto reduction = make_exact_reduction({0, 1}, 0, d, algorithm);
  reduction->start(0, 0, at::ones({d}), rng);
  return save_state(*reduction, std::int64_t{0}, 0.0);
}

Expected<void> load(ExactReduce algorithm, std::int64_t d, const StateDict& state) {
  return load_state(*make_exact_reduction({0, 1}, 0, d, algorithm), state, 0, 0.0);
}

TEST(ExactReduction, RefusesTheStateOfAnotherSum) {
  for (const ExactReduce algorithm : kAlgorithms) {
    SCOPED_TRACE(static_cast<int>(algorithm));
    EXPECT_TRUE(load(algorithm, 9, saved(algorithm, 9)).ok());
    EXPECT_TRUE(load(algorithm, -1, saved(algorithm, 9)).ok());
    EXPECT_FALSE(load(algorithm, 8, saved(algorithm, 9)).ok());
    for (const ExactReduce other : kAlgorithms)
      if (other != algorithm && algorithm != ExactReduce::automatic) {
        EXPECT_FALSE(load(other, 9, saved(algorithm, 9)).ok()) << static_cast<int>(other);
      }
  }
  StateDict damaged = saved(ExactReduce::automatic, 9);
  damaged.put("way", static_cast<std::int64_t>(ExactReduce::ring));
  const Expected<void> of_other_way = load(ExactReduce::automatic, 9, damaged);
  ASSERT_FALSE(of_other_way.ok());
  StateDict other_type = saved(ExactReduce::doubling, 9);
  other_type.put("all_reduce.sum", at::ones({9}, at::kLong));
  EXPECT_FALSE(load(ExactReduce::doubling, 9, other_type).ok());
}

}  // namespace exact_reduction_test
}  // namespace grapevine
