#include "algorithms/collectives/ring_all_reduce.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "messages/random.hpp"

namespace grapevine {
namespace ring_all_reduce_test {

using testing::HasSubstr;

constexpr std::int32_t kRanks[] = {1, 2, 3, 4, 5, 6, 7, 8, 16};
constexpr std::int64_t kSizes[] = {0, 1, 2, 7, 1000, 4097};

// Ring neighbours need not be consecutive ranks.
std::vector<Rank> ring_of(std::int32_t ranks) {
  std::vector<Rank> ring(static_cast<std::size_t>(ranks));
  for (std::int32_t i = 0; i < ranks; ++i) ring[static_cast<std::size_t>(i)] = 10 + 3 * i % ranks;
  if (ranks % 3 == 0) std::iota(ring.begin(), ring.end(), 5);
  return ring;
}

std::int64_t slice_size(std::int64_t d, std::int32_t ranks, std::int32_t index) {
  const std::int64_t i = index % ranks;
  return d * (i + 1) / ranks - d * i / ranks;
}

// All ranks of a ring in one thread. Each takes part in `operations` all-reduces, one after the
// other, as fast as it can; a seed decides who moves next.
class Ring {
 public:
  // inputs[operation][position]: [d].
  Ring(std::vector<std::vector<at::Tensor>> inputs, std::uint64_t seed,
       std::int64_t piece_elements = kRingPieceElements)
      : inputs_(std::move(inputs)), piece_elements_(piece_elements), rng_(mix_seed(seed, 1)) {
    const std::size_t ranks = inputs_.front().size();
    ring_ = ring_of(static_cast<std::int32_t>(ranks));
    nodes_.resize(ranks);
    for (std::size_t p = 0; p < ranks; ++p) begin_operation(p, 0);
  }

  // One event: a rank starts, or a message arrives. False where nothing is left to do.
  bool step() {
    std::vector<std::size_t> movable;
    for (std::size_t p = 0; p < nodes_.size(); ++p)
      if (can_start(p)) movable.push_back(p);
    const std::size_t starters = movable.size();
    for (std::size_t p = 0; p < nodes_.size(); ++p)
      if (!nodes_[p].arriving.empty()) movable.push_back(p);
    if (movable.empty()) return false;
    const std::size_t choice = rng_() % movable.size();
    choice < starters ? start(movable[choice]) : deliver(movable[choice]);
    return true;
  }

  void run() {
    while (step()) continue;
  }

  // Puts every rank through save_state() and load_state(); messages in flight stay where they are.
  void restore_all() {
    for (std::size_t p = 0; p < nodes_.size(); ++p) {
      Node& node = nodes_[p];
      RingAllReduce copy = machine(p, node.reduce->operation());
      const Expected<void> loaded = load_state(copy, save_state(*node.reduce));
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      CollectiveInbox inbox;
      ASSERT_TRUE(load_state(inbox, save_state(node.inbox)).ok());
      node.reduce.emplace(std::move(copy));
      node.inbox = std::move(inbox);
    }
  }

  const std::vector<at::Tensor>& results(std::size_t p) const { return nodes_[p].results; }
  std::uint64_t bytes(std::size_t p) const { return nodes_[p].bytes; }
  std::int64_t messages(std::size_t p) const { return nodes_[p].messages; }
  std::size_t early() const { return early_; }

 private:
  struct Node {
    std::optional<RingAllReduce> reduce;
    CollectiveInbox inbox;
    std::deque<Chunk> arriving;  // from the left neighbour
    std::vector<at::Tensor> results;
    std::uint64_t bytes = 0;
    std::int64_t messages = 0;
  };

  RingAllReduce machine(std::size_t p, std::int64_t operation) const {
    return RingAllReduce(ring_, static_cast<std::int32_t>(p), operation, piece_elements_);
  }

  void begin_operation(std::size_t p, std::int64_t operation) {
    nodes_[p].reduce.emplace(machine(p, operation));
  }

  bool can_start(std::size_t p) const {
    const RingAllReduce& reduce = *nodes_[p].reduce;
    return !reduce.started() && reduce.operation() < static_cast<std::int64_t>(inputs_.size());
  }

