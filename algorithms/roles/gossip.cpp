#include "algorithms/roles/gossip.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/parts/stored_envelope.hpp"
#include "algorithms/roles/difference_gossip.hpp"
#include "algorithms/roles/messages_of.hpp"
#include "algorithms/wiring/shared_parts.hpp"

namespace grapevine {
namespace {

void read_compressed_gossip(KeyReader& keys, const GossipSettings& gossip, Plan& plan) {
  plan.compression = read_compression(keys, {false, false, true});
  if (!plan.compression.enabled()) return;
  keys.only_where(
      "compress", gossip.averaging == MixingRule::symmetric,
      "averaging = '" + keys.value_of("averaging") +
          "': compressed differences are mixed with symmetric weights, choose averaging "
          "= 'symmetric'");
  keys.only_where("compress", gossip.staleness == 0,
                  "staleness = '" + keys.value_of("staleness") +
                      "': a difference counts only beside those of all rounds before it, choose "
                      "staleness = 0");
}

void read_gossip(KeyReader& keys, Plan& plan) {
  auto gossip = std::make_shared<GossipSettings>();
  plan.local.pack = read_pack(keys, {Pack::model}, "exchange = 'gossip': gossip mixes models");
  plan.graph = read_graph(keys);
  gossip->averaging = keys.choice<MixingRule>(
      "averaging", "push-sum",
      {{"push-sum", MixingRule::push_sum},
       {"symmetric", MixingRule::symmetric},
       {"biased", MixingRule::biased}},
      "the weights with which gossip mixes models; biased ignores push-sum's weight");
  gossip->update = keys.choice<Update>(
      "update", "before", {{"before", Update::before_exchange}, {"after", Update::after_exchange}},
      "whether the optimizer steps before or after the exchange");
  gossip->overlap = keys.flag("overlap", false, "gossip while the worker computes");
  gossip->staleness =
      keys.whole("staleness", 0, 0,
                 "tau: exchanges running in which an outstanding round may be skipped "
                 "before it is waited for");
  keys.only_where("staleness", gossip->overlap || gossip->staleness == 0,
                  "overlap = false: a round that is waited for at once cannot be skipped, choose "
                  "overlap = true");
  keys.only_where("update", !gossip->overlap || gossip->update == Update::before_exchange,
                  "overlap = true: what arrives during a step is folded in after it, choose "
                  "update = 'before'");
  keys.only_where("averaging", gossip->averaging != MixingRule::biased || gossip->staleness == 0,
                  "staleness > 0: a rank that skipped a round has not halved its model for it, and "
                  "without a weight no receiver can tell, choose averaging = 'push-sum'");
  plan.local.local_steps = read_local_steps(keys);
  plan.local.clip = read_clip(keys, false);
  read_compressed_gossip(keys, *gossip, plan);
  plan.settings = std::move(gossip);
}

// Shares that are split among destinations mix only where every rank reaches every other.
Expected<void> prepare_gossip(SharedParts& parts, std::int32_t ranks) {
  if (auto made = make_graph(parts, ranks); !made) return made;
  const bool shares =
      data_as<GossipSettings>(parts.plan.settings).averaging != MixingRule::symmetric;
  return shares && !parts.plan.compression.enabled() ? parts.graph->check_strongly_connected()
                                                     : Expected<void>{};
}

}  // namespace

const RoleType& gossip_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "gossip";
    role.summary = "every rank mixes its model with those of a few peers in each round";
    role.read = &read_gossip;
    role.prepare = &prepare_gossip;
    role.make = [](RoleContext c) -> std::unique_ptr<Role> {
      if (c.parts->plan.compression.enabled())
        return std::make_unique<DifferenceGossip>(c.parts, c.rank, c.model, std::move(c.optimizer));
      return std::make_unique<Gossip>(c.parts, c.rank, c.model, std::move(c.optimizer));
    };
    role.tolerates_lost_peer = true;
    role.announces_end = [](const Plan& plan) {
      return data_as<GossipSettings>(plan.settings).staleness > 0;
    };
    return role;
  }();
  return type;
}

