// Partial collectives (Li et al. 2020): whatever the order of arrivals, nothing is lost or counted
// twice, and all ranks get the same.
#include "algorithms/collectives/partial_all_reduce.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>

#include "messages/random.hpp"

namespace grapevine {
namespace partial_all_reduce_test {

constexpr std::int32_t kRanks[] = {1, 2, 3, 5, 6, 7, 8};

// ---- Recursive doubling

// All ranks of one operation; a seed decides whose message comes next.
std::vector<at::Tensor> add_up(const std::vector<at::Tensor>& inputs, std::uint64_t seed,
                               bool restore) {
  const auto ranks = static_cast<std::int32_t>(inputs.size());
  Rng rng(seed);
  std::vector<RecursiveDoubling> nodes;
  std::map<std::pair<Rank, Rank>, std::deque<Chunk>> wires;
  const auto send = [&](Rank from, std::vector<OutgoingChunk> chunks) {
    for (OutgoingChunk& m : chunks) wires[{from, m.to}].push_back(std::move(m.chunk));
  };
  for (Rank r = 0; r < ranks; ++r) nodes.emplace_back(all_ranks(ranks), r, 7);
  std::vector<Rank> to_start = all_ranks(ranks);
  for (;;) {
    std::vector<std::pair<Rank, Rank>> ready;
    for (auto& [pair, queue] : wires)
      if (!queue.empty() && nodes[static_cast<std::size_t>(pair.second)].started())
        ready.push_back(pair);
    if (ready.empty() && to_start.empty()) break;
    if (!to_start.empty() && (ready.empty() || rng() % 2 == 0)) {
      std::swap(to_start[rng() % to_start.size()], to_start.back());
      const Rank r = to_start.back();
      to_start.pop_back();
      send(r, nodes[static_cast<std::size_t>(r)].start(inputs[static_cast<std::size_t>(r)]));
    } else {
      const auto pair = ready[rng() % ready.size()];
      Chunk chunk = std::move(wires[pair].front());
      wires[pair].pop_front();
      RecursiveDoubling& node = nodes[static_cast<std::size_t>(pair.second)];
      if (restore) {
        RecursiveDoubling fresh(all_ranks(ranks), pair.second, 7);
        const auto loaded = load_state(fresh, save_state(node));
        EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
        node = std::move(fresh);
      }
      send(pair.second, node.on_chunk(std::move(chunk)));
    }
  }
  std::vector<at::Tensor> results;
  for (RecursiveDoubling& node : nodes) {
    EXPECT_TRUE(node.done());
    results.push_back(node.take_result());
  }
  return results;
}

TEST(RecursiveDoubling, AddsUpBitwiseAlikeForAnyNumberOfRanks) {
  for (std::int32_t n = 1; n <= 17; ++n)
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      SCOPED_TRACE("n=" + std::to_string(n) + ", seed=" + std::to_string(seed));
      auto generator = at::make_generator<at::CPUGeneratorImpl>(seed);
      std::vector<at::Tensor> inputs;
      at::Tensor expected = at::zeros({9}, at::kDouble);
      for (std::int32_t r = 0; r < n; ++r) {
        inputs.push_back(at::randn({9}, generator, at::TensorOptions(at::kFloat)));
        expected += inputs.back().to(at::kDouble);
      }
      for (const bool restore : {false, true}) {
        const auto results = add_up(inputs, seed, restore);
        for (const at::Tensor& result : results) {
          EXPECT_TRUE(at::equal(result, results.front()));
          EXPECT_TRUE(at::allclose(result.to(at::kDouble), expected, 1e-5, 1e-5));
        }
      }
    }
}

TEST(RecursiveDoubling, RefusesWhatNobodyCanHaveSent) {
  RecursiveDoubling node(all_ranks(4), 0, 3);
  EXPECT_ANY_THROW(node.on_chunk({3, 1, 0, FrozenTensor::copy_of(at::zeros({2}))}));
  node.start(at::zeros({2}));
  EXPECT_ANY_THROW(node.on_chunk({4, 1, 0, FrozenTensor::copy_of(at::zeros({2}))}));
  EXPECT_ANY_THROW(node.on_chunk({3, 0, 0, FrozenTensor::copy_of(at::zeros({2}))}));
  EXPECT_ANY_THROW(node.on_chunk({3, 9, 0, FrozenTensor::copy_of(at::zeros({2}))}));
  EXPECT_ANY_THROW(node.on_chunk({3, 1, 0, FrozenTensor::copy_of(at::zeros({3}))}));
  node.on_chunk({3, 1, 0, FrozenTensor::copy_of(at::zeros({2}))});
  EXPECT_ANY_THROW(node.on_chunk({3, 1, 0, FrozenTensor::copy_of(at::zeros({2}))}));
}

// ---- Partial all-reduce

struct Policy {
  const char* name;
  Trigger::Kind kind;
  std::int32_t count = 1;  // of a quorum
};

// All ranks in one thread, round after round. A rank posts when it pleases the seed, with a pending
// sum of whole numbers; it contributes what is pending when a round begins.
class PartialWorld {
 public:
  PartialWorld(std::int32_t ranks, Policy policy, std::int64_t rounds, std::uint64_t seed,
               bool restore = false)
      : ranks_(ranks),
        policy_(policy),
        rounds_(rounds),
        seed_(seed),
        restore_(restore),
        rng_(mix_seed(seed, 3)) {
    for (Rank r = 0; r < ranks; ++r) {
      nodes_.emplace_back();
      begin(r);
    }
  }

