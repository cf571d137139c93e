#include "algorithms/collectives/reduction.hpp"

#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "algorithms/collectives/bucketed_reduction.hpp"
#include "algorithms/collectives/packed_collective.hpp"
#include "algorithms/compressors/error_feedback.hpp"
#include "algorithms/compressors/sparse_compressor.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

using Outgoing = std::vector<OutgoingMessage>;

class SparseReduction final : public Reduction {
 public:
  SparseReduction(const ReductionSettings& settings, std::vector<Rank> ranks, std::int32_t position,
                  std::int64_t d, at::Device device)
      : compression_(settings.compression),
        position_(position),
        ranks_(std::move(ranks)),
        d_(d),
        options_(at::TensorOptions(at::kFloat).device(device)),
        compressor_(make_compressor(compression_)),
        feedback_(feedback_of(settings)) {}

  Outgoing start(std::int64_t operation, double epoch, at::Tensor&& vector, Rng& rng) override {
    GRAPEVINE_CHECK(!vector.defined() || vector.numel() == d_, "a vector of ", vector.numel(),
                    " instead of ", d_);
    memory_ = std::move(vector);
    vector = at::Tensor();
    collective_ = collective(operation, epoch);
    given_ = feedback_.pack(memory_, *compressor_, epoch, rng);
    Outgoing out;
    append(out, collective_->start(given_, inbox_));
    return out;
  }

  Outgoing on_message(Rank from, Payload payload) override {
    auto* chunk = std::get_if<PackedChunk>(&payload);
    GRAPEVINE_CHECK(chunk != nullptr && is_from(ranks_, *chunk, from), "rank ", from,
                    " sent compressed all-reduce a message that is not its vector");
    inbox_.put(std::move(*chunk));
    Outgoing out;
    if (running() && !done()) append(out, collective_->advance(inbox_));
    return out;
  }

  bool running() const override { return collective_ != nullptr; }
  bool done() const override { return collective_ && collective_->done(); }
  std::vector<Awaited> awaited() const override {
    std::vector<Awaited> missing;
    if (done()) return missing;
    for (const std::int32_t source : collective_->sources())
      missing.push_back({ranks_[static_cast<std::size_t>(source)], PayloadKind::packed_chunk,
                         collective_->operation()});
    return missing;
  }

  at::Tensor take_sum() override {
    const SparseVector rejected = collective_->take_rejected();
    const std::vector<Packed> result = collective_->take_result();
    feedback_.restore(rejected, selected_entries(result));
    at::Tensor sum = std::exchange(memory_, at::Tensor());
    if (!sum.defined()) sum = at::empty({d_}, options_);
    sum.zero_();
    for (const Packed& packed : result) {
      const auto folded = compressor_->fold(sum, packed, 1);
      GRAPEVINE_CHECK(folded.ok(), folded.error().message);
    }
    collective_.reset();
    given_ = {};
    return sum;
  }

  bool take_back() override {
    inbox_ = {};
    if (std::exchange(collective_, nullptr) == nullptr) return false;
    memory_ = at::Tensor();
    feedback_.give_back(std::exchange(given_, {}), *compressor_);
    return compression_.error_feedback;
  }

  void count_as_given() override {
    const bool selects = compression_.reduce != SparseReduce::all_gather;
    if (selects || !running()) return static_cast<void>(take_back());
    inbox_ = {};
    collective_ = nullptr;
    memory_ = at::Tensor();
    given_ = {};
    feedback_.restore({});
  }

  void kept_fields(Archive& a) override { a.part("feedback", feedback_, d_); }

  at::Tensor take_residual() override {
    at::Tensor residual = feedback_.residual();
    feedback_.set_residual(at::Tensor());
    return residual;
  }

  void fields(Archive& a, std::int64_t operation, double epoch) override {
    const PackedCheck check = [this](const Packed& packed) {
      return compressor_->check(packed, d_);
    };
    bool runs = running();
    a.flag("running", runs);
    if (a.loads()) collective_ = runs ? collective(operation, epoch) : nullptr;
    if (runs) a.part("collective", *collective_, check);
    if (runs) a.nested("given", [&](Archive& inner) { packed_fields(inner, given_, check); });
    a.part("inbox", inbox_, check);
    a.part("feedback", feedback_, d_);
    if (runs && compression_.error_feedback && !feedback_.residual().defined())
      a.fail(bad_input(
          "the saved state has a sum without a residual: the checkpoint is damaged, resume from "
          "another one"));
  }