  void start(std::size_t p) {
    Node& node = nodes_[p];
    const std::int64_t operation = node.reduce->operation();
    send(p, node.reduce->start(inputs_[static_cast<std::size_t>(operation)][p].clone()));
    for (Chunk& chunk : node.inbox.take(operation))
      send(p, node.reduce->on_chunk(std::move(chunk)));
    finish(p);
  }

  void deliver(std::size_t p) {
    Node& node = nodes_[p];
    Chunk chunk = std::move(node.arriving.front());
    node.arriving.pop_front();
    if (!node.reduce->started()) {
      ++early_;
      return node.inbox.hold(std::move(chunk));
    }
    send(p, node.reduce->on_chunk(std::move(chunk)));
    finish(p);
  }

  void finish(std::size_t p) {
    Node& node = nodes_[p];
    if (!node.reduce->done()) return;
    node.results.push_back(node.reduce->take_result());
    begin_operation(p, node.reduce->operation() + 1);
  }

  void send(std::size_t p, std::vector<OutgoingChunk> outgoing) {
    const std::size_t right = (p + 1) % nodes_.size();
    for (OutgoingChunk& message : outgoing) {
      EXPECT_EQ(message.to, ring_[right]);
      nodes_[p].bytes += message.chunk.data.nbytes();
      ++nodes_[p].messages;
      nodes_[right].arriving.push_back(std::move(message.chunk));
    }
  }

  std::vector<std::vector<at::Tensor>> inputs_;
  std::int64_t piece_elements_;
  std::vector<Rank> ring_;
  std::vector<Node> nodes_;
  Rng rng_;
  std::size_t early_ = 0;
};

std::vector<at::Tensor> random_inputs(std::int32_t ranks, std::int64_t d, std::uint64_t seed,
                                      bool whole_numbers = false) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<at::Tensor> inputs;
  for (std::int32_t p = 0; p < ranks; ++p)
    inputs.push_back(whole_numbers ? at::randint(-1000, 1000, {d}, generator, at::kFloat)
                                   : at::randn({d}, generator, at::kFloat));
  return inputs;
}

bool bitwise_equal(const at::Tensor& a, const at::Tensor& b) {
  return a.view(at::kInt).equal(b.view(at::kInt));
}

void expect_sum(const std::vector<at::Tensor>& inputs, const at::Tensor& result, double tolerance) {
  for (std::int64_t i = 0; i < result.numel(); ++i) {
    double sum = 0, magnitude = 0;
    for (const at::Tensor& input : inputs) {
      sum += input.data_ptr<float>()[i];
      magnitude += std::abs(input.data_ptr<float>()[i]);
    }
    ASSERT_NEAR(result.data_ptr<float>()[i], sum, tolerance * magnitude) << "element " << i;
  }
}

TEST(RingAllReduce, SumsOnEveryRankInAnyOrderOfEvents) {
  for (std::int32_t ranks : kRanks) {
    for (std::int64_t d : kSizes) {
      for (std::uint64_t seed = 0; seed < 4; ++seed) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, d = " << d << ", seed " << seed);
        const bool whole_numbers = seed % 2 == 1;
        const auto inputs = random_inputs(ranks, d, seed, whole_numbers);
        Ring ring({inputs}, seed);
        ring.run();
        for (std::size_t p = 0; p < inputs.size(); ++p) {
          ASSERT_EQ(ring.results(p).size(), 1U) << "position " << p << " did not finish";
          ASSERT_TRUE(bitwise_equal(ring.results(p)[0], ring.results(0)[0])) << "position " << p;
        }
        ASSERT_EQ(ring.results(0)[0].numel(), d);
        expect_sum(inputs, ring.results(0)[0], whole_numbers ? 0 : 1e-5);
      }
    }
  }
}

TEST(RingAllReduce, SendsExactlyTheBytesOfTheFormula) {
  for (std::int32_t ranks : kRanks) {
    for (std::int64_t d : kSizes) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, d = " << d);
      Ring ring({random_inputs(ranks, d, 1)}, 1);
      ring.run();
      std::uint64_t total = 0;
      for (std::int32_t p = 0; p < ranks; ++p) {
        const auto position = static_cast<std::size_t>(p);
        const std::int64_t elements =
            2 * d - slice_size(d, ranks, p + 1) - slice_size(d, ranks, p + 2);
        EXPECT_EQ(ring.bytes(position), static_cast<std::uint64_t>(4 * elements)) << p;
        EXPECT_EQ(ring.messages(position), 2 * (ranks - 1)) << p;
        if (d % ranks == 0) {
          EXPECT_EQ(elements, 2 * (ranks - 1) * d / ranks) << p;
        }
        total += ring.bytes(position);
      }
      EXPECT_EQ(total, static_cast<std::uint64_t>(8 * (ranks - 1) * d));
    }
  }
}

