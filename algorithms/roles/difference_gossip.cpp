#include "algorithms/roles/difference_gossip.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "algorithms/collectives/packed_collective.hpp"
#include "algorithms/kernels/kernels.hpp"
#include "algorithms/roles/messages_of.hpp"

namespace grapevine {

DifferenceGossip::DifferenceGossip(std::shared_ptr<const SharedParts> parts, Rank rank,
                                   ModelState& model, std::unique_ptr<Optimizer> optimizer)
    : parts_(std::move(parts)),
      settings_(data_as<GossipSettings>(parts_->plan.settings)),
      rank_(rank),
      static_graph_(parts_->plan.graph.peers.values().size() == 1 && parts_->graph->period(0) == 1),
      compressor_(make_compressor(parts_->plan.compression)),
      model_(model),
      local_(parts_->plan.local, parts_->horizon, parts_->lr, 1, std::move(optimizer)) {}

// ---- training ----

void DifferenceGossip::on_start(Env& env) {
  if (outstanding_) begin_round(env);
  if (phase_ == Phase::computing) return compute(env);
  phase_ = Phase::ready;
  advance(env);
}

void DifferenceGossip::on_gradient(Env& env, Gradient gradient) {
  GRAPEVINE_CHECK(phase_ == Phase::computing, "a gradient arrived without a request");
  gradient_ = std::move(gradient.value).thaw();
  phase_ = Phase::ready;
  if (settings_.update == Update::before_exchange) {
    apply(env);
    if (!settings_.overlap && local_.exchange_due(model_.step)) push(env);
  }
  advance(env);
}

void DifferenceGossip::advance(Env& env) {
  const Step steps = model_.step + (gradient_.defined() ? 1 : 0);
  const bool exchanges_first = settings_.overlap || settings_.update == Update::after_exchange;
  if (outstanding_ && (!exchanges_first || local_.exchange_due(steps))) {
    if (!awaited_.empty()) return wait(env);
    mix(env);
  }
  if (gradient_.defined()) apply(env);
  if (model_.step >= parts_->horizon.steps) {
    phase_ = Phase::finished;
    return env.finished();
  }
  if (exchanges_first && local_.exchange_due(model_.step)) push(env);
  compute(env);
}

// x <- x - gamma u(g).
void DifferenceGossip::apply(Env& env) {
  at::Tensor g =
      local_.step(model_, std::move(gradient_), parts_->horizon.epoch_of(model_.step), pool_);
  env.recycle(FrozenTensor::freeze(std::move(g)));
  gradient_ = at::Tensor();
  ++model_.step;
  model_.epoch = parts_->horizon.epoch_of(model_.step);
  env.record({EventKind::committed, rank_, stamp(), model_.step - 1, 0, 0});
  env.record({EventKind::step_done, -1, stamp(), model_.step - 1, 0, 0});
}

// The links of round_, and the peers whose difference is missing: a function of the round, of the
// live peers and of the differences that have arrived.
void DifferenceGossip::begin_round(const Env& env) {
  links_ = parts_->graph->symmetric_shares(round_, rank_, [](Rank) { return true; }).links;
  awaited_.clear();
  for (const Shares::Link& link : links_)
    if (env.membership().is_alive(link.peer) && !has_arrived(link.peer)) awaited_.insert(link.peer);
}

// q = C(x_i - y_ij);  y_ij <- y_ij + q: once for all neighbours with the same replica.
void DifferenceGossip::push(Env& env) {
  ++round_;
  outstanding_ = true;
  begin_round(env);
  std::map<Rank, Packed> packed;
  for (const Shares::Link& link : links_) {
    if (!env.membership().is_alive(link.peer) && !has_arrived(link.peer)) continue;
    const Rank key = replica_key(link.peer);
    auto [entry, fresh] = packed.try_emplace(key);
    if (fresh) {
      at::Tensor& own = copy(own_replica_, key);
      if (!parts_->plan.compression.error_feedback) own.zero_();
      at::Tensor difference = pool_.take(model_.x.numel());
      kernels::subtract_into(difference, model_.x.read(), own);
      entry->second = compressor_->pack(difference, model_.epoch, env.rng());
      pool_.give(FrozenTensor::freeze(std::move(difference)));
      take_in(own, entry->second);
    }
    if (env.membership().is_alive(link.peer))
      env.send(link.peer, stamp(), PackedChunk{round_, 0, rank_, entry->second});
  }
}

// x_i <- x_i + eta sum_j W[i][j] (y_ji - y_ij), by rank. The difference is computed first: it
// has the bits of the other end's, with the opposite sign.
void DifferenceGossip::mix(Env& env) {
  outstanding_ = false;
  for (const Shares::Link& link : links_) {
    const auto arrived = arrived_.extract({round_, link.peer});
    if (arrived.empty()) continue;
    at::Tensor& theirs = copy(peer_replica_, link.peer);
    if (!parts_->plan.compression.error_feedback) theirs.zero_();
    take_in(theirs, arrived.mapped().packed);
    at::Tensor apart = pool_.take(model_.x.numel());
    kernels::subtract_into(apart, theirs, copy(own_replica_, replica_key(link.peer)));
    apart.mul_(parts_->plan.compression.consensus_step * link.weight);
    update_frozen(model_.x, pool_,
                  [&](at::Tensor& out, const at::Tensor& x) { kernels::fold_into(out, x, apart); });
    pool_.give(FrozenTensor::freeze(std::move(apart)));
    const Stamp& stamp = arrived.mapped().stamp;
    const std::int64_t age = model_.step - 1 - stamp.step;
    env.record({EventKind::applied, link.peer, stamp, model_.step, std::max<std::int64_t>(0, age),
                compressor_->bytes(model_.x.numel(), model_.epoch)});
  }
}

void DifferenceGossip::compute(Env& env) {
  phase_ = Phase::computing;
  env.compute(model_.step, model_.x);
}

void DifferenceGossip::wait(Env& env) {
  phase_ = Phase::waiting;
  env.record({EventKind::wait_begin, *awaited_.begin(), stamp(), model_.step, 0, 0});
}

// ---- messages ----

void DifferenceGossip::on_message(Env& env, Envelope envelope) {
  auto* chunk = std::get_if<PackedChunk>(&envelope.payload);
  GRAPEVINE_CHECK(chunk != nullptr && chunk->sender == envelope.from, "rank ", envelope.from,
                  " sent compressed gossip a message that is not its own difference");
  if (chunk->operation == round_) awaited_.erase(envelope.from);
  const bool fresh =
      arrived_
          .try_emplace({chunk->operation, envelope.from}, Difference{envelope.stamp, chunk->data})
          .second;
  GRAPEVINE_CHECK(fresh, "two differences of one round from rank ", envelope.from);
  resume_if_complete(env);
}

void DifferenceGossip::on_peer_down(Env& env, Rank peer) {
  awaited_.erase(peer);  // a difference that has arrived still counts
  resume_if_complete(env);
}

// A rank that returns takes part again only through a restart: its replicas are lost.
void DifferenceGossip::on_peer_up(Env&, Rank) {}

void DifferenceGossip::on_timer(Env&, TimerId) {}

void DifferenceGossip::resume_if_complete(Env& env) {
  if (phase_ != Phase::waiting || !awaited_.empty()) return;
  env.record({EventKind::wait_end, -1, stamp(), model_.step, 0, 0});
  phase_ = Phase::ready;
  advance(env);
}

// All replicas start at zero, at both ends.
at::Tensor& DifferenceGossip::copy(std::map<Rank, at::Tensor>& copies, Rank key) const {
  at::Tensor& tensor = copies[key];
  if (!tensor.defined()) tensor = at::zeros({model_.x.numel()}, at::kFloat);
  return tensor;
}

void DifferenceGossip::take_in(at::Tensor& copy, const Packed& packed) const {
  const auto folded = compressor_->fold(copy, packed, 1);
  GRAPEVINE_CHECK(folded.ok(), folded.error().message);
}

// The age of this rank's messages is that of its last gradient.
Stamp DifferenceGossip::stamp() const { return stamp_of(rank_, model_.step - 1, model_.step); }

// ---- checkpoints ----

StateDict DifferenceGossip::save() const {
  StateDict state;
  state.put("phase", static_cast<std::int64_t>(phase_));
  state.put("round", round_);
  state.put("outstanding", static_cast<std::int64_t>(outstanding_));
  if (gradient_.defined()) state.put("gradient", gradient_.clone());
  local_.save_into(state);
  for (const auto& [name, copies] : {std::pair{"told", &own_replica_}, {"heard", &peer_replica_}}) {
    std::vector<std::int64_t> keys;
    for (const auto& [key, tensor] : *copies) {
      keys.push_back(key);
      state.put(std::string(name) + "." + std::to_string(key), tensor.clone());
    }
    state.put_list(std::string(name) + ".keys", keys);
  }
  std::int64_t count = 0;
  for (const auto& [key, difference] : arrived_) {
    StateDict entry = save_packed(difference.packed);
    entry.put("round", key.first);
    entry.put("from", std::int64_t{key.second});
    entry.put("step", difference.stamp.step);
    entry.put("version", difference.stamp.version);
    entry.put("sequence", static_cast<std::int64_t>(difference.stamp.sequence));
    state.put_all("arrived." + std::to_string(count++), entry);
  }
  state.put("arrived.count", count);
  return state;
}

Expected<void> DifferenceGossip::load(const StateDict& state) {
  const auto phase = state.integer_in("phase", 0, static_cast<std::int64_t>(Phase::finished)),
             round = state.integer_in("round", -1, std::numeric_limits<std::int64_t>::max() / 2),
             outstanding = state.integer_in("outstanding", 0, 1),
             count = state.integer("arrived.count");
  for (const auto* field : {&phase, &round, &outstanding, &count})
    if (!*field) return field->error();
  if (*outstanding == 1 && *round < 0)
    return bad_input("entry 'outstanding' of the saved state waits for a round before the first");
  phase_ = static_cast<Phase>(*phase);
  round_ = *round;
  outstanding_ = *outstanding != 0;
  gradient_ = at::Tensor();
  if (state.entries().count("gradient") > 0) {
    const auto gradient = state.flat_tensor("gradient", model_.x.numel());
    if (!gradient) return gradient.error();
    gradient_ = gradient->clone();
  }
  for (const auto& [name, copies] : {std::pair{"told", &own_replica_}, {"heard", &peer_replica_}}) {
    const auto keys = state.list(std::string(name) + ".keys");
    if (!keys) return keys.error();
    copies->clear();
    for (const std::int64_t key : *keys) {
      const auto tensor =
          state.flat_tensor(std::string(name) + "." + std::to_string(key), model_.x.numel());
      if (!tensor) return tensor.error();
      (*copies)[static_cast<Rank>(key)] = tensor->clone();
    }
  }
  arrived_.clear();
  for (std::int64_t i = 0; i < *count; ++i)
    if (auto loaded = load_difference(state.under("arrived." + std::to_string(i))); !loaded)
      return loaded;
  return local_.load_from(state, model_.x.numel(), false);
}

Expected<void> DifferenceGossip::load_difference(const StateDict& state) {
  const auto round = state.integer("round"), from = state.integer("from"),
             step = state.integer("step"), version = state.integer("version"),
             sequence = state.integer("sequence");
  for (const auto* field : {&round, &from, &step, &version, &sequence})
    if (!*field) return field->error();
  auto packed = load_packed(state, [this](const Packed& difference) {
    return compressor_->check(difference, model_.x.numel());
  });
  if (!packed) return packed.error();
  Difference difference;
  difference.stamp.origin = static_cast<Rank>(*from);
  difference.stamp.step = *step;
  difference.stamp.version = *version;
  difference.stamp.sequence = static_cast<std::uint64_t>(*sequence);
  difference.packed = std::move(*packed);
  arrived_.try_emplace({*round, static_cast<Rank>(*from)}, std::move(difference));
  return {};
}

}  // namespace grapevine