Gossip::Gossip(std::shared_ptr<const SharedParts> parts, Rank rank, ModelState& model,
               std::unique_ptr<Optimizer> optimizer)
    : parts_(std::move(parts)),
      settings_(data_as<GossipSettings>(parts_->plan.settings)),
      rank_(rank),
      model_(model),
      local_(parts_->plan.local, parts_->horizon, parts_->lr, 1, std::move(optimizer)) {
  GRAPEVINE_CHECK(parts_->graph != nullptr, "gossip needs a graph");
}

// ---- training ----

void Gossip::on_start(Env& env) {
  await_round();
  if (phase_ == Phase::computing) return compute(env);
  if (phase_ == Phase::finished) {
    if (model_.step >= parts_->horizon.steps) return finish(env);
    // The run is extended. All ranks continue from the round after the newest one in which any rank
    // took part; they know it from each other's Leave.
    for (const auto& [peer, last_round] : gone_) round_ = std::max(round_, last_round);
    gone_.clear();
  }
  phase_ = Phase::ready;
  advance(env);
}

// With the update before an exchange without overlap, where the weights are even, the kept share is
// scaled in the same pass as the step.
void Gossip::on_gradient(Env& env, Gradient gradient) {
  GRAPEVINE_CHECK(phase_ == Phase::computing, "a gradient arrived without a request");
  pool_.give(std::move(z_));
  gradient_ = std::move(gradient.value).thaw();
  phase_ = Phase::ready;
  if (settings_.update == Update::before_exchange) {
    const bool exchanges = !settings_.overlap && local_.exchange_due(model_.step + 1);
    const Shares shares = exchanges ? next_shares(env) : Shares{};
    const bool in_one_pass = shares.even();
    const double w = model_.w;
    apply(env, in_one_pass ? shares.kept : 1);
    if (exchanges && in_one_pass)
      send_shares(env, shares, w, {{shares.kept, model_.x}});
    else if (exchanges)
      push(env, shares);
  }
  advance(env);
}

// Finishes the outstanding round, then takes the next step. A round is due at once, or, where local
// steps hide it, at the next exchange. It is folded then if it is complete, skipped at most tau
// times running where gossip overlaps, and waited for otherwise. It is not folded earlier: results
// do not depend on when shares arrive.
void Gossip::advance(Env& env) {
  const Step steps = model_.step + (gradient_.defined() ? 1 : 0);
  if (outstanding_ && (!hides_exchanges() || local_.exchange_due(steps))) {
    const bool last = steps >= parts_->horizon.steps;
    if (awaited_.empty())
      fold_arrived(env, round_);
    else if (last || !settings_.overlap || skips_ == settings_.staleness)
      return wait(env);
    else
      ++skips_;
  }
  if (gradient_.defined()) apply(env, 1);
  if (model_.step >= parts_->horizon.steps) return finish(env);
  const bool exchanges_first = settings_.overlap || settings_.update == Update::after_exchange;
  if (!outstanding_ && exchanges_first && local_.exchange_due(model_.step))
    push(env, next_shares(env));
  compute(env);
}

// Whether local steps are taken while a round is outstanding.
bool Gossip::hides_exchanges() const {
  return parts_->plan.local.local_steps > 1 &&
         (settings_.overlap || settings_.update == Update::after_exchange);
}

// x <- (x - gamma u(z)) * kept.
void Gossip::apply(Env& env, double kept) {
  at::Tensor g =
      local_.step(model_, std::move(gradient_), parts_->horizon.epoch_of(model_.step), pool_, kept);
  env.recycle(FrozenTensor::freeze(std::move(g)));
  gradient_ = at::Tensor();
  ++model_.step;
  model_.epoch = parts_->horizon.epoch_of(model_.step);
  env.record({EventKind::committed, rank_, stamp(), model_.step - 1, 0, 0});
  env.record({EventKind::step_done, -1, stamp(), model_.step - 1, 0, 0});
}