// Pieces that a slice of the largest size is to travel in.
std::int64_t pieces_of(std::int64_t d, std::int32_t ranks, std::int64_t piece_elements) {
  const std::int64_t slice = (d + ranks - 1) / ranks;
  return slice < 2 * piece_elements ? 1 : (slice + piece_elements - 1) / piece_elements;
}

// Random schedules that keep the order of each link; inputs of which sums round differently in
// every order.
TEST(RingAllReduce, PiecesChangeNoBitAndNoByte) {
  for (std::int32_t ranks : {1, 2, 3, 4, 5, 8}) {
    for (std::int64_t d : {0, 1, 5, 64, 997, 4096}) {
      const auto inputs = random_inputs(ranks, d, 40 + static_cast<std::uint64_t>(ranks));
      Ring whole({inputs}, 0, std::int64_t{1} << 40);
      whole.run();
      for (std::int64_t piece_elements : {1, 3, 16, 100}) {
        const auto seed = static_cast<std::uint64_t>(piece_elements + d);
        SCOPED_TRACE(testing::Message() << ranks << " ranks, d = " << d << ", pieces of "
                                        << piece_elements << ", seed " << seed);
        Ring cut({inputs}, seed, piece_elements);
        cut.run();
        for (std::size_t p = 0; p < inputs.size(); ++p) {
          ASSERT_EQ(cut.results(p).size(), 1U) << "position " << p << " did not finish";
          ASSERT_TRUE(bitwise_equal(cut.results(p)[0], whole.results(p)[0])) << "position " << p;
          EXPECT_EQ(cut.bytes(p), whole.bytes(p));
          EXPECT_EQ(cut.messages(p), 2 * (ranks - 1) * pieces_of(d, ranks, piece_elements));
          EXPECT_EQ(whole.messages(p), 2 * (ranks - 1));
        }
      }
    }
  }
}

TEST(RingAllReduce, PiecesSurviveASnapshotAtEveryPoint) {
  for (std::int32_t ranks : {2, 3, 4}) {
    constexpr std::uint64_t kSeed = 9;
    constexpr std::int64_t kPiece = 2;
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    const std::vector<std::vector<at::Tensor>> inputs = {random_inputs(ranks, 53, 1),
                                                         random_inputs(ranks, 53, 2)};
    Ring straight(inputs, kSeed, kPiece);
    int events = 0;
    while (straight.step()) ++events;
    for (int at_event = 0; at_event <= events; ++at_event) {
      Ring restored(inputs, kSeed, kPiece);
      for (int i = 0; i < at_event; ++i) restored.step();
      restored.restore_all();
      restored.run();
      for (std::size_t p = 0; p < inputs[0].size(); ++p) {
        ASSERT_EQ(restored.results(p).size(), 2U);
        for (std::size_t k = 0; k < 2; ++k)
          ASSERT_TRUE(bitwise_equal(restored.results(p)[k], straight.results(p)[k]))
              << "snapshot at event " << at_event << ", position " << p << ", operation " << k;
      }
    }
  }
}

TEST(RingAllReduce, SmallSlicesAreNotCut) {
  RingAllReduce reduce({0, 1}, 0, 0);
  EXPECT_EQ(reduce.start(at::zeros({4 * kRingPieceElements - 2})).size(), 1U);
  EXPECT_EQ(reduce.pieces(), 1);
  RingAllReduce large({0, 1}, 0, 0);
  EXPECT_EQ(large.start(at::zeros({4 * kRingPieceElements})).size(), 2U);
  EXPECT_EQ(large.pieces(), 2);
}

