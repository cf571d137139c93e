#include "algorithms/roles/server/packed_commits.hpp"

#include <utility>

#include "algorithms/collectives/packed_collective.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

ErrorFeedbackSettings feedback_of(const CompressionSettings& settings) {
  ErrorFeedbackSettings feedback;
  feedback.enabled = settings.error_feedback;
  feedback.decay = settings.residual_decay;
  return feedback;
}

}  // namespace

PackedCommits::PackedCommits(const CompressionSettings& settings, std::int64_t d)
    : d_(d),
      error_feedback_(settings.error_feedback),
      compressor_(make_compressor(settings)),
      feedback_(feedback_of(settings)) {}

PackedChunk PackedCommits::commit(std::int64_t exchange, std::int64_t gradients, Rank client,
                                  at::Tensor& update, double epoch, Rng& rng) {
  Packed packed = feedback_.pack(update, *compressor_, epoch, rng);
  const bool fresh = sent_.emplace(exchange, packed).second;
  GRAPEVINE_CHECK(fresh, "two commits in exchange ", exchange);
  return {exchange, static_cast<std::int32_t>(gradients), client, std::move(packed)};
}

void PackedCommits::on_receipt(std::int64_t exchange, bool accepted) {
  const auto sent = sent_.extract(exchange);
  GRAPEVINE_CHECK(!sent.empty(), "an answer to a commit that was not sent");
  if (!accepted) feedback_.give_back(sent.mapped(), *compressor_);
}

void PackedCommits::fields(Archive& a) {
  const PackedCheck check = [this](const Packed& packed) { return compressor_->check(packed, d_); };
  a.part("feedback", feedback_, d_);
  a.keyed("exchanges", "sent.", sent_,
          [&check](Archive& inner, Packed& packed) { packed_fields(inner, packed, check); });
  if (error_feedback_ && !sent_.empty() && !feedback_.residual().defined())
    a.fail(bad_input(
        "the saved state has commits without a residual: the checkpoint is damaged, resume from "
        "another one"));
}

}  // namespace grapevine
