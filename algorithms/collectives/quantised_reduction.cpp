// Quantised all-reduce: reduce-scatter by direct messages, then all-gather, both of packed slices.
//
//   e_i <- e_i + g_i;  rank i sends C(slice j of e_i) to each rank j;  e_i <- e_i - what it sent
//   owner j:  s <- sum of the slices j by rank, + E_j;  sends C(s) to all;  E_j <- s - C(s)
//
// Each number is rounded twice, whatever the number of ranks: a ring would round each partial sum.
// Both roundings are kept (Tang et al. 2019, DoubleSqueeze), unless error feedback is off.
// Bytes sent per rank: 2(P-1)/P of a packed vector: with b bytes for a number, b/4 of the dense
// ring at every P. Messages: 2(P-1). Staleness: 0.
#include <ATen/ATen.h>

#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "algorithms/collectives/packed_collective.hpp"
#include "algorithms/collectives/reduction.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

using Outgoing = std::vector<OutgoingMessage>;

class QuantisedReduction final : public Reduction {
 public:
  QuantisedReduction(const ReductionSettings& settings, std::vector<Rank> ranks,
                     std::int32_t position, std::int64_t d, at::Device device)
      : ranks_(std::move(ranks)),
        position_(position),
        d_(d),
        options_(at::TensorOptions(at::kFloat).device(device)),
        compressor_(make_compressor(settings.compression)),
        keeps_residuals_(settings.compression.error_feedback),
        total_feedback_(of_totals(settings)) {
    for (std::size_t slice = 0; slice < ranks_.size(); ++slice)
      feedback_.emplace_back(feedback_of(settings));
  }

  Outgoing start(std::int64_t operation, double epoch, at::Tensor&& vector, Rng& rng) override {
    const bool from_residual = !vector.defined();
    if (from_residual) vector = at::empty({d_}, options_);
    GRAPEVINE_CHECK(vector.numel() == d_, "a vector of ", vector.numel(), " instead of ", d_);
    operation_ = operation;
    totalled_ = false;
    epoch_ = epoch;
    draws_ = static_cast<std::int64_t>(rng());
    memory_ = std::move(vector);
    vector = at::Tensor();
    Outgoing out;
    given_.clear();
    for (std::int32_t slice = 0; slice < size(); ++slice) {
      at::Tensor part = from_residual ? at::Tensor() : part_of(slice);
      given_.push_back(feedback_of_slice(slice).pack(part, *compressor_, epoch, rng));
      send(out, slice, kScatter, given_.back());
    }
    send_total_if_complete(out);
    return out;
  }

  Outgoing on_message(Rank from, Payload payload) override {
    auto* chunk = std::get_if<PackedChunk>(&payload);
    GRAPEVINE_CHECK(chunk != nullptr && is_from(ranks_, *chunk, from), "rank ", from,
                    " sent compressed all-reduce a message that is not its vector");
    GRAPEVINE_CHECK((chunk->round == kScatter || chunk->round == kGather) &&
                        (!running() || chunk->operation >= *operation_),
                    "rank ", from, " sent a slice of round ", chunk->round, " of operation ",
                    chunk->operation);
    keep(*chunk);
    Outgoing out;
    send_total_if_complete(out);
    return out;
  }

  bool running() const override { return operation_.has_value(); }
  bool done() const override { return running() && totalled_ && has_all(kGather); }

  std::vector<Awaited> awaited() const override {
    std::vector<Awaited> missing;
    const std::int32_t round = totalled_ ? kGather : kScatter;
    for (std::int32_t sender = 0; sender < size(); ++sender)
      if (parts_.count({*operation_, round, sender}) == 0)
        missing.push_back(
            {ranks_[static_cast<std::size_t>(sender)], PayloadKind::packed_chunk, *operation_});
    return missing;
  }

  at::Tensor take_sum() override {
    for (std::int32_t slice = 0; slice < size(); ++slice) {
      at::Tensor part = part_of(slice).zero_();
      unpack(part, kGather, slice);
    }
    return take_sum_memory();
  }

  bool take_back() override {
    const bool runs = running();
    parts_.clear();
    if (!runs) return false;
    for (std::int32_t slice = 0; slice < size(); ++slice)
      feedback_of_slice(slice).give_back(given_[static_cast<std::size_t>(slice)], *compressor_);
    if (totalled_ && keeps_residuals_) total_feedback_.set_residual(before_total_);
    static_cast<void>(take_sum_memory());
    return keeps_residuals_;
  }