  // Until nothing is in flight and no rank may produce: the end, or ranks that wait for ever.
  void run() {
    while (in_flight_ > 0 || can_produce()) step();
  }

  // Ranks come one after the other, from rank 0, until the round is over: who is later stays away.
  void run_separated() {
    for (std::int64_t round = 0; round < rounds_; ++round)
      for (Rank r = 0; r < ranks_ && nodes_[0].round == round; ++r) {
        produce(r);
        while (deliver_any()) continue;
      }
  }

  std::int32_t initiator(std::int64_t round) const {
    return static_cast<std::int32_t>(mix_seed(seed_, static_cast<std::uint64_t>(round)) %
                                     static_cast<std::uint64_t>(ranks_));
  }

  struct Node {
    std::optional<PartialAllReduce> reduce;
    std::int64_t round = 0;
    std::int64_t produced_in = -1;  // the round in which it was last ready
    CollectiveInbox early;
    std::map<std::int64_t, std::vector<Activate>> early_activations;
    at::Tensor pending = at::zeros({3});
    std::int64_t pending_count = 0;
    at::Tensor produced = at::zeros({3}, at::kDouble);
    std::int64_t produced_count = 0;
    std::vector<at::Tensor> sums;
    std::vector<std::vector<std::int64_t>> tallies;
    std::vector<bool> was_ready;  // had posted when its round began, by round
  };
  const Node& node(Rank r) const { return nodes_[static_cast<std::size_t>(r)]; }
  std::int64_t rounds() const { return rounds_; }
  // Contributions that came after their rank had given to the round without them.
  std::int64_t late() const { return late_; }

 private:
  void step() {
    const Rank r = static_cast<Rank>(rng_() % static_cast<std::uint64_t>(ranks_));
    // Ranks differ in speed by a factor of 8.
    const bool ready = rng_() % 8 <= static_cast<std::uint64_t>(r) % 8;
    if (ready || !deliver_any()) produce(r);
  }

  bool deliver_any() {
    if (in_flight_ == 0) return false;
    std::vector<std::pair<Rank, Rank>> ready;
    for (auto& [pair, queue] : wires_)
      if (!queue.empty()) ready.push_back(pair);
    deliver(ready[rng_() % ready.size()]);
    return true;
  }

  // Every state that messages can meet goes through a checkpoint.
  void save_and_load(Rank r) {
    Node& node = nodes_[static_cast<std::size_t>(r)];
    PartialAllReduce fresh(all_ranks(ranks_), r, node.round, trigger(node.round));
    const auto loaded = load_state(fresh, save_state(*node.reduce, 0.0), 0.0);
    EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
    node.reduce.emplace(std::move(fresh));
  }

  Trigger trigger(std::int64_t round) const {
    Trigger trigger{policy_.kind, 0, policy_.count};
    if (policy_.kind == Trigger::Kind::initiator) trigger.position = initiator(round);
    if (policy_.kind == Trigger::Kind::quorum)
      trigger.position = static_cast<std::int32_t>(round % ranks_);
    return trigger;
  }

  bool over(const Node& node) const { return node.round >= rounds_; }
  bool may_produce(const Node& node) const { return !over(node) && node.produced_in != node.round; }
  bool can_produce() const {
    return std::any_of(nodes_.begin(), nodes_.end(),
                       [this](const Node& node) { return may_produce(node); });
  }