// A round-0 piece that comes lets the next one go, so that few are in flight however many there
// are.
TEST(RingAllReduce, OpensAWindowOfPieces) {
  RingAllReduce reduce({0, 1}, 0, 0, 1);
  std::size_t opened = reduce.start(at::zeros({200})).size();
  EXPECT_EQ(reduce.pieces(), 100);
  EXPECT_LT(opened, 10U);
  for (std::int32_t piece = 0; piece < 100; ++piece) {
    for (const auto& message :
         reduce.on_chunk({0, 0, 100 + piece, FrozenTensor::copy_of(at::ones({1}))}))
      opened += message.chunk.round == 0 ? 1 : 0;
    EXPECT_LT(opened, static_cast<std::size_t>(piece) + 10);
  }
  EXPECT_EQ(opened, 100U);
}

TEST(RingAllReduce, RefusesPiecesOutOfTurn) {
  const auto piece = [](std::int32_t round, std::int32_t index, std::int64_t n = 1) {
    return Chunk{0, round, index, FrozenTensor::copy_of(at::zeros({n}))};
  };
  RingAllReduce reduce({0, 1}, 0, 0, 1);  // slice 1 comes first: 2 pieces, index 2 and 3
  reduce.start(at::zeros({4}));
  EXPECT_THROW(reduce.on_chunk(piece(0, 3)), InvariantBroken) << "the second one first";
  EXPECT_THROW(reduce.on_chunk(piece(1, 0)), InvariantBroken) << "a round ahead";
  EXPECT_THROW(reduce.on_chunk(piece(2, 2)), InvariantBroken) << "no such round";
  EXPECT_THROW(reduce.on_chunk(piece(-1, 2)), InvariantBroken);
  EXPECT_THROW(reduce.on_chunk(piece(0, 2, 2)), InvariantBroken) << "size";
  reduce.on_chunk(piece(0, 2));
  EXPECT_THROW(reduce.on_chunk(piece(0, 2)), InvariantBroken) << "twice";
  EXPECT_THROW(RingAllReduce({0, 1}, 0, 0, 0), InvariantBroken);
}

TEST(RingAllReduce, FastNeighboursMayBeAnOperationAhead) {
  constexpr std::size_t kOperations = 5;
  std::size_t early = 0;
  for (std::int32_t ranks : kRanks) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed);
      std::vector<std::vector<at::Tensor>> inputs;
      for (std::size_t k = 0; k < kOperations; ++k)
        inputs.push_back(random_inputs(ranks, 37, mix_seed(seed, k), true));
      Ring ring(inputs, seed);
      ring.run();
      for (std::size_t p = 0; p < inputs[0].size(); ++p) {
        ASSERT_EQ(ring.results(p).size(), kOperations);
        for (std::size_t k = 0; k < kOperations; ++k) expect_sum(inputs[k], ring.results(p)[k], 0);
      }
      early += ring.early();
    }
  }
  EXPECT_GT(early, 100U) << "the schedules never exercised the inbox";
}

TEST(RingAllReduce, SurvivesASnapshotAtEveryPoint) {
  for (std::int32_t ranks : {1, 2, 3, 5}) {
    for (std::int64_t d : {0, 2, 17}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, d = " << d);
      const std::vector<std::vector<at::Tensor>> inputs = {random_inputs(ranks, d, 1),
                                                           random_inputs(ranks, d, 2)};
      constexpr std::uint64_t kSeed = 3;
      Ring straight(inputs, kSeed);
      int events = 0;
      while (straight.step()) ++events;
      for (int at_event = 0; at_event <= events; ++at_event) {
        Ring restored(inputs, kSeed);
        for (int i = 0; i < at_event; ++i) restored.step();
        restored.restore_all();
        restored.run();
        for (std::size_t p = 0; p < inputs[0].size(); ++p) {
          ASSERT_EQ(restored.results(p).size(), 2U);
          for (std::size_t k = 0; k < 2; ++k)
            ASSERT_TRUE(bitwise_equal(restored.results(p)[k], straight.results(p)[k]))
                << "snapshot at event " << at_event << ", position " << p << ", operation " << k;
        }
      }
    }
  }
}

