// Shares: push-sum (Kempe, Dobra, Gehrke 2003) and its symmetric case.
//
//   give W_k[j][i] (x, w) to each j;  keep W_k[i][i] (x, w);  x <- x + sum of x_j, w <- w + sum w_j
//
// Conservation: sum of x and of w over ranks and shares in flight. Hence w travels with every
//   share, for symmetric weights too: the published code leaves it out and corrupts parameters when
//   the number of peers changes.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/parts/stored_envelope.hpp"
#include "algorithms/roles/gossip/round_peers.hpp"
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
    std::vector<ShareSplit::Gift> gifts = split_.give(round, whole);
    for (const ShareSplit::Gift& gift : gifts)
      round.env.send(gift.to, round.stamp, Share{round.number, gift.w, gift.x});
    pushed_ = round.number;
    gave_all_ = gifts.size() == split_.receivers(round.number);
    if (rule_ == MixingRule::symmetric) gifts_ = std::move(gifts);
  }

  void fold(Env& env, std::int64_t round) override {
    const FrozenTensor last = fold_but_last(env, round);
    if (last.defined()) add(last);
  }

  FrozenTensor fold_but_last(Env& env, std::int64_t round) override {
    split_.take_given();
    const bool is_whole = is_whole_round(round);
    FrozenTensor last;
    for (; !arrived_.empty() && arrived_.begin()->first.first <= round;
         arrived_.erase(arrived_.begin())) {
      if (last.defined()) add(last);
      last = take_in(env, arrived_.begin()->second);
    }
    if (rule_ == MixingRule::biased && is_whole) model_.w = 1;
    if (rule_ == MixingRule::biased && !is_whole) count_what_is_there(std::exchange(last, {}));
    if (round >= pushed_) gifts_.clear();
    return last;
  }

  // Symmetric weights: an edge counts where both its ends have pushed the round, which each end
  // sees by itself, so that w stays 1. A rank that has taken its last step has folded all that it
  // was given, as every rank does with other weights.
  void close(Env& env, const RoundPeers& peers) override {
    if (rule_ == MixingRule::symmetric) {
      arrived_.erase(arrived_.lower_bound({pushed_ + 1, 0}), arrived_.end());
      for (const ShareSplit::Gift& gift : gifts_)
        if (!has(pushed_, gift.to) && peers.expects(gift.to, pushed_)) {
          add(gift.x);
          model_.w += gift.w;
        }
    }
    fold(env, kAllRounds);
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
    a.count("pushed_round", pushed_, -1);
    if (a.has("gave_all", !gave_all_)) a.flag("gave_all", gave_all_);
    a.items("gifts", gifts_, [this](Archive& inner, ShareSplit::Gift& gift) {
      inner.whole("to", gift.to, 0, std::numeric_limits<Rank>::max());
      inner.number("w", gift.w);
      inner.vector("x", gift.x, model_.x.numel());
      inner.require(gift.x.defined(), "x", "is missing");
    });
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

  // The share's weight enters the model's; its x is the result.
  FrozenTensor take_in(Env& env, const Envelope& envelope) {
    const Share& share = std::get<Share>(envelope.payload);
    model_.w += share.w;
    record_applied(env, envelope.from, envelope.stamp, model_, share.x.nbytes());
    return share.x;
  }

  void add(const FrozenTensor& more) {
    update_frozen(model_.x, pool_, [&more](at::Tensor& out, const at::Tensor& x) {
      kernels::fold_into(out, x, more.read());
    });
  }

  // Whether all peers have taken part, and the shares are those of this round alone.
  bool is_whole_round(std::int64_t round) const {
    if (round == kAllRounds || round != pushed_ || !gave_all_) return false;
    const std::vector<Rank> sources = split_.sources(round);
    const auto arrived = std::distance(arrived_.begin(), arrived_.lower_bound({round + 1, 0}));
    return static_cast<std::size_t>(arrived) == sources.size() &&
           std::all_of(sources.begin(), sources.end(),
                       [&](Rank source) { return has(round, source); });
  }

  // Biased weights count for nothing where a round is whole. In another one a rank has given more
  // than it got, or has got more.
  void count_what_is_there(const FrozenTensor& last) {
    if (last.defined()) add(last);
    const double w = std::exchange(model_.w, 1);
    if (std::abs(w - 1) < 1e-6) return;
    change_in_place(model_.x, [w](at::Tensor& x) { kernels::scale(x, 1 / w); });
  }

  const MixingRule rule_;
  const Rank rank_;
  ModelState& model_;
  BufferPool& pool_;

  ShareSplit split_;
  std::map<Key, Envelope> arrived_;
  std::int64_t pushed_ = -1;             // the newest round,
  bool gave_all_ = true;                 // in which every receiver took part
  std::vector<ShareSplit::Gift> gifts_;  // of it, until it is folded: symmetric weights
};

}  // namespace

std::unique_ptr<Mixer> make_share_mixer(std::shared_ptr<const SharedParts> parts, MixingRule rule,
                                        Rank rank, ModelState& model, BufferPool& pool) {
  return std::make_unique<ShareMixer>(std::move(parts), rule, rank, model, pool);
}

}  // namespace grapevine