 private:
  std::unique_ptr<PackedCollective> collective(std::int64_t operation, double epoch) const {
    return make_packed_collective(compression_.reduce, {ranks_, position_, operation, d_,
                                                        quotas(epoch), compression_.value_type});
  }

  // Where the ranks select from their sum; elsewhere all that was sent is in it.
  std::optional<SparseVector> selected_entries(const std::vector<Packed>& result) const {
    if (compression_.reduce == SparseReduce::all_gather) return std::nullopt;
    auto entries = from_packed(result.front(), d_);
    GRAPEVINE_CHECK(entries.ok(), entries.error().message);
    return std::move(*entries);
  }

  std::vector<LayerQuota> quotas(double epoch) const {
    return layer_quotas(compression_, epoch, d_);
  }

  // Constant after construction.
  const CompressionSettings compression_;
  const std::int32_t position_;
  const std::vector<Rank> ranks_;
  const std::int64_t d_;
  const at::TensorOptions options_;
  const std::unique_ptr<const Compressor> compressor_;

  ErrorFeedback feedback_;
  PackedInbox inbox_;
  std::unique_ptr<PackedCollective> collective_;  // of the operation that is running
  Packed given_;                                  // to it, by this rank
  at::Tensor memory_;                             // [d], of the vector that was given: for the sum
};

// A reduction in the host's memory, of vectors on `device`.
class HostReduction final : public Reduction {
 public:
  HostReduction(std::unique_ptr<Reduction> inner, at::Device device)
      : inner_(std::move(inner)), device_(device) {}

  Outgoing start(std::int64_t operation, double epoch, at::Tensor&& vector, Rng& rng) override {
    at::Tensor host = vector.defined() ? vector.cpu() : vector;
    vector = at::Tensor();
    return inner_->start(operation, epoch, std::move(host), rng);
  }
  Outgoing on_message(Rank from, Payload payload) override {
    return inner_->on_message(from, std::move(payload));
  }
  bool running() const override { return inner_->running(); }
  bool done() const override { return inner_->done(); }
  std::vector<Awaited> awaited() const override { return inner_->awaited(); }
  at::Tensor take_sum() override { return inner_->take_sum().to(device_); }
  bool take_back() override { return inner_->take_back(); }
  void count_as_given() override { inner_->count_as_given(); }
  void kept_fields(Archive& a) override {
    a.on_host([this](Archive& host) { inner_->kept_fields(host); });
  }
  at::Tensor take_residual() override {
    const at::Tensor residual = inner_->take_residual();
    return residual.defined() ? residual.to(device_) : residual;
  }
  void fields(Archive& a, std::int64_t operation, double epoch) override {
    a.on_host([&](Archive& host) { inner_->fields(host, operation, epoch); });
  }

 private:
  const std::unique_ptr<Reduction> inner_;
  const at::Device device_;
};

}  // namespace

bool reduces_on_any_device(const CompressionSettings& settings) {
  if (!settings.enabled()) return true;
  const bool selects = is_sparse(settings) && settings.reduce != SparseReduce::all_gather;
  const bool masks = settings.momentum_correction && settings.momentum_masking;
  return works_on_any_device(settings) && !selects && !(is_sparse(settings) && masks);
}

std::unique_ptr<Reduction> make_reduction(const ReductionSettings& settings,
                                          std::vector<Rank> ranks, std::int32_t position,
                                          std::int64_t d, at::Device device) {
  if (!device.is_cpu() && !reduces_on_any_device(settings.compression))
    return std::make_unique<HostReduction>(make_reduction(settings, std::move(ranks), position, d),
                                           device);
  if (is_sparse(settings.compression))
    return std::make_unique<SparseReduction>(settings, std::move(ranks), position, d, device);
  if (settings.compression.enabled())
    return make_quantised_reduction(settings, std::move(ranks), position, d, device);
  const ExactReduce algorithm = settings.compression.exact;
  if (PartBegins begins = bucket_begins(d, settings.bucket_bytes))
    return make_bucketed_reduction(ranks, position, d, algorithm, std::move(begins));
  return make_exact_reduction(std::move(ranks), position, d, algorithm, settings.memory);
}

ErrorFeedbackSettings feedback_of(const ReductionSettings& reduction) {
  const CompressionSettings& c = reduction.compression;
  ErrorFeedbackSettings settings;
  settings.enabled = c.error_feedback;
  settings.decay = c.residual_decay;
  if (c.momentum_correction) {
    settings.momentum = reduction.momentum;
    settings.nesterov = reduction.nesterov;
  }
  settings.masking = c.momentum_masking;
  return settings;
}

}  // namespace grapevine