TEST(RingAllReduce, SnapshotsDoNotFollowTheOperation) {
  RingAllReduce reduce({0, 1}, 0, 0);
  reduce.start(at::ones({4}));
  const StateDict state = save_state(reduce);
  reduce.on_chunk({0, 0, 1, FrozenTensor::copy_of(at::ones({2}))});
  EXPECT_TRUE(state.tensor("data")->equal(at::ones({4})));
  RingAllReduce other({0, 1}, 0, 0);
  ASSERT_TRUE(load_state(other, state).ok());
  other.on_chunk({0, 0, 1, FrozenTensor::copy_of(at::ones({2}))});
  EXPECT_TRUE(state.tensor("data")->equal(at::ones({4})));
}

// P = 3, position 0: round 0 and 1 sum, 1 also completes slice 1, 2 and 3 gather.
TEST(RingAllReduce, MakesNoNeedlessCopies) {
  RingAllReduce reduce({0, 1, 2}, 0, 0);
  at::Tensor input = at::ones({6});
  const void* memory = input.data_ptr();
  reduce.start(std::move(input));
  EXPECT_FALSE(input.defined());

  FrozenTensor received = FrozenTensor::copy_of(at::ones({2}));
  const void* received_memory = received.raw();
  auto out = reduce.on_chunk({0, 0, 2, std::move(received)});
  EXPECT_EQ(out.at(0).chunk.data.raw(), received_memory) << "summed in fresh memory";

  const FrozenTensor shared = FrozenTensor::copy_of(at::ones({2}));
  out = reduce.on_chunk({0, 1, 1, shared});
  EXPECT_NE(out.at(0).chunk.data.raw(), shared.raw()) << "wrote into a shared message";
  EXPECT_TRUE(shared.read().equal(at::ones({2})));
  EXPECT_TRUE(out.at(0).chunk.data.sole_owner());

  const FrozenTensor gathered = FrozenTensor::copy_of(at::full({2}, 3.0F));
  out = reduce.on_chunk({0, 2, 0, gathered});
  EXPECT_EQ(out.at(0).chunk.data.raw(), gathered.raw()) << "copied to pass on";
  EXPECT_TRUE(reduce.on_chunk({0, 3, 2, FrozenTensor::copy_of(at::full({2}, 3.0F))}).empty());

  ASSERT_TRUE(reduce.done());
  at::Tensor result = reduce.take_result();
  EXPECT_EQ(result.data_ptr(), memory) << "the result is not the input's memory";
  EXPECT_TRUE(result.equal(at::tensor({3.F, 3.F, 2.F, 2.F, 3.F, 3.F})));
  EXPECT_EQ(FrozenTensor::freeze(std::move(result)).raw(), memory) << "a handle was left behind";
}

TEST(RingAllReduce, RefusesWhatDoesNotBelongToIt) {
  const auto chunk = [](std::int64_t operation, std::int32_t round, std::int32_t index,
                        std::int64_t n) {
    return Chunk{operation, round, index, FrozenTensor::copy_of(at::zeros({n}))};
  };
  RingAllReduce reduce({0, 1, 2}, 0, 7);
  EXPECT_THROW(reduce.on_chunk(chunk(7, 0, 2, 2)), InvariantBroken) << "not started";
  EXPECT_THROW(reduce.take_result(), InvariantBroken);
  EXPECT_THROW(reduce.start(at::zeros({2, 3})), InvariantBroken);
  EXPECT_THROW(reduce.start(at::zeros({6}, at::kDouble)), InvariantBroken);
  reduce.start(at::zeros({6}));
  EXPECT_THROW(reduce.start(at::zeros({6})), InvariantBroken);
  EXPECT_THROW(reduce.on_chunk(chunk(8, 0, 2, 2)), InvariantBroken) << "operation";
  EXPECT_THROW(reduce.on_chunk(chunk(7, 1, 2, 2)), InvariantBroken) << "round";
  EXPECT_THROW(reduce.on_chunk(chunk(7, 0, 1, 2)), InvariantBroken) << "slice";
  EXPECT_THROW(reduce.on_chunk(chunk(7, 0, 2, 3)), InvariantBroken) << "size";
  EXPECT_THROW(reduce.on_chunk(Chunk{7, 0, 2, FrozenTensor()}), InvariantBroken) << "no data";
  EXPECT_THROW(reduce.on_chunk({7, 0, 2, FrozenTensor::copy_of(at::zeros({2}, at::kInt))}),
               InvariantBroken);
  EXPECT_EQ(reduce.on_chunk(chunk(7, 0, 2, 2)).size(), 1U) << "refusals must not count";
  EXPECT_THROW(RingAllReduce({0, 1, 0}, 0, 0), InvariantBroken);
  EXPECT_THROW(RingAllReduce({0, 1}, 2, 0), InvariantBroken);
  EXPECT_THROW(RingAllReduce({}, 0, 0), InvariantBroken);
}