// Scales x and w to the kept share. Where the weights are even, peers receive the same tensor. Each
// other weight takes its own pass and tensor, from the unscaled x: a product of two roundings would
// not match the share of w.
void Gossip::push(Env& env, const Shares& shares) {
  const double w = model_.w;
  const bool whole = hides_exchanges();
  std::map<double, FrozenTensor> scaled;
  for (const Shares::Link& link : shares.links) {
    if (!whole && link.weight == shares.kept) continue;
    FrozenTensor& share = scaled[link.weight];
    if (!share.defined()) share = scaled_copy(link.weight);
  }
  if (whole && !shares.links.empty()) {
    const double given = 1 - shares.kept;
    const auto same = scaled.find(given);
    given_ = {same == scaled.end() ? scaled_copy(given) : same->second, w * given};
  } else if (!shares.links.empty()) {
    update_frozen(model_.x, pool_, [&](at::Tensor& out, const at::Tensor& x) {
      kernels::scale_into(out, x, shares.kept);
    });
    model_.w = w * shares.kept;
    scaled[shares.kept] = model_.x;
  }
  send_shares(env, shares, w, scaled);
}

// `w`: before the round. `scaled`: x times each weight.
void Gossip::send_shares(Env& env, const Shares& shares, double w,
                         const std::map<double, FrozenTensor>& scaled) {
  ++round_;
  outstanding_ = true;
  skips_ = 0;
  await_round();
  for (const Shares::Link& link : shares.links)
    env.send(link.peer, stamp(), Share{round_, w * link.weight, scaled.at(link.weight)});
}

FrozenTensor Gossip::scaled_copy(double weight) {
  at::Tensor x = pool_.take(model_.x.numel());
  kernels::scale_into(x, model_.x.read(), weight);
  return FrozenTensor::freeze(std::move(x));
}

// The peers whose share of the outstanding round is missing: a function of the graph, of the shares
// that have arrived and of the peers that have left.
void Gossip::await_round() {
  awaited_.clear();
  if (!outstanding_) return;
  const auto arrived = arrived_.find(round_);
  const auto sources = settings_.averaging == MixingRule::symmetric
                           ? parts_->graph->neighbors(round_, rank_)
                           : parts_->graph->in(round_, rank_);
  for (const Rank peer : sources)
    if ((arrived == arrived_.end() || arrived->second.count(peer) == 0) && expects(peer, round_))
      awaited_.insert(peer);
}

void Gossip::compute(Env& env) {
  phase_ = Phase::computing;
  FrozenTensor z = model_.x;
  if (model_.w != 1.0) {
    at::Tensor buffer = pool_.take(model_.x.numel());
    kernels::debias(buffer, model_.x.read(), model_.w);
    z = z_ = FrozenTensor::freeze(std::move(buffer));
  }
  env.compute(model_.step, std::move(z));
}

void Gossip::wait(Env& env) {
  phase_ = Phase::waiting;
  env.record({EventKind::wait_begin, *awaited_.begin(), stamp(), model_.step, 0, 0});
}

void Gossip::finish(Env& env) {
  phase_ = Phase::finished;
  fold_arrived(env, std::numeric_limits<std::int64_t>::max());
  // Ranks that skipped other rounds may still expect this one to take part.
  if (settings_.staleness > 0) {
    for (Rank peer = 0; peer < env.membership().world_size(); ++peer)
      if (peer != rank_ && env.membership().is_alive(peer)) env.send(peer, stamp(), Leave{round_});
  }
  env.finished();
}

// ---- messages ----

