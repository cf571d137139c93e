// A sum whose vector is given in parts is the sum of the whole vector.
#include "algorithms/collectives/bucketed_reduction.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "algorithms/collectives/slices.hpp"

namespace grapevine {
namespace bucketed_reduction_test {

constexpr ExactReduce kAlgorithms[] = {ExactReduce::ring, ExactReduce::direct,
                                       ExactReduce::doubling, ExactReduce::automatic};

at::Tensor fractions(Rng& rng, std::int64_t d) {
  at::Tensor x = at::empty({d}, at::kFloat);
  for (std::int64_t i = 0; i < d; ++i)
    x.data_ptr<float>()[i] = static_cast<float>(static_cast<double>(rng() >> 11) * 0x1p-52 - 1);
  return x;
}

// One rank's vectors, given from the end on, one bucket at a time; the last call gives the first.
struct Seat {
  std::unique_ptr<Reduction> reduction;
  std::int64_t operation = 0;
  at::Tensor left;  // of the vector that is being given; undefined: none yet
  std::vector<at::Tensor> sums;
};

// All ranks; messages arrive in a seeded order, FIFO for each pair, and ranks give parts when they
// like: others may be an operation behind.
class Ranks {
 public:
  Ranks(std::int32_t ranks, std::int64_t d, std::int64_t bucket_bytes, ExactReduce algorithm,
        std::uint64_t seed)
      : ranks_(ranks), d_(d), bucket_bytes_(bucket_bytes), algorithm_(algorithm), rng_(seed) {
    for (Rank r = 0; r < ranks; ++r) {
      seats_.emplace_back();
      seats_.back().reduction = make(r);
    }
  }

  // inputs[operation][rank]. `disturb` is called after each event.
  void run(
      const std::vector<std::vector<at::Tensor>>& inputs,
      const std::function<void()>& disturb = [] {}) {
    while (true) {
      std::vector<std::function<void()>> choices;
      for (std::size_t r = 0; r < seats_.size(); ++r) {
        const auto operation = static_cast<std::size_t>(seats_[r].operation);
        if (!seats_[r].reduction->running() && operation < inputs.size())
          choices.push_back([&, r, operation] { give(r, inputs[operation][r]); });
      }
      for (auto& [pair, queue] : wires_)
        if (!queue.empty()) choices.push_back([this, pair = pair] { deliver(pair); });
      if (choices.empty()) break;
      choices[rng_() % choices.size()]();
      disturb();
    }
    for (const Seat& seat : seats_) EXPECT_EQ(seat.sums.size(), inputs.size());
  }

  // As a resumed run does: messages stay on their way, and a vector of which parts are missing is
  // given again from its end on.
  void save_and_load() {
    for (std::size_t r = 0; r < seats_.size(); ++r) {
      Seat& seat = seats_[r];
      const StateDict state = save_state(*seat.reduction, std::int64_t{0}, 0.0);
      seat.reduction = make(static_cast<Rank>(r));
      const auto loaded = load_state(*seat.reduction, state, seat.operation, 0.0);
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      seat.left = at::Tensor();
    }
  }

  const std::vector<at::Tensor>& sums(std::size_t rank) const { return seats_[rank].sums; }
  Reduction& reduction(std::size_t rank) { return *seats_[rank].reduction; }

  std::int64_t early = 0;  // messages that were sent before the sender had given its whole vector

 private:
  std::unique_ptr<Reduction> make(Rank r) const {
    ReductionSettings settings;
    settings.compression.exact = algorithm_;
    settings.bucket_bytes = bucket_bytes_;
    return make_reduction(settings, all_ranks(ranks_), r, d_);
  }

  void give(std::size_t r, const at::Tensor& vector) {
    Seat& seat = seats_[r];
    if (!seat.left.defined()) seat.left = vector.clone();
    const PartBegins begins = seat.reduction->parts();
    std::int64_t begin = 0;
    if (begins)
      for (const std::int64_t each : *begins)
        if (each < seat.left.numel()) begin = each;
    if (begin > 0) {
      auto out =
          seat.reduction->start_part(seat.operation, 0, begin, seat.left.slice(0, begin), rng_);
      early += static_cast<std::int64_t>(out.size());
      seat.left = seat.left.narrow(0, 0, begin).clone();
      return send(r, std::move(out));
    }
    at::Tensor rest = std::exchange(seat.left, at::Tensor());
    send(r, seat.reduction->start(seat.operation, 0, std::move(rest), rng_));
    take(r);
  }

