#include "algorithms/collectives/exact_reduction.hpp"

#include <optional>
#include <utility>
#include <variant>

#include "algorithms/collectives/direct_all_reduce.hpp"
#include "algorithms/collectives/recursive_doubling.hpp"
#include "algorithms/collectives/reduction.hpp"
#include "algorithms/collectives/ring_all_reduce.hpp"
#include "algorithms/collectives/slices.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

using Outgoing = std::vector<OutgoingMessage>;

// One operation of one rank, by any of the algorithms; in the order of ExactReduce.
using AllReduce = std::variant<RingAllReduce, DirectAllReduce, RecursiveDoubling>;

AllReduce make_all_reduce(ExactReduce algorithm, const std::vector<Rank>& ranks,
                          std::int32_t position, std::int64_t operation,
                          const RecycledMemory& memory) {
  switch (algorithm) {
    case ExactReduce::direct:
      return DirectAllReduce(ranks, position, operation, kRingPieceElements, memory);
    case ExactReduce::doubling:
      return RecursiveDoubling(ranks, position, operation, memory);
    case ExactReduce::ring:
      return RingAllReduce(ranks, position, operation, kRingPieceElements, memory);
    case ExactReduce::automatic:
      break;
  }
  GRAPEVINE_CHECK(false, "no all-reduce was chosen");
}

class ExactReduction final : public Reduction {
 public:
  ExactReduction(std::vector<Rank> ranks, std::int32_t position, std::int64_t d,
                 ExactReduce algorithm, RecycledMemory memory)
      : ranks_(std::move(ranks)),
        position_(position),
        d_(d),
        algorithm_(algorithm),
        memory_(std::move(memory)) {}

  Outgoing start(std::int64_t operation, double, at::Tensor&& vector, Rng&) override {
    operation_ = operation;
    all_reduce_.emplace(
        make_all_reduce(way_for(vector.numel()), ranks_, position_, operation, memory_));
    Outgoing out =
        std::visit([&](auto& sum) { return sent(sum.start(std::move(vector))); }, *all_reduce_);
    for (Chunk& chunk : early_.take(operation)) append(out, take(std::move(chunk)));
    return out;
  }

  Outgoing on_message(Rank from, Payload payload) override {
    auto* chunk = std::get_if<Chunk>(&payload);
    GRAPEVINE_CHECK(chunk != nullptr, "rank ", from,
                    " sent all-reduce a message that is not a chunk");
    Outgoing out;
    if (all_reduce_ && chunk->operation == operation_)
      append(out, take(std::move(*chunk)));
    else
      early_.hold(std::move(*chunk));
    return out;
  }

  bool running() const override { return all_reduce_.has_value(); }
  bool done() const override {
    return all_reduce_ && std::visit([](const auto& sum) { return sum.done(); }, *all_reduce_);
  }
  std::vector<Awaited> awaited() const override {
    return std::visit([](const auto& sum) { return sum.awaited(); }, *all_reduce_);
  }

  at::Tensor take_sum() override {
    at::Tensor sum = std::visit([](auto& running) { return running.take_result(); }, *all_reduce_);
    all_reduce_.reset();
    return sum;
  }

  bool take_back() override {
    all_reduce_.reset();
    early_ = {};
    return false;
  }

  void fields(Archive& a, std::int64_t operation, double) override {
    if (a.loads() && a.has("ring"))
      a.fail(
          bad_input("the saved sum is of an earlier version of this program, which was amid an "
                    "exchange: resume with that version, or from another checkpoint"));
    if (is_present(a, operation)) {
      std::visit([&](auto& sum) { a.part("all_reduce", sum); }, *all_reduce_);
      if (a.loads() && !fits(a))
        a.fail(bad_input(
            "the saved sum is of another model: the checkpoint is damaged, resume from another "
            "one"));
      else if (a.loads() && !is_as_chosen())
        a.fail(bad_input(
            "the saved sum was begun by another all-reduce than this version of the program "
            "chooses: resume with that version, or from another checkpoint"));
    }
    a.part("early", early_);
  }

 private:
  static Outgoing sent(std::vector<OutgoingChunk> chunks) {
    Outgoing out;
    append(out, std::move(chunks));
    return out;
  }
  std::vector<OutgoingChunk> take(Chunk chunk) {
    return std::visit([&](auto& sum) { return sum.on_chunk(std::move(chunk)); }, *all_reduce_);
  }

  ExactReduce way_for(std::int64_t elements) const {
    return all_reduce_for(algorithm_, static_cast<std::int32_t>(ranks_.size()),
                          elements * std::int64_t{sizeof(float)});
  }

  // Whether an operation is running. Loading makes it, by the algorithm of the saved one: that of
  // its size, which the saved entries tell only later.
  bool is_present(Archive& a, std::int64_t operation) {
    const bool is_there = a.loads() ? a.has("all_reduce") : running();
    if (a.loads()) all_reduce_.reset();
    if (!is_there) return false;
    auto chosen = all_reduce_ ? static_cast<ExactReduce>(all_reduce_->index()) : algorithm_;
    if (algorithm_ == ExactReduce::automatic) a.one_of("way", chosen, ExactReduce::doubling);
    if (!a.loads() || !a.ok()) return running();
    operation_ = operation;
    all_reduce_.emplace(make_all_reduce(chosen, ranks_, position_, operation, memory_));
    return true;
  }

  // Whether what was loaded is a vector of this sum.
  bool fits(Archive& a) const {
    at::Tensor values;
    if (std::holds_alternative<RecursiveDoubling>(*all_reduce_)) a.values("all_reduce.sum", values);
    if (values.defined() && !is_flat_float(values)) return false;
    return std::visit(
        [this](const auto& sum) {
          const std::int64_t elements = sum.elements();
          return sum.started() && (d_ < 0 || elements == d_);
        },
        *all_reduce_);
  }

  // Ranks that have not begun the operation would take another one than those that have.
  bool is_as_chosen() const {
    const std::int64_t elements =
        std::visit([](const auto& sum) { return sum.elements(); }, *all_reduce_);
    return all_reduce_->index() == static_cast<std::size_t>(way_for(elements));
  }

  const std::vector<Rank> ranks_;
  const std::int32_t position_;
  const std::int64_t d_;
  const ExactReduce algorithm_;
  const RecycledMemory memory_;          // of the sums that are sent
  std::int64_t operation_ = -1;          // the newest that was started
  std::optional<AllReduce> all_reduce_;  // of the operation that is running
  CollectiveInbox early_;
};

}  // namespace

ExactReduce all_reduce_for(ExactReduce algorithm, std::int32_t ranks, std::int64_t bytes) {
  if (algorithm != ExactReduce::automatic) return algorithm;
  std::int32_t rounds = 0;  // of doubling
  while ((std::int64_t{2} << rounds) <= ranks) ++rounds;
  if ((std::int64_t{1} << rounds) != ranks) rounds += 2;
  if (rounds * bytes <= kMostShortBytes) return ExactReduce::doubling;
  return ranks <= kFewRanks ? ExactReduce::direct : ExactReduce::ring;
}

std::unique_ptr<Reduction> make_exact_reduction(std::vector<Rank> ranks, std::int32_t position,
                                                std::int64_t d, ExactReduce algorithm,
                                                RecycledMemory memory) {
  return std::make_unique<ExactReduction>(std::move(ranks), position, d, algorithm,
                                          std::move(memory));
}

}  // namespace grapevine
