#include "algorithms/collectives/direct_all_reduce.hpp"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "messages/random.hpp"

namespace grapevine {
namespace direct_all_reduce_test {

using testing::HasSubstr;

constexpr std::int64_t kPiece = 16;

std::vector<Rank> ranks_of(std::int32_t count) {
  std::vector<Rank> ranks;
  for (std::int32_t i = 0; i < count; ++i) ranks.push_back(7 + 3 * i);
  return ranks;
}

// All ranks in one thread, each one operation after the other; a seed decides what happens next.
class Ranks {
 public:
  Ranks(std::vector<std::vector<at::Tensor>> inputs, std::uint64_t seed)
      : inputs_(std::move(inputs)), rng_(mix_seed(seed, 1)) {
    count_ = static_cast<std::int32_t>(inputs_.front().size());
    nodes_.resize(static_cast<std::size_t>(count_));
    for (std::int32_t p = 0; p < count_; ++p) at(p).machine.emplace(machine(p, 0));
  }

  bool step() {
    std::vector<std::function<void()>> choices;
    for (std::int32_t p = 0; p < count_; ++p) {
      const DirectAllReduce& own = *at(p).machine;
      if (!own.started() && own.operation() < static_cast<std::int64_t>(inputs_.size()))
        choices.push_back([this, p] { start(p); });
    }
    for (auto& [pair, queue] : wires_)
      if (!queue.empty())
        choices.push_back([this, from = pair.first, to = pair.second] { deliver(from, to); });
    if (choices.empty()) return false;
    choices[rng_() % choices.size()]();
    return true;
  }
  void run() {
    while (step()) {
    }
  }

  void restore_all() {
    for (std::int32_t p = 0; p < count_; ++p) {
      DirectAllReduce copy = machine(p, at(p).machine->operation());
      const Expected<void> loaded = load_state(copy, save_state(*at(p).machine));
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      at(p).machine.emplace(std::move(copy));
    }
  }

  const std::vector<at::Tensor>& results(std::int32_t p) { return at(p).results; }
  DirectAllReduce& machine_of(std::int32_t p) { return *at(p).machine; }
  std::uint64_t bytes(std::int32_t p) { return at(p).bytes; }
  std::int64_t messages(std::int32_t p) { return at(p).messages; }
  std::int64_t most_ahead() const { return most_ahead_; }
  std::int64_t early() const { return early_; }

 private:
  struct Node {
    std::optional<DirectAllReduce> machine;
    CollectiveInbox inbox;
    std::vector<at::Tensor> results;
    std::uint64_t bytes = 0;
    std::int64_t messages = 0;
    std::map<Rank, std::int64_t> parts, sums;  // sent to, received from
  };

  Node& at(std::int32_t p) { return nodes_[static_cast<std::size_t>(p)]; }
  DirectAllReduce machine(std::int32_t p, std::int64_t operation) const {
    return DirectAllReduce(ranks_of(count_), p, operation, kPiece);
  }

  void start(std::int32_t p) {
    const std::int64_t operation = at(p).machine->operation();
    at(p).parts.clear();
    at(p).sums.clear();
    send(p, at(p).machine->start(
                inputs_[static_cast<std::size_t>(operation)][static_cast<std::size_t>(p)].clone()));
    for (Chunk& chunk : at(p).inbox.take(operation)) take(p, std::move(chunk));
    finish(p);
  }
  void deliver(std::int32_t from, std::int32_t to) {
    Chunk chunk = std::move(wires_[{from, to}].front());
    wires_[{from, to}].pop_front();
    const bool now = at(to).machine->started() && chunk.operation == at(to).machine->operation();
    if (!now) {
      ++early_;
      return at(to).inbox.hold(std::move(chunk));
    }
    take(to, std::move(chunk));
    finish(to);
  }
  void take(std::int32_t p, Chunk chunk) {
    if (chunk.round >= count_) ++at(p).sums[chunk.round - count_];
    send(p, at(p).machine->on_chunk(std::move(chunk)));
  }
  void finish(std::int32_t p) {
    if (!at(p).machine->done()) {
      EXPECT_FALSE(at(p).machine->awaited().empty());
      return;
    }
    EXPECT_TRUE(at(p).machine->awaited().empty());
    at(p).results.push_back(at(p).machine->take_result());
    at(p).machine.emplace(machine(p, at(p).machine->operation() + 1));
  }
  void send(std::int32_t p, std::vector<OutgoingChunk> out) {
    for (OutgoingChunk& message : out) {
      const std::int32_t to = (message.to - 7) / 3;
      ASSERT_NE(to, p);
      at(p).bytes += message.chunk.data.nbytes();
      ++at(p).messages;
      if (message.chunk.round < count_)
        most_ahead_ = std::max(most_ahead_, ++at(p).parts[to] - at(p).sums[to]);
      wires_[{p, to}].push_back(std::move(message.chunk));
    }
  }