  void deliver(std::pair<Rank, Rank> pair) {
    Payload payload = std::move(wires_[pair].front());
    wires_[pair].pop_front();
    const auto to = static_cast<std::size_t>(pair.second);
    send(to, seats_[to].reduction->on_message(pair.first, std::move(payload)));
    take(to);
  }

  void send(std::size_t from, std::vector<OutgoingMessage> messages) {
    for (OutgoingMessage& message : messages)
      wires_[{static_cast<Rank>(from), message.to}].push_back(std::move(message.payload));
  }

  void take(std::size_t r) {
    Seat& seat = seats_[r];
    if (!seat.reduction->running() || !seat.reduction->done()) return;
    EXPECT_TRUE(seat.reduction->awaited().empty());
    at::Tensor sum = seat.reduction->take_sum();
    seat.sums.push_back(sum.clone());
    static_cast<void>(seat.reduction->recycle(std::move(sum)));
    ++seat.operation;
  }

  const std::int32_t ranks_;
  const std::int64_t d_, bucket_bytes_;
  const ExactReduce algorithm_;
  Rng rng_;
  std::vector<Seat> seats_;
  std::map<std::pair<Rank, Rank>, std::deque<Payload>> wires_;
};

std::vector<std::vector<at::Tensor>> inputs_of(std::int32_t ranks, std::int64_t d, Rng& rng) {
  std::vector<std::vector<at::Tensor>> inputs(3);
  for (auto& operation : inputs)
    for (Rank r = 0; r < ranks; ++r) operation.push_back(fractions(rng, d));
  return inputs;
}

// Where each element is added up in the same order wherever it lies, to the last bit; in a ring of
// three and more, to rounding, and all ranks have the same bits.
void expect_same_sums(Ranks& found, Ranks& whole, std::int32_t ranks, ExactReduce algorithm) {
  const bool any_place = algorithm != ExactReduce::ring || ranks <= 2;
  for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
    for (std::size_t operation = 0; operation < 3; ++operation) {
      const at::Tensor& sum = found.sums(r)[operation];
      EXPECT_TRUE(at::equal(sum, found.sums(0)[operation])) << "rank " << r;
      if (any_place) {
        EXPECT_TRUE(at::equal(sum, whole.sums(r)[operation])) << "rank " << r;
      } else {
        EXPECT_LT((sum - whole.sums(r)[operation]).abs().max().item<double>(), 1e-6 * ranks);
      }
    }
}

TEST(BucketedReduction, IsTheSumOfWholeVectors) {
  for (const ExactReduce algorithm : kAlgorithms)
    for (const std::int32_t ranks : {1, 2, 3, 5, 8})
      for (const std::int64_t bytes : {4, 12, 40, 400})
        for (std::uint64_t seed = 1; seed <= 4; ++seed) {
          const std::int64_t d = 5 + static_cast<std::int64_t>(seed) * 11;
          SCOPED_TRACE("ranks=" + std::to_string(ranks) + " bytes=" + std::to_string(bytes) +
                       " d=" + std::to_string(d) + " seed=" + std::to_string(seed));
          Rng rng(seed);
          const auto inputs = inputs_of(ranks, d, rng);
          Ranks found(ranks, d, bytes, algorithm, seed), whole(ranks, d, 0, algorithm, seed);
          found.run(inputs);
          whole.run(inputs);
          expect_same_sums(found, whole, ranks, algorithm);
          if (ranks > 1 && d * 4 > bytes) {
            EXPECT_GT(found.early, 0) << "no bucket has left before the vector was complete";
          }
          EXPECT_EQ(whole.early, 0);
        }
}

// Also where one was large enough to travel in pieces.
TEST(BucketedReduction, BucketsTravelInPieces) {
  const std::int64_t d = 12 * kRingPieceElements + 77;
  for (const ExactReduce algorithm : kAlgorithms) {
    Rng rng(3);
    const auto inputs = inputs_of(2, d, rng);
    Ranks found(2, d, 4 * (5 * kRingPieceElements + 1), algorithm, 3), whole(2, d, 0, algorithm, 3);
    found.run(inputs);
    whole.run(inputs);
    expect_same_sums(found, whole, 2, algorithm);
  }
}

TEST(BucketedReduction, ContinuesFromWhatItSavedAtAnyEvent) {
  for (const ExactReduce algorithm : kAlgorithms)
    for (const std::int32_t ranks : {1, 2, 4})
      for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        SCOPED_TRACE("ranks=" + std::to_string(ranks) + " seed=" + std::to_string(seed));
        Rng rng(seed), moments(seed + 100);
        const auto inputs = inputs_of(ranks, 23, rng);
        Ranks straight(ranks, 23, 20, algorithm, seed), found(ranks, 23, 20, algorithm, seed);
        straight.run(inputs);
        found.run(inputs, [&] {
          if (moments() % 4 == 0) found.save_and_load();
        });
        for (std::size_t r = 0; r < static_cast<std::size_t>(ranks); ++r)
          for (std::size_t operation = 0; operation < 3; ++operation)
            EXPECT_TRUE(at::equal(found.sums(r)[operation], straight.sums(r)[operation]));
      }
}

TEST(BucketedReduction, BucketsAreCountedFromTheEnd) {
  using Begins = std::vector<std::int64_t>;
  EXPECT_EQ(*bucket_begins(10, 16), (Begins{0, 2, 6}));
  EXPECT_EQ(*bucket_begins(12, 16), (Begins{0, 4, 8}));
  EXPECT_EQ(*bucket_begins(5, 16), (Begins{0, 1}));
  EXPECT_EQ(*bucket_begins(3, 1), (Begins{0, 1, 2})) << "an element at least";
  EXPECT_EQ(bucket_begins(4, 16), nullptr);
  EXPECT_EQ(bucket_begins(1'000'000, 0), nullptr);
  EXPECT_LE(bucket_begins(100'000'000, 4)->size(), static_cast<std::size_t>(kMostBuckets));
}

// The result of one vector is the memory of the next: a rank holds one vector, however often.
TEST(BucketedReduction, KeepsOneVectorForItsSums) {
  Rng rng(1);
  ReductionSettings settings;
  settings.bucket_bytes = 8;
  const auto reduction = make_reduction(settings, {0}, 0, 5);
  const void* memory = nullptr;
  for (std::int64_t operation = 0; operation < 4; ++operation) {
    EXPECT_TRUE(reduction->start_part(operation, 0, 3, at::ones({2}), rng).empty());
    EXPECT_TRUE(reduction->start_part(operation, 0, 1, at::ones({2}), rng).empty());
    EXPECT_FALSE(reduction->running()) << "a vector counts once it is complete";
    static_cast<void>(reduction->start(operation, 0, at::ones({1}), rng));
    ASSERT_TRUE(reduction->running() && reduction->done());
    at::Tensor sum = reduction->take_sum();
    EXPECT_TRUE(sum.storage().use_count() == 1 && sum.eq(1).all().item<bool>());
    if (operation > 0) {
      EXPECT_EQ(sum.data_ptr(), memory);
    }
    memory = sum.data_ptr();
    EXPECT_FALSE(reduction->recycle(std::move(sum)).defined());
  }
  at::Tensor whole = at::ones({5});
  memory = whole.data_ptr();
  static_cast<void>(reduction->start(4, 0, std::move(whole), rng));
  at::Tensor sum = reduction->take_sum();
  EXPECT_EQ(sum.data_ptr(), memory) << "a whole vector is summed where it lies";
  EXPECT_TRUE(reduction->recycle(std::move(sum)).defined()) << "its memory is the worker's";
}

TEST(BucketedReduction, RefusesTheStateOfAnotherWiring) {
  Rng rng(1);
  ReductionSettings settings;
  const auto whole = make_reduction(settings, {0, 1}, 0, 5);
  static_cast<void>(whole->start(0, 0, at::ones({5}), rng));
  settings.bucket_bytes = 8;
  const auto bucketed = make_reduction(settings, {0, 1}, 0, 5);
  const auto loaded = load_state(*bucketed, save_state(*whole, std::int64_t{0}, 0.0), 0, 0.0);
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.error().message.find("bucket_bytes"), std::string::npos);

  // Entries that do not fit each other.
  static_cast<void>(bucketed->start_part(0, 0, 3, at::ones({2}), rng));
  for (const std::int64_t open : {0, 1, 3}) {
    StateDict state = save_state(*bucketed, std::int64_t{0}, 0.0);
    state.put("open", open);
    EXPECT_FALSE(load_state(*make_reduction(settings, {0, 1}, 0, 5), state, 0, 0.0).ok()) << open;
  }
}

// Of a rank that has given parts alone, nothing counts.
TEST(BucketedReduction, TakesPartsBack) {
  Rng rng(1);
  ReductionSettings settings;
  settings.bucket_bytes = 8;
  const auto reduction = make_reduction(settings, {0, 1}, 0, 5);
  EXPECT_FALSE(reduction->start_part(7, 0, 3, at::ones({2}), rng).empty());
  EXPECT_FALSE(reduction->take_back());
  EXPECT_FALSE(reduction->start_part(7, 0, 3, at::ones({2}), rng).empty()) << "from the start";
}

}  // namespace bucketed_reduction_test
}  // namespace grapevine