  void produce(Rank r) {
    Node& node = nodes_[static_cast<std::size_t>(r)];
    if (!may_produce(node)) return;
    node.produced_in = node.round;
    late_ += node.reduce->contributed();
    const auto value = static_cast<double>(rng_() % 1000);
    node.pending += value;
    node.produced += value;
    ++node.pending_count;
    ++node.produced_count;
    if (!node.reduce->contributed()) send(r, node.reduce->post());
    contribute(r);
  }

  void deliver(std::pair<Rank, Rank> pair) {
    Payload payload = std::move(wires_[pair].front());
    wires_[pair].pop_front();
    --in_flight_;
    const Rank r = pair.second;
    Node& node = nodes_[static_cast<std::size_t>(r)];
    if (restore_) save_and_load(r);
    if (const auto* activate = std::get_if<Activate>(&payload)) {
      if (activate->operation < node.round || over(node)) return;
      if (activate->operation > node.round)
        return node.early_activations[activate->operation].push_back(*activate);
      send(r, node.reduce->on_activate(*activate));
    } else {
      Chunk chunk = std::move(std::get<Chunk>(payload));
      if (PartialAllReduce::operation_of(chunk) != node.round)
        return node.early.hold(std::move(chunk));
      send(r, node.reduce->on_message(pair.first, std::move(chunk)));
    }
    contribute(r);
  }

  void contribute(Rank r) {
    Node& node = nodes_[static_cast<std::size_t>(r)];
    if (node.reduce->begun() && !node.reduce->contributed()) {
      node.was_ready.push_back(node.reduce->posted());
      at::Tensor value = std::exchange(node.pending, at::zeros({3}));
      send(r, node.reduce->contribute(std::move(value), std::exchange(node.pending_count, 0), 0,
                                      rng_));
    }
    if (!node.reduce->done()) return;
    auto result = node.reduce->take_result();
    node.sums.push_back(result.sum);
    node.tallies.push_back(result.tally);
    ++node.round;
    begin(r);
  }

  void begin(Rank r) {
    Node& node = nodes_[static_cast<std::size_t>(r)];
    node.reduce.emplace(all_ranks(ranks_), r, node.round, trigger(node.round));
    for (const Activate& activate : std::exchange(node.early_activations[node.round], {}))
      send(r, node.reduce->on_activate(activate));
    node.early_activations.erase(node.round);
    for (const std::int64_t part : {2 * node.round, 2 * node.round + 1})
      for (Chunk& chunk : node.early.take(part))
        send(r, node.reduce->on_message(r, std::move(chunk)));
    if (node.reduce->begun()) contribute(r);
  }

  void send(Rank from, std::vector<OutgoingMessage> messages) {
    in_flight_ += static_cast<std::int64_t>(messages.size());
    for (OutgoingMessage& m : messages) wires_[{from, m.to}].push_back(std::move(m.payload));
  }

  const std::int32_t ranks_;
  const Policy policy_;
  const std::int64_t rounds_;
  const std::uint64_t seed_;
  const bool restore_;
  Rng rng_;
  std::int64_t late_ = 0;
  std::deque<Node> nodes_;
  std::map<std::pair<Rank, Rank>, std::deque<Payload>> wires_;
  std::int64_t in_flight_ = 0;  // messages on the wires
};

std::vector<Policy> policies(std::int32_t n) {
  return {{"solo", Trigger::Kind::first_ready},
          {"majority", Trigger::Kind::initiator},
          {"quorum", Trigger::Kind::quorum, (n + 1) / 2},
          {"all", Trigger::Kind::quorum, n}};
}

void expect_same_on_all_ranks(const PartialWorld& world, std::int32_t n) {
  for (Rank r = 0; r < n; ++r) {
    ASSERT_EQ(world.node(r).round, world.rounds()) << "rank " << r << " has not come to the end";
    for (std::size_t i = 0; i < world.node(r).sums.size(); ++i) {
      ASSERT_TRUE(at::equal(world.node(r).sums[i], world.node(0).sums[i])) << "round " << i;
      ASSERT_EQ(world.node(r).tallies[i], world.node(0).tallies[i]) << "round " << i;
    }
  }
}

// What went into rounds and what is pending is what was produced, to the last bit; per rank, too.
void expect_conservation(const PartialWorld& world, std::int32_t n) {
  at::Tensor produced = at::zeros({3}, at::kDouble), found = at::zeros({3}, at::kDouble);
  for (Rank r = 0; r < n; ++r) {
    produced += world.node(r).produced;
    found += world.node(r).pending.to(at::kDouble);
    std::int64_t consumed = world.node(r).pending_count;
    for (const auto& tally : world.node(0).tallies) consumed += tally[static_cast<std::size_t>(r)];
    EXPECT_EQ(consumed, world.node(r).produced_count) << "rank " << r;
  }
  for (const at::Tensor& sum : world.node(0).sums) found += sum.to(at::kDouble);
  EXPECT_TRUE(at::equal(produced, found));
}

TEST(PartialAllReduce, ConservesEveryContributionOverThousandsOfRounds) {
  constexpr std::int64_t kRounds = 5'200;
  for (const std::int32_t n : kRanks) {
    SCOPED_TRACE("n=" + std::to_string(n) + ", solo, seed=1");
    PartialWorld world(n, policies(n)[0], kRounds, 1);
    world.run();
    expect_same_on_all_ranks(world, n);
    expect_conservation(world, n);
    if (n > 1) {
      EXPECT_GT(world.late(), 100) << "nothing was ever pending: nothing is tested";
    }
  }
}

TEST(PartialAllReduce, ConservesUnderEveryPolicy) {
  for (const std::int32_t n : kRanks)
    for (const Policy& policy : policies(n))
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        SCOPED_TRACE("n=" + std::to_string(n) + ", " + policy.name +
                     ", seed=" + std::to_string(seed));
        PartialWorld world(n, policy, 200, seed);
        world.run();
        expect_same_on_all_ranks(world, n);
        expect_conservation(world, n);
      }
}