TEST(RingAllReduce, RefusesStatesOfAnotherRing) {
  RingAllReduce reduce({0, 1, 2}, 1, 4);
  reduce.start(at::zeros({6}));
  const StateDict state = save_state(reduce);
  const auto error = [](RingAllReduce target, const StateDict& from) {
    const Expected<void> loaded = load_state(target, from);
    EXPECT_TRUE(target.started() || !loaded.ok());
    return loaded ? std::string() : loaded.error().message;
  };
  EXPECT_EQ(error(RingAllReduce({0, 1, 2}, 1, 4), state), "");
  EXPECT_THAT(error(RingAllReduce({0, 1}, 1, 4), state), HasSubstr("ring of 3"));
  EXPECT_THAT(error(RingAllReduce({0, 2, 1}, 1, 4), state), HasSubstr("same ranks"));
  EXPECT_THAT(error(RingAllReduce({0, 1, 2}, 2, 4), state), HasSubstr("position 1"));
  EXPECT_THAT(error(RingAllReduce({0, 1, 2}, 1, 5), state), HasSubstr("operation 4"));
  for (const at::Tensor& arrived :
       {at::tensor({-1, -1, -1, -1}, at::kInt), at::tensor({2, 0, 0, 0}, at::kInt),
        at::tensor({0, 1, 0, 0}, at::kInt), at::tensor({0, 0, 0}, at::kInt),
        at::tensor({0, 0, 0, 0}, at::kLong)}) {
    StateDict bad = state;
    bad.put("arrived", arrived);
    EXPECT_THAT(error(RingAllReduce({0, 1, 2}, 1, 4), bad), HasSubstr("do not fit"));
  }
  for (const char* entry : {"started", "pieces"}) {
    StateDict bad = state;
    bad.put(entry, std::int64_t{2});
    EXPECT_THAT(error(RingAllReduce({0, 1, 2}, 1, 4), bad), HasSubstr("do not fit"));
  }
  StateDict bad = state;
  bad.put("data", at::zeros({2, 3}));
  EXPECT_THAT(error(RingAllReduce({0, 1, 2}, 1, 4), bad), HasSubstr("do not fit"));
}

TEST(CollectiveInbox, GivesChunksBackByOperationInOrder) {
  CollectiveInbox inbox;
  for (std::int32_t round = 0; round < 3; ++round) {
    inbox.hold({5, round, 0, FrozenTensor::copy_of(at::full({1}, 1.0F * round))});
    inbox.hold({6, round, 1, FrozenTensor::copy_of(at::full({1}, 10.0F + round))});
  }
  EXPECT_TRUE(inbox.take(4).empty());
  CollectiveInbox loaded;
  ASSERT_TRUE(load_state(loaded, save_state(inbox)).ok());
  for (CollectiveInbox* box : {&inbox, &loaded}) {
    const std::vector<Chunk> chunks = box->take(5);
    ASSERT_EQ(chunks.size(), 3U);
    for (std::int32_t round = 0; round < 3; ++round) {
      const Chunk& chunk = chunks[static_cast<std::size_t>(round)];
      EXPECT_EQ(chunk.round, round);
      EXPECT_EQ(*chunk.data.data<float>(), static_cast<float>(round));
    }
    EXPECT_TRUE(box->take(5).empty());
    EXPECT_EQ(box->take(6).size(), 3U);
  }
}

TEST(CollectiveInbox, RefusesADamagedState) {
  CollectiveInbox inbox;
  inbox.hold({1, 2, 3, FrozenTensor::copy_of(at::zeros({1}))});
  const StateDict good = save_state(inbox);
  StateDict bad = good;
  bad.put("chunks", std::int64_t{2});
  EXPECT_FALSE(load_state(inbox, bad).ok());
  bad = good;
  bad.put("chunk0.round", std::int64_t{1} << 40);
  EXPECT_FALSE(load_state(inbox, bad).ok());
}

}  // namespace ring_all_reduce_test
}  // namespace grapevine