  std::vector<std::vector<at::Tensor>> inputs_;
  std::int32_t count_ = 0;
  std::vector<Node> nodes_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::deque<Chunk>> wires_;
  Rng rng_;
  std::int64_t most_ahead_ = 0, early_ = 0;
};

std::vector<at::Tensor> random_inputs(std::int32_t ranks, std::int64_t d, std::uint64_t seed) {
  auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<at::Tensor> inputs;
  for (std::int32_t p = 0; p < ranks; ++p) inputs.push_back(at::randn({d}, generator, at::kFloat));
  return inputs;
}

// In float32, in the order of the ranks.
at::Tensor sum_in_order(const std::vector<at::Tensor>& inputs) {
  at::Tensor sum = inputs.front().clone();
  for (std::size_t p = 1; p < inputs.size(); ++p) sum = sum + inputs[p];
  return sum;
}

constexpr std::int32_t kRanks[] = {1, 2, 3, 4, 5, 8};
constexpr std::int64_t kSizes[] = {0, 1, 3, 100, 1000};

TEST(DirectAllReduce, IsTheSumInTheOrderOfRanksWhateverHappensFirst) {
  for (const std::int32_t ranks : kRanks)
    for (const std::int64_t d : kSizes)
      for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, d = " << d << ", seed " << seed);
        const std::vector<std::vector<at::Tensor>> inputs = {random_inputs(ranks, d, seed),
                                                             random_inputs(ranks, d, seed + 100)};
        Ranks world(inputs, seed);
        world.run();
        for (std::int32_t p = 0; p < ranks; ++p) {
          ASSERT_EQ(world.results(p).size(), 2u) << "position " << p << " did not finish";
          for (std::size_t op = 0; op < 2; ++op)
            ASSERT_TRUE(world.results(p)[op].equal(sum_in_order(inputs[op]))) << "position " << p;
        }
      }
}

TEST(DirectAllReduce, SendsTheBytesAndMessagesThatItSaysInAWindow) {
  std::int64_t early = 0;
  for (const std::int32_t ranks : {2, 3, 4, 8}) {
    const std::int64_t d = 2003;
    Ranks world({random_inputs(ranks, d, 1), random_inputs(ranks, d, 2)}, 3);
    world.run();
    const std::int64_t slice = (d + ranks - 1) / ranks, pieces = (slice + kPiece - 1) / kPiece;
    for (std::int32_t p = 0; p < ranks; ++p) {
      const std::int64_t own = d * (p + 1) / ranks - d * p / ranks;
      EXPECT_EQ(world.bytes(p),
                static_cast<std::uint64_t>(2 * 4 * ((d - own) + (ranks - 1) * own)));
      EXPECT_EQ(world.messages(p), 2 * 2 * (ranks - 1) * pieces);
    }
    EXPECT_EQ(world.most_ahead(), 4);
    early += world.early();
  }
  EXPECT_GT(early, 0) << "no rank was an operation ahead";
}

TEST(DirectAllReduce, SurvivesASnapshotAtEveryPoint) {
  for (const std::int32_t ranks : {2, 3, 5})
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, seed " << seed);
      const std::vector<std::vector<at::Tensor>> inputs = {random_inputs(ranks, 300, seed)};
      Ranks world(inputs, seed);
      do world.restore_all();
      while (world.step() && !HasFailure());
      for (std::int32_t p = 0; p < ranks; ++p) {
        ASSERT_EQ(world.results(p).size(), 1u);
        ASSERT_TRUE(world.results(p)[0].equal(sum_in_order(inputs[0])));
      }
    }
}

