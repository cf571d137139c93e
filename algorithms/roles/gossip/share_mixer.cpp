// Shares: push-sum (Kempe, Dobra, Gehrke 2003) and its symmetric case.
//
//   give W_k[j][i] (x, w) to each j;  keep W_k[i][i] (x, w);  x <- x + sum of x_j, w <- w + sum w_j
//
// Conservation: sum of x and of w over ranks and shares in flight. Hence w travels with every
//   share, for symmetric weights too: the published code leaves it out and corrupts parameters when
//   the number of peers changes.
#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/parts/stored_envelope.hpp"
#include "algorithms/roles/gossip/share_split.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

class ShareMixer final : public Mixer {
 public:
  ShareMixer(std::shared_ptr<const SharedParts> parts, MixingRule rule, Rank rank,
             ModelState& model, BufferPool& pool)
      : rule_(rule),
        rank_(rank),
        model_(model),
        pool_(pool),
        split_(std::move(parts), rule, rank, model, pool) {}

  std::vector<Rank> sources(std::int64_t round) const override { return split_.sources(round); }

  double scale_in_step(const Round& round) override { return split_.scale_in_step(round); }

  void push(const Round& round, bool whole) override {
    for (ShareSplit::Gift& gift : split_.give(round, whole))
      round.env.send(gift.to, round.stamp, Share{round.number, gift.w, std::move(gift.x)});
  }

  void fold(Env& env, std::int64_t round) override {
    split_.take_given();
    for (; !arrived_.empty() && arrived_.begin()->first.first <= round;
         arrived_.erase(arrived_.begin()))
      add(env, arrived_.begin()->second);
    if (rule_ == MixingRule::biased) model_.w = 1;
  }

  void take(Envelope envelope) override {
    const Rank from = envelope.from;
    const auto* share = std::get_if<Share>(&envelope.payload);
    GRAPEVINE_CHECK(share != nullptr && share->x.numel() == model_.x.numel(), "rank ", from,
                    " sent gossip a message that is not a share of this model");
    GRAPEVINE_CHECK(share->round >= 0 && std::isfinite(share->w) && share->w > 0, "rank ", from,
                    " sent a share of weight ", share->w, " for round ", share->round);
    const Key key{share->round, from};
    const bool fresh = arrived_.emplace(key, std::move(envelope)).second;
    GRAPEVINE_CHECK(fresh, "two shares of one round from rank ", from);
  }

  bool has(std::int64_t round, Rank peer) const override {
    return arrived_.count({round, peer}) > 0;
  }

  void fields(Archive& a) override {
    split_.fields(a);
    a.entries("arrived", arrived_, "has two shares of one round from one rank",
              [this](Archive& inner, Key& key, Envelope& envelope) {
                share_fields(inner, envelope, rank_);
                const Share& share = std::get<Share>(envelope.payload);
                key = {share.round, envelope.from};
                inner.require(share.x.numel() == model_.x.numel() && share.w > 0, "arrived",
                              "has a share that is of another model, or weighs nothing");
              });
  }

 private:
  using Key = std::pair<std::int64_t, Rank>;  // round and sender

  void add(Env& env, const Envelope& envelope) {
    const Share& share = std::get<Share>(envelope.payload);
    update_frozen(model_.x, pool_, [&share](at::Tensor& out, const at::Tensor& x) {
      kernels::fold_into(out, x, share.x.read());
    });
    model_.w += share.w;
    record_applied(env, envelope.from, envelope.stamp, model_, share.x.nbytes());
  }

  const MixingRule rule_;
  const Rank rank_;
  ModelState& model_;
  BufferPool& pool_;

  ShareSplit split_;
  std::map<Key, Envelope> arrived_;
};

}  // namespace

std::unique_ptr<Mixer> make_share_mixer(std::shared_ptr<const SharedParts> parts, MixingRule rule,
                                        Rank rank, ModelState& model, BufferPool& pool) {
  return std::make_unique<ShareMixer>(std::move(parts), rule, rank, model, pool);
}

}  // namespace grapevine