void Gossip::on_message(Env& env, Envelope envelope) {
  const Rank from = envelope.from;
  if (const auto* leave = std::get_if<Leave>(&envelope.payload)) {
    gone_[from] = leave->last_round;
    if (!expects(from, round_)) awaited_.erase(from);
  } else {
    const auto* share = std::get_if<Share>(&envelope.payload);
    GRAPEVINE_CHECK(share != nullptr && share->x.numel() == model_.x.numel(), "rank ", from,
                    " sent gossip a message that is not a share of this model");
    GRAPEVINE_CHECK(share->round >= 0 && std::isfinite(share->w) && share->w > 0, "rank ", from,
                    " sent a share of weight ", share->w, " for round ", share->round);
    if (share->round == round_) awaited_.erase(from);
    const bool fresh = arrived_[share->round].emplace(from, std::move(envelope)).second;
    GRAPEVINE_CHECK(fresh, "two shares of one round from rank ", from);
  }
  resume_if_complete(env);
}

void Gossip::on_peer_down(Env& env, Rank peer) {
  gone_[peer] = -1;  // arrived shares are folded, no more are expected
  awaited_.erase(peer);
  resume_if_complete(env);
}

// A rank that returns takes part again only through a restart: its round is unknown here.
void Gossip::on_peer_up(Env&, Rank) {}

void Gossip::on_timer(Env&, TimerId) {}

// Called when a message arrived or a peer left. A waiting rank continues once its round is
// complete; a finished rank folds late shares, so that no mass is lost.
void Gossip::resume_if_complete(Env& env) {
  if (phase_ == Phase::finished) return fold_arrived(env, std::numeric_limits<std::int64_t>::max());
  if (phase_ != Phase::waiting || !awaited_.empty()) return;
  env.record({EventKind::wait_end, -1, stamp(), model_.step, 0, 0});
  phase_ = Phase::ready;
  advance(env);
}

bool Gossip::expects(Rank peer, std::int64_t round) const {
  const auto it = gone_.find(peer);
  return it == gone_.end() || round <= it->second;
}

// Among the peers of the graph that still take part.
Shares Gossip::next_shares(const Env& env) const {
  const std::int64_t round = round_ + 1;
  const auto takes_part = [&](Rank peer) {
    return env.membership().is_alive(peer) && expects(peer, round);
  };
  return settings_.averaging == MixingRule::symmetric
             ? parts_->graph->symmetric_shares(round, rank_, takes_part)
             : parts_->graph->even_shares(round, rank_, takes_part);
}

// x += sum of x_j, w += sum of w_j over all shares up to `round`, by round and then rank: the
// result does not depend on the order of arrival. The mass that was given away while local steps
// still used it is subtracted from x and w.
void Gossip::fold_arrived(Env& env, std::int64_t round) {
  if (given_.x.defined()) {
    update_frozen(model_.x, pool_, [this](at::Tensor& out, const at::Tensor& x) {
      kernels::subtract_into(out, x, given_.x.read());
    });
    model_.w -= given_.w;
    given_ = {};
  }
  while (!arrived_.empty() && arrived_.begin()->first <= round) {
    for (const auto& [from, envelope] : arrived_.begin()->second) {
      const Share& share = std::get<Share>(envelope.payload);
      update_frozen(model_.x, pool_, [&share](at::Tensor& out, const at::Tensor& x) {
        kernels::fold_into(out, x, share.x.read());
      });
      model_.w += share.w;
      const std::int64_t age = model_.step - 1 - envelope.stamp.step;
      env.record({EventKind::applied, from, envelope.stamp, model_.step,
                  std::max<std::int64_t>(0, age), share.x.nbytes()});
    }
    arrived_.erase(arrived_.begin());
  }
  outstanding_ = false;
  if (settings_.averaging == MixingRule::biased) model_.w = 1;
}

// ---- the model ----

FrozenTensor Gossip::debiased() const {
  if (model_.w == 1.0) return model_.x;
  at::Tensor z = at::empty_like(model_.x.read());
  kernels::debias(z, model_.x.read(), model_.w);
  return FrozenTensor::freeze(std::move(z));
}