  // The total of this rank's slice is part of the result, with E_j as it was left.
  void count_as_given() override {
    parts_.clear();
    if (running()) static_cast<void>(take_sum_memory());
  }

  // As one vector: slices depend on the number of ranks. What this rank owes of its slice's total
  // is given with its own values from now on.
  void kept_fields(Archive& a) override {
    at::Tensor residual = a.loads() ? at::Tensor() : residual_in_all();
    at::Tensor velocity = joined(&ErrorFeedback::velocity);
    a.vector("residual", residual, d_);
    a.vector("velocity", velocity, d_);
    if (!a.loads() || !a.ok()) return;
    for (std::int32_t slice = 0; slice < size(); ++slice) {
      feedback_of_slice(slice).set_residual(slice_of(residual, slice));
      feedback_of_slice(slice).set_velocity(slice_of(velocity, slice));
    }
  }

  at::Tensor take_residual() override {
    at::Tensor residual = residual_in_all();
    for (ErrorFeedback& feedback : feedback_) feedback.set_residual(at::Tensor());
    total_feedback_.set_residual(at::Tensor());
    return residual;
  }

  void fields(Archive& a, std::int64_t operation, double epoch) override {
    bool runs = running();
    a.flag("running", runs);
    if (a.loads()) operation_ = runs ? std::optional(operation) : std::nullopt;
    if (a.loads()) epoch_ = epoch;
    if (runs) {
      a.needs("memory");
      a.vector("memory", memory_, d_);
    }
    a.flag("totalled", totalled_);
    a.whole("draws", draws_);
    if (runs) given_fields(a);
    a.vector("before_total", before_total_, size_of(position_));
    parts_fields(a);
    for (std::int32_t slice = 0; slice < size(); ++slice)
      a.part("feedback." + std::to_string(slice), feedback_of_slice(slice), size_of(slice));
    a.part("total", total_feedback_, size_of(position_));
    for (std::int32_t slice = 0; runs && keeps_residuals_ && slice < size(); ++slice)
      a.require(feedback_of_slice(slice).residual().defined(), "feedback." + std::to_string(slice),
                "has no residual");
  }

 private:
  static constexpr std::int32_t kScatter = 0, kGather = 1;
  struct Key {
    std::int64_t operation = 0;
    std::int32_t round = 0, sender = 0;
    bool operator<(const Key& other) const {
      return std::tie(operation, round, sender) <
             std::tie(other.operation, other.round, other.sender);
    }
  };

  // Momentum works on what the ranks give, not on totals.
  static ErrorFeedbackSettings of_totals(const ReductionSettings& settings) {
    ErrorFeedbackSettings feedback = feedback_of(settings);
    feedback.momentum = 0;
    return feedback;
  }

  at::Tensor take_sum_memory() {
    operation_.reset();
    totalled_ = false;
    given_.clear();
    before_total_ = at::Tensor();
    return std::exchange(memory_, at::Tensor());
  }

  void given_fields(Archive& a) {
    given_.resize(static_cast<std::size_t>(size()));
    for (std::int32_t slice = 0; slice < size(); ++slice)
      a.nested("given." + std::to_string(slice), [&](Archive& inner) {
        packed_fields(inner, given_[static_cast<std::size_t>(slice)],
                      [this, slice](const Packed& packed) {
                        return compressor_->check(packed, size_of(slice));
                      });
      });
  }

  // [d], with that of this rank's total; undefined where there is none.
  at::Tensor residual_in_all() const {
    at::Tensor residual = joined(&ErrorFeedback::residual);
    if (residual.defined() && total_feedback_.residual().defined())
      residual.narrow(0, begin_of(position_), size_of(position_)).add_(total_feedback_.residual());
    return residual;
  }
  // [d], of all slices; undefined where one is.
  at::Tensor joined(const at::Tensor& (ErrorFeedback::*part)() const) const {
    std::vector<at::Tensor> slices;
    for (const ErrorFeedback& feedback : feedback_) {
      if (!(feedback.*part)().defined()) return {};
      slices.push_back((feedback.*part)());
    }
    return at::cat(slices);
  }
  at::Tensor slice_of(const at::Tensor& vector, std::int32_t slice) const {
    return vector.defined() ? vector.narrow(0, begin_of(slice), size_of(slice)).clone() : vector;
  }

