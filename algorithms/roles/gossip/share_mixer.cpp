// Shares: push-sum (Kempe, Dobra, Gehrke 2003) and its symmetric case.
//
//   give W_k[j][i] (x, w) to each j;  keep W_k[i][i] (x, w);  x <- x + sum of x_j, w <- w + sum w_j
//
// An averaging weight is a multiple of 2^-24, so that x and w are scaled by the same number and the
//   weights of a round add up to exactly 1 (w itself is rounded on irregular directed graphs);
//   where weights differ, a tensor of d and a pass for each.
// Conservation: sum of x and of w over ranks and shares in flight. Hence w travels with every
//   share, for symmetric weights too: the published code leaves it out and corrupts parameters when
//   the number of peers changes.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/parts/stored_envelope.hpp"
#include "algorithms/roles/gossip/mixer.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

class ShareMixer final : public Mixer {
 public:
  ShareMixer(std::shared_ptr<const SharedParts> parts, MixingRule rule, Rank rank,
             ModelState& model, BufferPool& pool)
      : parts_(std::move(parts)), rule_(rule), rank_(rank), model_(model), pool_(pool) {}

  std::vector<Rank> sources(std::int64_t round) const override {
    return rule_ == MixingRule::symmetric ? parts_->graph->neighbors(round, rank_)
                                          : parts_->graph->in(round, rank_);
  }

  double scale_in_step(const Round& round) override {
    const Shares shares = shares_of(round);
    if (!shares.even()) return 1;
    w_before_ = model_.w;
    return shares.kept;
  }

  void push(const Round& round, bool whole) override {
    const Shares shares = shares_of(round);
    const bool in_step = w_before_.has_value();
    const double w = in_step ? *std::exchange(w_before_, std::nullopt) : model_.w;
    std::map<double, FrozenTensor> scaled;  // x times each weight
    if (in_step)
      scaled[shares.kept] = model_.x;
    else
      split(shares, whole, scaled);
    for (const Shares::Link& link : shares.links)
      round.env.send(link.peer, round.stamp,
                     Share{round.number, w * link.weight, scaled.at(link.weight)});
  }

  void fold(Env& env, std::int64_t round) override {
    take_given();
    while (!arrived_.empty() && arrived_.begin()->first <= round) {
      for (const auto& [from, envelope] : arrived_.begin()->second) add(env, from, envelope);
      arrived_.erase(arrived_.begin());
    }
    if (rule_ == MixingRule::biased) model_.w = 1;
  }

  std::int64_t take(Envelope envelope) override {
    const Rank from = envelope.from;
    const auto* share = std::get_if<Share>(&envelope.payload);
    GRAPEVINE_CHECK(share != nullptr && share->x.numel() == model_.x.numel(), "rank ", from,
                    " sent gossip a message that is not a share of this model");
    GRAPEVINE_CHECK(share->round >= 0 && std::isfinite(share->w) && share->w > 0, "rank ", from,
                    " sent a share of weight ", share->w, " for round ", share->round);
    const std::int64_t round = share->round;
    const bool fresh = arrived_[round].emplace(from, std::move(envelope)).second;
    GRAPEVINE_CHECK(fresh, "two shares of one round from rank ", from);
    return round;
  }

  bool has(std::int64_t round, Rank peer) const override {
    const auto found = arrived_.find(round);
    return found != arrived_.end() && found->second.count(peer) > 0;
  }

  void fields(Archive& a) override {
    if (a.has("given.x", given_.x.defined())) {
      a.vector("given.x", given_.x, model_.x.numel());
      a.number("given.w", given_.w);
      a.require(given_.w > 0, "given.w", "is not above 0");
    }
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
  // The mass (x, w) that was given away and that local steps still use; x undefined: none.
  struct Given {
    FrozenTensor x;
    double w = 0;
  };

  // Among the peers that take part.
  Shares shares_of(const Round& round) const {
    const auto takes_part = [&round](Rank peer) {
      return round.env.membership().is_alive(peer) && round.expects(peer);
    };
    return rule_ == MixingRule::symmetric
               ? parts_->graph->symmetric_shares(round.number, rank_, takes_part)
               : parts_->graph->even_shares(round.number, rank_, takes_part);
  }

  // Where the weights are even, peers receive the kept tensor. Each other weight takes its own pass
  // and tensor, from the unscaled x: a product of two roundings would not match the share of w.
  void split(const Shares& shares, bool whole, std::map<double, FrozenTensor>& scaled) {
    for (const Shares::Link& link : shares.links) {
      if (!whole && link.weight == shares.kept) continue;
      FrozenTensor& share = scaled[link.weight];
      if (!share.defined()) share = scaled_copy(link.weight);
    }
    if (shares.links.empty()) return;
    if (whole) {
      const double given = 1 - shares.kept;
      const auto same = scaled.find(given);
      given_ = {same == scaled.end() ? scaled_copy(given) : same->second, model_.w * given};
      return;
    }
    update_frozen(model_.x, pool_, [&shares](at::Tensor& out, const at::Tensor& x) {
      kernels::scale_into(out, x, shares.kept);
    });
    model_.w *= shares.kept;
    scaled[shares.kept] = model_.x;
  }

  FrozenTensor scaled_copy(double weight) {
    at::Tensor x = pool_.take(model_.x.numel());
    kernels::scale_into(x, model_.x.read(), weight);
    return FrozenTensor::freeze(std::move(x));
  }

  void take_given() {
    if (!given_.x.defined()) return;
    update_frozen(model_.x, pool_, [this](at::Tensor& out, const at::Tensor& x) {
      kernels::subtract_into(out, x, given_.x.read());
    });
    model_.w -= given_.w;
    given_ = {};
  }

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

  const std::shared_ptr<const SharedParts> parts_;
  const MixingRule rule_;
  const Rank rank_;
  ModelState& model_;
  BufferPool& pool_;

  Given given_;
  std::optional<double> w_before_;  // of a round whose kept share the step has scaled
  std::map<std::int64_t, std::map<Rank, Envelope>> arrived_;  // by round, then sender
};

}  // namespace

std::unique_ptr<Mixer> make_share_mixer(std::shared_ptr<const SharedParts> parts, MixingRule rule,
                                        Rank rank, ModelState& model, BufferPool& pool) {
  return std::make_unique<ShareMixer>(std::move(parts), rule, rank, model, pool);
}

}  // namespace grapevine