// The age of this rank's messages is that of its last gradient.
Stamp Gossip::stamp() const { return stamp_of(rank_, model_.step - 1, model_.step); }

// ---- checkpoints ----

StateDict Gossip::save() const {
  StateDict state;
  state.put("phase", static_cast<std::int64_t>(phase_));
  state.put("round", round_);
  state.put("outstanding", static_cast<std::int64_t>(outstanding_));
  state.put("skips", skips_);
  if (gradient_.defined()) state.put("gradient", gradient_.clone());
  if (given_.x.defined()) {
    state.put("given.x", given_.x.read());
    state.put("given.w", given_.w);
  }
  local_.save_into(state);
  std::int64_t count = 0;
  for (const auto& [round, by_rank] : arrived_)
    for (const auto& [from, envelope] : by_rank)
      state.put_all("arrived." + std::to_string(count++), store_share(envelope));
  state.put("arrived.count", count);
  std::vector<std::int64_t> gone;
  for (const auto& [peer, last_round] : gone_) gone.insert(gone.end(), {peer, last_round});
  state.put_list("gone", gone);
  return state;
}

Expected<void> Gossip::load(const StateDict& state) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto phase = state.integer_in("phase", 0, static_cast<std::int64_t>(Phase::finished)),
             round = state.integer_in("round", -1, kMost),
             outstanding = state.integer_in("outstanding", 0, 1),
             skips = state.integer_in("skips", 0, settings_.staleness);
  for (const auto* field : {&phase, &round, &outstanding, &skips})
    if (!*field) return field->error();
  if (*outstanding == 1 && *round < 0)
    return bad_input("entry 'outstanding' of the saved state waits for a round before the first");
  phase_ = static_cast<Phase>(*phase);
  round_ = *round;
  outstanding_ = *outstanding != 0;
  skips_ = *skips;
  gradient_ = at::Tensor();
  if (state.entries().count("gradient") > 0) {
    const auto gradient = state.flat_tensor("gradient", model_.x.numel());
    if (!gradient) return gradient.error();
    gradient_ = gradient->clone();
  }
  given_ = {};
  if (state.entries().count("given.x") > 0) {
    const auto x = state.flat_tensor("given.x", model_.x.numel());
    const auto w = state.number("given.w");
    if (!x) return x.error();
    if (!w) return w.error();
    if (!outstanding_ || !(*w > 0 && std::isfinite(*w)))
      return bad_input("entry 'given.w' of the saved state is not above 0, or belongs to no round");
    given_ = {FrozenTensor::copy_of(*x), *w};
  }
  if (auto loaded = load_arrived(state); !loaded) return loaded;
  return local_.load_from(state, model_.x.numel(), false);
}

// Shares that wait to be folded, and the peers that have left.
Expected<void> Gossip::load_arrived(const StateDict& state) {
  const auto count = state.integer("arrived.count");
  if (!count) return count.error();
  const auto gone = state.list("gone");
  if (!gone) return gone.error();
  if (gone->size() % 2 != 0) return bad_input("entry 'gone' of the saved state is not in pairs");
  arrived_.clear();
  for (std::int64_t i = 0; i < *count; ++i) {
    auto envelope = load_share(state.under("arrived." + std::to_string(i)), rank_);
    if (!envelope) return envelope.error();
    const Share& share = std::get<Share>(envelope->payload);
    if (share.x.numel() != model_.x.numel() || !std::isfinite(share.w) || share.w <= 0)
      return bad_input("a share in the saved state is of another model, or weighs nothing");
    const std::int64_t of_round = share.round;
    const Rank from = envelope->from;
    if (!arrived_[of_round].emplace(from, std::move(*envelope)).second)
      return bad_input("the saved state has two shares of one round from one rank");
  }
  gone_.clear();
  for (std::size_t i = 0; i + 1 < gone->size(); i += 2)
    gone_[static_cast<Rank>((*gone)[i])] = (*gone)[i + 1];
  return {};
}

}  // namespace grapevine