// One of three ranks, which has what was sent to it only where a test says so.
DirectAllReduce begun() {
  DirectAllReduce machine(ranks_of(3), 1, 5, kPiece);
  machine.start(at::ones({30}));
  return machine;
}

Chunk part_of(std::int32_t round, std::int32_t index, std::int64_t elements = 10) {
  return Chunk{5, round, index, FrozenTensor::freeze(at::ones({elements}))};
}

TEST(DirectAllReduce, RefusesWhatDoesNotBelongToIt) {
  for (const auto& [chunk, why] : std::vector<std::pair<Chunk, std::string>>{
           {part_of(1, 1), "round 1"},
           {part_of(4, 1), "round 4"},
           {part_of(6, 1), "round 6"},
           {part_of(-1, 1), "round -1"},
           {part_of(0, 0), "expected slice 1"},
           {part_of(3, 1), "expected slice 0"},
           {part_of(0, 1, 9), "expected 10 of float32"},
           {Chunk{4, 0, 1, FrozenTensor::freeze(at::ones({10}))}, "expected operation 5"},
           {Chunk{5, 0, 1, FrozenTensor()}, "expected 10 of float32"}}) {
    DirectAllReduce machine = begun();
    try {
      machine.on_chunk(chunk);
      ADD_FAILURE() << "accepted, instead of: " << why;
    } catch (const std::exception& problem) {
      EXPECT_THAT(problem.what(), HasSubstr(why));
    }
  }
  DirectAllReduce twice = begun();
  twice.on_chunk(part_of(0, 1));
  EXPECT_ANY_THROW(twice.on_chunk(part_of(0, 1)));
}

TEST(DirectAllReduce, RefusesDamagedStates) {
  DirectAllReduce machine = begun();
  machine.on_chunk(part_of(0, 1));
  const StateDict good = save_state(machine);
  const auto refused = [&](const std::function<void(StateDict&)>& damage) {
    StateDict state = good;
    damage(state);
    DirectAllReduce other(ranks_of(3), 1, 5, kPiece);
    return !load_state(other, state).ok();
  };
  EXPECT_FALSE(refused([](StateDict&) {}));
  EXPECT_TRUE(refused([](StateDict& s) { s.put("position", std::int64_t{2}); }));
  EXPECT_TRUE(refused([](StateDict& s) { s.put("operation", std::int64_t{6}); }));
  EXPECT_TRUE(refused([](StateDict& s) { s.put("pieces", std::int64_t{2}); }));
  EXPECT_TRUE(refused([](StateDict& s) { s.put("summed", std::int64_t{1}); }));
  EXPECT_TRUE(refused([](StateDict& s) { s.put("data", at::ones({24})); }));
  EXPECT_TRUE(refused([](StateDict& s) { s.put("data", at::ones({30}, at::kDouble)); }));
  EXPECT_TRUE(refused([](StateDict& s) { s.put("of.0.arrived", std::int64_t{0}); }));
  EXPECT_TRUE(refused([](StateDict& s) { s.put("of.1.arrived", std::int64_t{1}); }));
  EXPECT_TRUE(refused([](StateDict& s) { s.put("of.0.parts.0.data", at::ones({9})); }));
}

// Ranks that share memory receive one sum; no part of another rank is copied.
TEST(DirectAllReduce, MakesNoNeedlessCopies) {
  DirectAllReduce machine(ranks_of(3), 0, 5, kPiece);
  machine.start(at::ones({30}));
  EXPECT_TRUE(machine.on_chunk(part_of(1, 0)).empty());
  const auto out = machine.on_chunk(part_of(2, 0));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[0].chunk.data.read().data_ptr(), out[1].chunk.data.read().data_ptr());
  EXPECT_TRUE(out[0].chunk.data.read().equal(at::full({10}, 3.0F)));
}

}  // namespace direct_all_reduce_test
}  // namespace grapevine
