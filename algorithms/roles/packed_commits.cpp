#include "algorithms/roles/packed_commits.hpp"

#include <string>
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

StateDict PackedCommits::save() const {
  StateDict state;
  state.put_all("feedback", feedback_.save());
  std::vector<std::int64_t> exchanges;
  for (const auto& [exchange, packed] : sent_) {
    exchanges.push_back(exchange);
    state.put_all("sent." + std::to_string(exchange), save_packed(packed));
  }
  state.put_list("exchanges", exchanges);
  return state;
}

Expected<void> PackedCommits::load(const StateDict& state) {
  const auto exchanges = state.list("exchanges");
  if (!exchanges) return exchanges.error();
  sent_.clear();
  for (const std::int64_t exchange : *exchanges) {
    auto packed = load_packed(state.under("sent." + std::to_string(exchange)),
                              [this](const Packed& p) { return compressor_->check(p, d_); });
    if (!packed) return packed.error();
    sent_.emplace(exchange, std::move(*packed));
  }
  if (auto loaded = feedback_.load(state.under("feedback"), d_); !loaded) return loaded;
  if (error_feedback_ && !sent_.empty() && !feedback_.residual().defined())
    return bad_input(
        "the saved state has commits without a residual: the checkpoint is damaged, resume from "
        "another one");
  return {};
}

}  // namespace grapevine
