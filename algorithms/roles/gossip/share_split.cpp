#include "algorithms/roles/gossip/share_split.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/roles/gossip/round_peers.hpp"

namespace grapevine {

std::vector<Rank> ShareSplit::sources(std::int64_t round) const {
  return rule_ == MixingRule::symmetric ? parts_->graph->neighbors(round, rank_)
                                        : parts_->graph->in(round, rank_);
}

std::size_t ShareSplit::receivers(std::int64_t round) const {
  return rule_ == MixingRule::symmetric ? parts_->graph->neighbors(round, rank_).size()
                                        : parts_->graph->out(round, rank_).size();
}

Shares ShareSplit::shares_of(const Mixer::Round& round) const {
  const auto takes_part = [&round](Rank peer) {
    return round.env.membership().is_alive(peer) && round.peers.expects(peer, round.number);
  };
  if (rule_ == MixingRule::symmetric)
    return parts_->graph->symmetric_shares(round.number, rank_, takes_part);
  const Shares shares = parts_->graph->even_shares(round.number, rank_, takes_part);
  if (!gives_least(round)) return shares;
  Shares least;
  for (const Shares::Link& link : shares.links) least.give(link.peer, kLeastShare);
  return least;
}

// See the top of the header. Peers still wait for the message.
bool ShareSplit::gives_least(const Mixer::Round& round) const {
  return rule_ == MixingRule::push_sum && !round.peers.all_take_part() &&
         w_before_.value_or(model_.w) < Mixer::kLeastWeight;
}

double ShareSplit::scale_in_step(const Mixer::Round& round) {
  const Shares shares = shares_of(round);
  if (!shares.even()) return 1;
  w_before_ = model_.w;
  return shares.kept;
}

std::vector<ShareSplit::Gift> ShareSplit::give(const Mixer::Round& round, bool whole) {
  const Shares shares = shares_of(round);
  const bool in_step = w_before_.has_value();
  const double w = in_step ? *std::exchange(w_before_, std::nullopt) : model_.w;
  std::map<double, FrozenTensor> scaled;  // x times each weight
  if (in_step)
    scaled[shares.kept] = model_.x;
  else
    split(shares, whole, scaled);
  std::vector<Gift> gifts;
  for (const Shares::Link& link : shares.links)
    gifts.push_back({link.peer, w * link.weight, scaled.at(link.weight)});
  return gifts;
}

// Where the weights are even, peers receive the kept tensor. Each other weight takes its own pass
// and tensor, from the unscaled x: a product of two roundings would not match the share of w.
void ShareSplit::split(const Shares& shares, bool whole, std::map<double, FrozenTensor>& scaled) {
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

FrozenTensor ShareSplit::scaled_copy(double weight) {
  at::Tensor x = pool_.take(model_.x);
  kernels::scale_into(x, model_.x.read(), weight);
  FrozenTensor share = FrozenTensor::freeze(std::move(x));
  pool_.give(share);  // for a later one, once its readers have finished
  return share;
}

void ShareSplit::take_given() {
  if (!given_.x.defined()) return;
  update_frozen(model_.x, pool_, [this](at::Tensor& out, const at::Tensor& x) {
    kernels::subtract_into(out, x, given_.x.read());
  });
  model_.w -= given_.w;
  given_ = {};
}

void ShareSplit::fields(Archive& a) {
  if (!a.has("given.x", given_.x.defined())) return;
  a.vector("given.x", given_.x, model_.x.numel());
  a.number("given.w", given_.w);
  a.require(given_.w > 0, "given.w", "is not above 0");
}

}  // namespace grapevine
