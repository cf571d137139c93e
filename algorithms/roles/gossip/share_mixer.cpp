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
    while (!arrived_.empty() && arrived_.begin()->first <= round) {
      for (const auto& [from, envelope] : arrived_.begin()->second) add(env, from, envelope);
      arrived_.erase(arrived_.begin());
    }
    if (rule_ == MixingRule::biased) model_.w = 1;
  }

  void take(Envelope envelope) override {
    const Rank from = envelope.from;
    const auto* share = std::get_if<Share>(&envelope.payload);
    GRAPEVINE_CHECK(share != nullptr && share->x.numel() == model_.x.numel(), "rank ", from,
                    " sent gossip a message that is not a share of this model");
    GRAPEVINE_CHECK(share->round >= 0 && std::isfinite(share->w) && share->w > 0, "rank ", from,
                    " sent a share of weight ", share->w, " for round ", share->round);
    const std::int64_t round = share->round;
    const bool fresh = arrived_[round].emplace(from, std::move(envelope)).second;
    GRAPEVINE_CHECK(fresh, "two shares of one round from rank ", from);
  }

  bool has(std::int64_t round, Rank peer) const override {
    const auto found = arrived_.find(round);
    return found != arrived_.end() && found->second.count(peer) > 0;
  }

  void fields(Archive& a) override {
    split_.fields(a);
    std::vector<Envelope> list;
    for (const auto& of_round : arrived_)
      for (const auto& of_rank : of_round.second) list.push_back(of_rank.second);
    a.counted("arrived.count", "arrived.", list,
              [this](Archive& inner, Envelope& share) { share_fields(inner, share, rank_); });
    if (!a.loads() || !a.ok()) return;
    arrived_.clear();
    for (Envelope& envelope : list) restore(a, std::move(envelope));
  }

 private:
  void add(Env& env, Rank from, const Envelope& envelope) {
    const Share& share = std::get<Share>(envelope.payload);
    update_frozen(model_.x, pool_, [&share](at::Tensor& out, const at::Tensor& x) {
      kernels::fold_into(out, x, share.x.read());
    });
    model_.w += share.w;
    const std::int64_t age = model_.step - 1 - envelope.stamp.step;
    env.record({EventKind::applied, from, envelope.stamp, model_.step,
                std::max<std::int64_t>(0, age), share.x.nbytes()});
  }

  void restore(Archive& a, Envelope envelope) {
    const Share& share = std::get<Share>(envelope.payload);
    const std::int64_t round = share.round;
    const Rank from = envelope.from;
    a.require(share.x.numel() == model_.x.numel() && share.w > 0, "arrived",
              "has a share that is of another model, or weighs nothing");
    a.require(arrived_[round].emplace(from, std::move(envelope)).second, "arrived",
              "has two shares of one round from one rank");
  }

  const MixingRule rule_;
  const Rank rank_;
  ModelState& model_;
  BufferPool& pool_;

  ShareSplit split_;
  std::map<std::int64_t, std::map<Rank, Envelope>> arrived_;  // by round, then sender
};

}  // namespace

std::unique_ptr<Mixer> make_share_mixer(std::shared_ptr<const SharedParts> parts, MixingRule rule,
                                        Rank rank, ModelState& model, BufferPool& pool) {
  return std::make_unique<ShareMixer>(std::move(parts), rule, rank, model, pool);
}

}  // namespace grapevine
