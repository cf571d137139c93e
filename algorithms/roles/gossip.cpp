#include "algorithms/roles/gossip.hpp"

#include <algorithm>
#include <limits>

#include "algorithms/kernels.hpp"
#include "algorithms/roles/stored_envelope.hpp"

namespace grapevine {

Gossip::Gossip(std::shared_ptr<const SharedParts> parts, Rank rank, ModelState& model,
               std::unique_ptr<Optimizer> optimizer)
    : parts_(std::move(parts)), rank_(rank), model_(model), optimizer_(std::move(optimizer)) {
  GRAPEVINE_CHECK(parts_->graph != nullptr, "gossip needs a graph");
}

// ---- the beats ----

void Gossip::on_start(Env& env) {
  if (phase_ == Phase::computing) return compute(env);
  if (phase_ == Phase::finished) {
    if (model_.step >= parts_->horizon.steps) return finish(env);
    // Everybody goes on: from the round after the newest that anybody took part in, which all know
    // from the others' Leaves.
    for (const auto& [peer, last_round] : gone_) round_ = std::max(round_, last_round);
    gone_.clear();
  }
  phase_ = Phase::ready;
  advance(env);
}

// x <- x - gamma u(z); without overlap the share that stays here is scaled in the same pass.
void Gossip::on_gradient(Env& env, Gradient gradient) {
  GRAPEVINE_CHECK(phase_ == Phase::computing, "a gradient that was not asked for");
  pool_.give(std::move(z_));
  const bool overlap = parts_->plan.overlap;
  const std::vector<Rank> peers = overlap ? std::vector<Rank>{} : next_peers(env);
  at::Tensor g = std::move(gradient.value).thaw();
  model_.lr = parts_->lr.at(parts_->horizon.epoch_of(model_.step));
  update_x([&](at::Tensor& out, const at::Tensor& x) {
    optimizer_->step_into(out, x, g, model_.lr, kept_share(peers));
  });
  model_.w *= kept_share(peers);
  env.recycle(FrozenTensor::freeze(std::move(g)));
  ++model_.step;
  env.record({EventKind::committed, rank_, stamp(), model_.step - 1, 0, 0});
  env.record({EventKind::step_done, -1, stamp(), model_.step - 1, 0, 0});
  phase_ = Phase::ready;
  if (!overlap) send_shares(env, peers);
  advance(env);
}

// Settles the outstanding round, then takes the next step. A round is folded where it is complete,
// skipped at most tau iterations running where gossip overlaps, and waited for otherwise.
void Gossip::advance(Env& env) {
  const bool last = model_.step >= parts_->horizon.steps;
  if (outstanding_ && round_complete()) fold_arrived(env, round_);
  if (outstanding_ && (last || !parts_->plan.overlap || skips_ == parts_->plan.staleness))
    return wait(env);
  if (last) return finish(env);
  if (outstanding_)
    ++skips_;
  else if (parts_->plan.overlap)
    push(env);
  compute(env);
}

void Gossip::push(Env& env) {
  const std::vector<Rank> peers = next_peers(env);
  if (!peers.empty())
    update_x([&](at::Tensor& out, const at::Tensor& x) {
      kernels::scale_into(out, x, kept_share(peers));
    });
  model_.w *= kept_share(peers);
  send_shares(env, peers);
}

// x and w have been scaled: what stays here is what every peer of the round gets.
void Gossip::send_shares(Env& env, const std::vector<Rank>& peers) {
  ++round_;
  outstanding_ = true;
  skips_ = 0;
  for (const Rank peer : peers) env.send(peer, stamp(), Share{round_, model_.w, model_.x});
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
  for (const Rank peer : parts_->graph->in(round_, rank_))
    if (!has_arrived(peer, round_)) {
      env.record({EventKind::wait_begin, peer, stamp(), model_.step, 0, 0});
      return;
    }
}

void Gossip::finish(Env& env) {
  phase_ = Phase::finished;
  fold_arrived(env, std::numeric_limits<std::int64_t>::max());
  // Ranks that skipped other rounds may still expect this one to take part.
  if (parts_->plan.staleness > 0) {
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
  } else {
    const auto* share = std::get_if<Share>(&envelope.payload);
    GRAPEVINE_CHECK(share != nullptr && share->x.numel() == model_.x.numel(),
                    "gossip got something else than a share from rank ", from);
    const bool fresh = arrived_[share->round].emplace(from, std::move(envelope)).second;
    GRAPEVINE_CHECK(fresh, "two shares of one round from rank ", from);
  }
  settle(env);
}

void Gossip::on_peer_down(Env& env, Rank peer) {
  gone_[peer] = -1;  // what has arrived is folded, nothing more is expected
  settle(env);
}

// A rank that comes back takes part again only through a restart: its rounds cannot be guessed.
void Gossip::on_peer_up(Env&, Rank) {}

void Gossip::on_timer(Env&, TimerId) {}

// Something arrived or left: whoever waited may go on; whoever finished keeps late mass.
void Gossip::settle(Env& env) {
  if (phase_ == Phase::finished) return fold_arrived(env, std::numeric_limits<std::int64_t>::max());
  if (phase_ != Phase::waiting || !round_complete()) return;
  env.record({EventKind::wait_end, -1, stamp(), model_.step, 0, 0});
  phase_ = Phase::ready;
  advance(env);
}

bool Gossip::has_arrived(Rank peer, std::int64_t round) const {
  const auto it = arrived_.find(round);
  return it != arrived_.end() && it->second.count(peer) > 0;
}

bool Gossip::expects(Rank peer, std::int64_t round) const {
  const auto it = gone_.find(peer);
  return it == gone_.end() || round <= it->second;
}

// Whom the next round goes to: those of the graph that are still there.
std::vector<Rank> Gossip::next_peers(const Env& env) const {
  std::vector<Rank> peers;
  for (const Rank peer : parts_->graph->out(round_ + 1, rank_))
    if (env.membership().is_alive(peer) && expects(peer, round_ + 1)) peers.push_back(peer);
  return peers;
}

// lo = 1/(p+1): column-stochastic whatever p is.
double Gossip::kept_share(const std::vector<Rank>& peers) {
  return 1.0 / static_cast<double>(peers.size() + 1);
}

bool Gossip::round_complete() const {
  const std::vector<Rank>& in = parts_->graph->in(round_, rank_);
  return std::all_of(in.begin(), in.end(), [&](Rank peer) {
    return has_arrived(peer, round_) || !expects(peer, round_);
  });
}

// x += sum of x_j, w += sum of w_j over all shares up to `round`, by round and then rank: the
// order, and with it the result, does not depend on which came first.
void Gossip::fold_arrived(Env& env, std::int64_t round) {
  while (!arrived_.empty() && arrived_.begin()->first <= round) {
    for (const auto& [from, envelope] : arrived_.begin()->second) {
      const Share& share = std::get<Share>(envelope.payload);
      update_x([&share](at::Tensor& out, const at::Tensor& x) {
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
}

// ---- the model ----

FrozenTensor Gossip::debiased() const {
  if (model_.w == 1.0) return model_.x;
  at::Tensor z = at::empty_like(model_.x.read());
  kernels::debias(z, model_.x.read(), model_.w);
  return FrozenTensor::freeze(std::move(z));
}

// x <- f(x): in place where nobody else reads x, into another buffer where somebody does.
template <class F>
void Gossip::update_x(F&& f) {
  if (model_.x.sole_owner()) {
    at::Tensor x = std::move(model_.x).thaw();
    f(x, x);
    model_.x = FrozenTensor::freeze(std::move(x));
  } else {
    at::Tensor out = pool_.take(model_.x.numel());
    f(out, model_.x.read());
    pool_.give(std::move(model_.x));
    model_.x = FrozenTensor::freeze(std::move(out));
  }
}

// What this rank says is as new as its last gradient.
Stamp Gossip::stamp() const {
  Stamp stamp;
  stamp.origin = rank_;
  stamp.step = model_.step - 1;
  stamp.version = model_.step;
  return stamp;
}

// ---- checkpoints ----

StateDict Gossip::save() const {
  StateDict state;
  state.put("phase", static_cast<std::int64_t>(phase_));
  state.put("round", round_);
  state.put("outstanding", static_cast<std::int64_t>(outstanding_));
  state.put("skips", skips_);
  state.put_all("optimizer", optimizer_->save());
  std::int64_t count = 0;
  for (const auto& [round, by_rank] : arrived_)
    for (const auto& [from, envelope] : by_rank)
      state.put_all("arrived." + std::to_string(count++), store_share(envelope));
  state.put("arrived.count", count);
  for (const auto& [peer, last_round] : gone_)
    state.put("gone." + std::to_string(peer), last_round);
  return state;
}

Expected<void> Gossip::load(const StateDict& state) {
  const auto phase = state.integer("phase"), round = state.integer("round"),
             outstanding = state.integer("outstanding"), skips = state.integer("skips"),
             count = state.integer("arrived.count");
  for (const auto* field : {&phase, &round, &outstanding, &skips, &count})
    if (!*field) return field->error();
  phase_ = static_cast<Phase>(*phase);
  round_ = *round;
  outstanding_ = *outstanding != 0;
  skips_ = *skips;
  arrived_.clear();
  for (std::int64_t i = 0; i < *count; ++i) {
    auto envelope = load_share(state.under("arrived." + std::to_string(i)), rank_);
    if (!envelope) return envelope.error();
    const std::int64_t of_round = std::get<Share>(envelope->payload).round;
    const Rank from = envelope->from;
    arrived_[of_round].emplace(from, std::move(*envelope));
  }
  gone_.clear();
  const StateDict gone = state.under("gone");
  for (const auto& [peer, last_round] : gone.entries())
    gone_[static_cast<Rank>(std::stol(peer))] = std::get<std::int64_t>(last_round);
  return optimizer_->load(state.under("optimizer"));
}

}  // namespace grapevine
