#include "algorithms/collectives/lending_vector.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "algorithms/collectives/direct_all_reduce.hpp"
#include "algorithms/collectives/ring_all_reduce.hpp"
#include "messages/random.hpp"

namespace grapevine {
namespace lending_vector_test {

constexpr std::int64_t kPiece = 8192;  // 32 KiB: smaller parts are copied

TEST(LendingVector, LendsWithoutACopyAndWritesAtOnceWhatNobodyReads) {
  LendingVector vector;
  vector.set(at::ones({3 * kPiece}));
  const PieceBounds piece{kPiece + 1, kPiece};  // at no address of note
  {
    const FrozenTensor lent = vector.lend(piece);
    EXPECT_EQ(lent.data<float>(), vector.values().data_ptr<float>() + piece.begin);
    EXPECT_FALSE(lent.sole_owner()) << "its reader may not write it";
  }
  vector.write(piece, FrozenTensor::freeze(at::full({kPiece}, 7.0F)));
  EXPECT_TRUE(vector.at(piece).equal(at::full({kPiece}, 7.0F)));
  EXPECT_EQ(vector.values()[kPiece].item<float>(), 1);
  EXPECT_EQ(vector.values()[2 * kPiece + 1].item<float>(), 1);
}

TEST(LendingVector, WaitsForTheReaderOfAPiece) {
  LendingVector vector;
  vector.set(at::ones({2 * kPiece}));
  const PieceBounds first{0, kPiece}, second{kPiece, kPiece};
  std::optional<FrozenTensor> lent = vector.lend(first);
  FrozenTensor other = vector.lend(second);
  other = FrozenTensor();
  vector.write(first, FrozenTensor::freeze(at::full({kPiece}, 7.0F)));
  EXPECT_TRUE(lent->read().equal(at::ones({kPiece})));
  lent.reset();
  vector.write(second, FrozenTensor::freeze(at::full({kPiece}, 7.0F)));
  EXPECT_TRUE(vector.values().equal(at::full({2 * kPiece}, 7.0F)));
}

TEST(LendingVector, MovesFromMemoryThatIsStillReadAtTheEnd) {
  LendingVector vector;
  vector.set(at::ones({2 * kPiece}));
  const void* const old = vector.values().data_ptr();
  const PieceBounds piece{0, kPiece};
  const FrozenTensor lent = vector.lend(piece);
  vector.write(piece, FrozenTensor::freeze(at::full({kPiece}, 7.0F)));
  at::Tensor all = vector.take();
  EXPECT_NE(all.data_ptr(), old);
  EXPECT_TRUE(all.narrow(0, 0, kPiece).equal(at::full({kPiece}, 7.0F)));
  EXPECT_TRUE(all.narrow(0, kPiece, kPiece).equal(at::ones({kPiece})));
  all.zero_();
  EXPECT_TRUE(lent.read().equal(at::ones({kPiece})));
}

// As that of shared memory.
class OwnMemory final : public SendMemory {
 public:
  at::Tensor allocate(at::IntArrayRef sizes, at::ScalarType dtype) override {
    at::Tensor t = at::empty(sizes, dtype);
    begins_.insert(t.data_ptr());
    return t;
  }
  bool owns(const at::Tensor& t) const override {
    return begins_.count(owner_of_part(t).storage().data_ptr().get()) > 0;
  }

 private:
  std::set<const void*> begins_;
};

// Else each later operation on recycled memory would copy its parts.
TEST(LendingVector, MovesWithinTheMemoryThatIsSentWithoutACopy) {
  const auto memory = std::make_shared<OwnMemory>();
  use_send_memory(memory);
  LendingVector vector;
  vector.set(copy_to_send(at::ones({2 * kPiece})));
  ASSERT_TRUE(memory->owns(vector.values()));
  const FrozenTensor lent = vector.lend({0, kPiece});
  vector.write({0, kPiece}, FrozenTensor::freeze(at::zeros({kPiece})));
  const at::Tensor all = vector.take();
  EXPECT_NE(all.data_ptr(), lent.raw());
  EXPECT_TRUE(memory->owns(all));
  use_send_memory(nullptr);
}

TEST(LendingVector, GivesMemoryOfOneOwner) {
  LendingVector vector;
  vector.set(at::ones({kPiece}));
  const void* const place = vector.values().data_ptr();
  static_cast<void>(vector.lend({0, kPiece}));
  vector.write({0, kPiece}, FrozenTensor::freeze(at::zeros({kPiece})));
  const FrozenTensor frozen = FrozenTensor::freeze(vector.take());
  EXPECT_EQ(frozen.raw(), place) << "it was copied";
}

// ---- All-reduces whose messages are kept by others for any time

struct Kept {
  FrozenTensor handle;
  at::Tensor values;  // when it was sent
};

// All ranks in one thread. Of each message a second handle may stay, as that of a cut which is
// being written. Results are overwritten at once, as a role does.
template <class AllReduce>
class Ranks {
 public:
  Ranks(std::int32_t ranks, std::int64_t d, std::uint64_t seed, bool keep)
      : rng_(mix_seed(seed, 1)), keep_(keep), results_(static_cast<std::size_t>(ranks)) {
    std::vector<Rank> all;
    for (Rank r = 0; r < ranks; ++r) all.push_back(r);
    auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    for (Rank r = 0; r < ranks; ++r) {
      inputs_.push_back(at::randint(-99, 99, {d}, generator, at::kFloat));
      machines_.emplace_back(all, r, 0, kPiece);
    }
  }