std::int64_t active(const std::vector<std::int64_t>& tally) {
  return std::count_if(tally.begin(), tally.end(), [](std::int64_t n) { return n > 0; });
}

TEST(PartialAllReduce, EveryRoundHasTheRanksThatItsPolicyPromises) {
  for (const std::int32_t n : kRanks)
    for (const Policy& policy : policies(n)) {
      SCOPED_TRACE("n=" + std::to_string(n) + ", " + policy.name + ", seed=5");
      PartialWorld world(n, policy, 400, 5);
      world.run();
      for (std::size_t round = 0; round < world.node(0).tallies.size(); ++round) {
        const auto& tally = world.node(0).tallies[round];
        std::int64_t ready = 0;
        for (Rank r = 0; r < n; ++r) ready += world.node(r).was_ready[round];
        EXPECT_GE(active(tally), policy.count) << "round " << round;
        EXPECT_GE(active(tally), ready) << "round " << round;
        if (policy.kind == Trigger::Kind::initiator) {
          const auto initiator =
              static_cast<std::size_t>(world.initiator(static_cast<std::int64_t>(round)));
          EXPECT_GT(tally[initiator], 0) << "round " << round << " began without its initiator";
        }
      }
    }
}

// Li et al. 2020, section 5.2: the initiator is uniform, so (P + 1)/2 ranks take part in the mean,
// with a variance of (P^2 - 1)/12.
TEST(PartialAllReduce, MajorityHasHalfOfSeparatedRanksInTheMean) {
  constexpr std::int64_t kRounds = 600;
  for (const std::int32_t n : {2, 5, 8}) {
    SCOPED_TRACE("n=" + std::to_string(n) + ", seed=9");
    PartialWorld world(n, {"majority", Trigger::Kind::initiator}, kRounds, 9);
    world.run_separated();
    ASSERT_EQ(world.node(0).round, kRounds);
    double sum = 0;
    for (std::int64_t round = 0; round < kRounds; ++round) {
      const auto there = active(world.node(0).tallies[static_cast<std::size_t>(round)]);
      EXPECT_EQ(there, world.initiator(round) + 1) << "round " << round;
      sum += static_cast<double>(there);
    }
    const double deviation = std::sqrt((n * n - 1) / 12.0 / kRounds);
    EXPECT_NEAR(sum / kRounds, (n + 1) / 2.0, 4 * deviation);
  }
}

TEST(PartialAllReduce, SavedInAnyStateItGoesOnAlike) {
  for (const std::int32_t n : {1, 3, 4, 7})
    for (const Policy& policy : policies(n)) {
      SCOPED_TRACE("n=" + std::to_string(n) + ", " + policy.name + ", seed=2");
      PartialWorld straight(n, policy, 60, 2), restored(n, policy, 60, 2, true);
      straight.run();
      restored.run();
      expect_same_on_all_ranks(restored, n);
      expect_conservation(restored, n);
      for (std::size_t round = 0; round < 60; ++round)
        EXPECT_TRUE(at::equal(straight.node(0).sums[round], restored.node(0).sums[round]));
    }
}

}  // namespace partial_all_reduce_test
}  // namespace grapevine