  std::int32_t size() const { return static_cast<std::int32_t>(ranks_.size()); }
  std::int64_t begin_of(std::int32_t slice) const { return d_ * slice / size(); }
  std::int64_t size_of(std::int32_t slice) const { return begin_of(slice + 1) - begin_of(slice); }
  at::Tensor part_of(std::int32_t slice) const {
    return memory_.narrow(0, begin_of(slice), size_of(slice));
  }
  ErrorFeedback& feedback_of_slice(std::int32_t slice) {
    return feedback_[static_cast<std::size_t>(slice)];
  }

  void keep(const PackedChunk& chunk) {
    const bool fresh =
        parts_.try_emplace({chunk.operation, chunk.round, chunk.sender}, chunk.data).second;
    GRAPEVINE_CHECK(fresh, "two slices of operation ", chunk.operation, ", round ", chunk.round,
                    " from position ", chunk.sender);
  }

  bool has_all(std::int32_t round) const {
    const auto first = parts_.lower_bound({*operation_, round, 0});
    const auto last = parts_.lower_bound({*operation_, round + 1, 0});
    return std::distance(first, last) == size();
  }

  // To a position, this rank's own included.
  void send(Outgoing& out, std::int32_t to, std::int32_t round, const Packed& packed) {
    PackedChunk chunk{*operation_, round, position_, packed};
    if (to == position_) return keep(chunk);
    out.push_back({ranks_[static_cast<std::size_t>(to)], std::move(chunk)});
  }

  void send_total_if_complete(Outgoing& out) {
    if (!running() || totalled_ || !has_all(kScatter)) return;
    totalled_ = true;
    at::Tensor total = at::zeros({size_of(position_)}, options_);
    for (std::int32_t sender = 0; sender < size(); ++sender) unpack(total, kScatter, sender);
    Rng rng(static_cast<std::uint64_t>(draws_));
    before_total_ =
        total_feedback_.residual().defined() ? total_feedback_.residual().clone() : at::Tensor();
    const Packed packed = total_feedback_.pack(total, *compressor_, epoch_, rng);
    for (std::int32_t to = 0; to < size(); ++to) send(out, to, kGather, packed);
  }

  // sum += a slice of the operation, which is kept no longer.
  void unpack(at::Tensor& sum, std::int32_t round, std::int32_t sender) {
    const auto part = parts_.extract({*operation_, round, sender});
    GRAPEVINE_CHECK(!part.empty(), "a slice of operation ", *operation_, " is missing");
    const auto folded = compressor_->fold(sum, part.mapped(), 1);
    GRAPEVINE_CHECK(folded.ok(), folded.error().message);
  }

  void parts_fields(Archive& a) {
    const auto visit = [this](Archive& inner, Key& key, Packed& part) {
      inner.whole("operation", key.operation);
      inner.whole("round", key.round, kScatter, kGather);
      inner.whole("sender", key.sender, 0, size() - 1);
      const std::int32_t slice = key.round == kScatter ? position_ : key.sender;
      packed_fields(inner, part, [this, slice](const Packed& packed) {
        return compressor_->check(packed, size_of(slice));
      });
    };
    a.entries("parts", parts_, "has one slice twice", visit);
    if (a.loads() && running() && a.ok())
      a.require(!totalled_ || parts_.count({*operation_, kGather, position_}) > 0, "totalled",
                "has no total");
  }

  // Constant after construction.
  const std::vector<Rank> ranks_;
  const std::int32_t position_;
  const std::int64_t d_;
  const at::TensorOptions options_;
  const std::unique_ptr<const Compressor> compressor_;
  const bool keeps_residuals_;

  std::optional<std::int64_t> operation_;  // that is running
  double epoch_ = 0;                       // of it
  std::int64_t draws_ = 0;                 // of it: the seed for the total
  bool totalled_ = false;                  // the total of this rank's slice was sent
  at::Tensor memory_;                      // [d], of the vector that was given: for the sum
  std::vector<Packed> given_;              // by this rank to the operation, by slice
  at::Tensor before_total_;                // E before the operation; undefined: none
  std::map<Key, Packed> parts_;            // that have arrived, of this operation and later ones
  std::deque<ErrorFeedback> feedback_;     // e, by slice
  ErrorFeedback total_feedback_;           // E, of this rank's slice
};

}  // namespace

std::unique_ptr<Reduction> make_quantised_reduction(const ReductionSettings& settings,
                                                    std::vector<Rank> ranks, std::int32_t position,
                                                    std::int64_t d, at::Device device) {
  return std::make_unique<QuantisedReduction>(settings, std::move(ranks), position, d, device);
}

}  // namespace grapevine