  void run() {
    for (Rank r = 0; r < ranks(); ++r) send(r, machine(r).start(input(r).clone()));
    while (!wires_.empty()) {
      auto wire = std::next(wires_.begin(), static_cast<std::int64_t>(rng_() % wires_.size()));
      const auto [from, to] = wire->first;
      Chunk chunk = std::move(wire->second.front());
      wire->second.pop_front();
      if (wire->second.empty()) wires_.erase(wire);
      send(to, machine(to).on_chunk(std::move(chunk)));
      if (machine(to).done()) finish(to);
      check_kept();
    }
  }

  at::Tensor sum() const {
    at::Tensor sum = inputs_.front().clone();
    for (std::size_t r = 1; r < inputs_.size(); ++r) sum += inputs_[r];
    return sum;
  }
  const at::Tensor& result(Rank r) const { return results_[static_cast<std::size_t>(r)]; }

 private:
  Rank ranks() const { return static_cast<Rank>(inputs_.size()); }
  AllReduce& machine(Rank r) { return machines_[static_cast<std::size_t>(r)]; }
  const at::Tensor& input(Rank r) const { return inputs_[static_cast<std::size_t>(r)]; }

  void send(Rank from, std::vector<OutgoingChunk> out) {
    for (OutgoingChunk& message : out) {
      const FrozenTensor& data = message.chunk.data;
      if (keep_ && rng_() % 3 == 0) kept_.push_back({data, data.read().clone()});
      wires_[{from, message.to}].push_back(std::move(message.chunk));
    }
  }
  void finish(Rank r) {
    at::Tensor result = machine(r).take_result();
    results_[static_cast<std::size_t>(r)] = result.clone();
    result.fill_(-1);
  }
  void check_kept() {
    for (const Kept& kept : kept_) ASSERT_TRUE(kept.handle.read().equal(kept.values));
    if (!kept_.empty() && rng_() % 2 == 0) kept_.pop_front();
  }

  Rng rng_;
  const bool keep_;
  std::vector<at::Tensor> inputs_, results_;
  std::vector<AllReduce> machines_;
  std::map<std::pair<Rank, Rank>, std::deque<Chunk>> wires_;
  std::deque<Kept> kept_;
};

template <class AllReduce>
class LendingAllReduce : public testing::Test {};
using AllReduces = testing::Types<RingAllReduce, DirectAllReduce>;
TYPED_TEST_SUITE(LendingAllReduce, AllReduces);

TYPED_TEST(LendingAllReduce, WritesNoMemoryThatIsBeingRead) {
  for (const std::int32_t ranks : {2, 3, 4})
    for (std::uint64_t seed = 1; seed <= 8; ++seed)
      for (const bool keep : {false, true}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed << ", kept " << keep);
        Ranks<TypeParam> world(ranks, ranks * 3 * kPiece + 5, seed, keep);
        world.run();
        if (testing::Test::HasFatalFailure()) return;
        for (Rank r = 0; r < ranks; ++r) ASSERT_TRUE(world.result(r).equal(world.sum()));
      }
}

TYPED_TEST(LendingAllReduce, SendsItsOwnValuesWhereTheyLie) {
  TypeParam machine({0, 1, 2}, 1, 0, kPiece);
  at::Tensor input = at::ones({9 * kPiece});
  const auto* const begin = input.data_ptr<float>();
  const auto out = machine.start(std::move(input));
  ASSERT_FALSE(out.empty());
  for (const OutgoingChunk& message : out) {
    EXPECT_GE(message.chunk.data.template data<float>(), begin);
    EXPECT_LT(message.chunk.data.template data<float>(), begin + 9 * kPiece);
  }
}

}  // namespace lending_vector_test
}  // namespace grapevine
