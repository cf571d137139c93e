#include "algorithms/roles/bilateral/bilateral.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <set>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/wiring/plan.hpp"

namespace grapevine {
Bilateral::Bilateral(RoleContext context)
    : TrainingRole(std::move(context)),
      is_active_(data_as<BilateralSides>(parts_->prepared).active[static_cast<std::size_t>(rank_)]),
      steps_(ranks_) {
  GRAPEVINE_CHECK(parts_->graph != nullptr, "bilateral averaging needs a graph");
  pool_.add_capacity(2);  // answers, beside the model before the step, which a partner reads
  if (plan().compression.enabled())
    replicas_.emplace(plan().compression, model_.x.numel(), model_.x.device());
}

// ---- the worker's side ----

// A gradient that was requested before a checkpoint is requested again. This holds also where the
// total has reached its end since: a node that computes the gradient waits for nothing else.
void Bilateral::on_start(Env& env) {
  if (model_.step == 0) local_.begin(model_);
  if (phase_ == Phase::computing) return compute(env);
  next_step(env);
}

// Active ranks may still ask a finished one: it continues to answer.
void Bilateral::next_step(Env& env) {
  if (steps_.total() < goal()) return compute(env);
  send_progress_update(env);
  finish(env);
}

// x <- x - gamma u(g): of the model as it is now, not as the worker saw it.
void Bilateral::on_gradient(Env& env, Gradient gradient) {
  const double epoch = model_.epoch;
  local_step(env, take(std::move(gradient)), epoch);
  ++model_.step;
  steps_.set(rank_, model_.step - first_step_);
  update_clock();
  env.record({EventKind::committed, rank_, stamp(), model_.step - 1, 0, 0});
  env.record({EventKind::step_done, -1, stamp(), model_.step - 1, 0, 0});
  if (exchanges().on_schedule(model_.step)) {
    local_.step_to_mixed(model_, epoch, pool_);
    if (is_active_ && asked_ < 0) start_exchange(env);
  }
  next_step(env);
}

// ---- the exchange ----

void Bilateral::start_exchange(Env& env) {
  const std::optional<Rank> partner = next_partner();
  if (!partner) return;
  asked_ = *partner;
  const std::int64_t exchange = exchange_++;
  if (compressed()) return send_difference(env, asked_, exchange, false);
  env.send(asked_, stamp(), Swap{exchange, false, model_.x, steps_.counts()});
}

// In the order of the graph's rounds.
std::optional<Rank> Bilateral::next_partner() {
  const std::int64_t last = round_ + parts_->graph->period(round_);
  for (; partners_.empty() && round_ < last; ++round_) {
    const std::vector<Rank> near = parts_->graph->neighbors(round_, rank_);
    partners_.assign(near.begin(), near.end());
  }
  if (partners_.empty()) return std::nullopt;
  const Rank partner = partners_.front();
  partners_.pop_front();
  return partner;
}

void Bilateral::on_message(Env& env, Envelope envelope) {
  if (const auto* update = std::get_if<ProgressUpdate>(&envelope.payload))
    return learn(update->steps);
  if (const auto* swap = std::get_if<Swap>(&envelope.payload); swap && !compressed())
    return on_swap(env, envelope, *swap);
  const auto* chunk = std::get_if<PackedChunk>(&envelope.payload);
  GRAPEVINE_CHECK(chunk != nullptr && compressed(), "rank ", envelope.from,
                  " sent bilateral averaging neither a model nor a progress update");
  on_difference(env, envelope, *chunk);
}

// Passive: h = (s - x)/2;  x <- x + h; from here on the pair's sum is complete only with h in the
// answer. Active: x <- x - h; the worker may have changed x since the request.
void Bilateral::on_swap(Env& env, const Envelope& envelope, const Swap& swap) {
  GRAPEVINE_CHECK(swap.x.numel() == model_.x.numel(), "rank ", envelope.from,
                  " sent a model of another size");
  learn(swap.steps);
  record_average(env, envelope);
  if (swap.reply) {
    move_along(swap.x, false);
    return exchange_over(envelope.from, swap.exchange);
  }
  at::Tensor half = pool_.take(model_.x);
  update_frozen(model_.x, pool_, [&](at::Tensor& out, const at::Tensor& x) {
    kernels::meet_into(out, half, x, swap.x.read());
  });
  FrozenTensor answer = FrozenTensor::freeze(std::move(half));
  pool_.give(answer);  // for a later one, once it was read
  env.send(envelope.from, stamp(), Swap{swap.exchange, true, std::move(answer), steps_.counts()});
}

// The same with the pair's replicas in the place of s and x. The passive rank's replica follows its
// model first, so that both ends compute h from the same two.
void Bilateral::on_difference(Env& env, const Envelope& envelope, const PackedChunk& chunk) {
  const Rank peer = envelope.from;
  const bool reply = chunk.round == 1;
  GRAPEVINE_CHECK(
      chunk.sender == peer && (!reply || (peer == asked_ && chunk.operation == exchange_ - 1)),
      "rank ", peer, " sent a difference that is not its own, or that was not asked for");
  record_average(env, envelope);
  replicas_->take_in(peer, {chunk.data});
  if (!reply) send_difference(env, peer, chunk.operation, true);
  at::Tensor half = pool_.take(model_.x);
  const at::Tensor &own = replicas_->own(peer), &other = replicas_->of_peer(peer);
  kernels::subtract_into(half, reply ? own : other, reply ? other : own);
  half.mul_(plan().compression.consensus_step / 2);
  FrozenTensor way = FrozenTensor::freeze(std::move(half));
  move_along(way, !reply);
  pool_.give(std::move(way));
  if (reply) exchange_over(peer, chunk.operation);
}

void Bilateral::send_difference(Env& env, Rank to, std::int64_t exchange, bool reply) {
  Packed packed =
      std::move(replicas_->differences(model_.x.read(), to, model_.epoch, env.rng()).front());
  env.send(to, stamp(), ProgressUpdate{steps_.counts()});
  env.send(to, stamp(), PackedChunk{exchange, reply ? 1 : 0, rank_, std::move(packed)});
}

void Bilateral::move_along(const FrozenTensor& half, bool towards) {
  update_frozen(model_.x, pool_, [&](at::Tensor& out, const at::Tensor& x) {
    towards ? kernels::fold_into(out, x, half.read()) : kernels::subtract_into(out, x, half.read());
  });
}

void Bilateral::exchange_over(Rank passive, std::int64_t exchange) {
  if (passive == asked_ && exchange == exchange_ - 1) asked_ = -1;
}

void Bilateral::record_average(Env& env, const Envelope& envelope) const {
  const std::int64_t age = model_.step - 1 - envelope.stamp.step;
  env.record({EventKind::applied, envelope.from, envelope.stamp, model_.step,
              std::max<std::int64_t>(0, age),
              compressed() ? replicas_->bytes(model_.epoch) : model_.x.nbytes()});
}

// To all neighbours of the next rounds; each sends its own update when it finishes.
void Bilateral::send_progress_update(Env& env) const {
  std::set<Rank> near;
  const std::int64_t period = parts_->graph->period(round_);
  for (std::int64_t round = round_; round < round_ + period; ++round)
    for (const Rank peer : parts_->graph->neighbors(round, rank_)) near.insert(peer);
  const FrozenTensor steps = steps_.counts();
  for (const Rank peer : near) env.send(peer, stamp(), ProgressUpdate{steps});
}

// ---- a change of members ----

// All answers have arrived but that of a lost partner: the half that it took is lost with it. Pairs
// and replicas begin anew.
std::int64_t Bilateral::close(Env& env) {
  asked_ = -1;
  of_lost_ = 0;
  for (Rank rank = 0; rank < ranks_; ++rank)
    if (!env.membership().is_alive(rank)) of_lost_ += steps_.of(rank);
  return 0;
}

void Bilateral::own_fields(Archive& a) {
  a.count("exchange", exchange_);
  if (a.loads()) first_step_ = model_.step;
}

void Bilateral::joiner_fields(Archive& a) {
  if (a.loads()) first_step_ = model_.step;
}

void Bilateral::take_over(const at::Tensor& optimizer) {
  TrainingRole::take_over(optimizer);
  first_step_ = model_.step;
}

// ---- the clock ----

void Bilateral::learn(const FrozenTensor& counts) {
  steps_.learn(counts);
  update_clock();
}

void Bilateral::update_clock() {
  model_.epoch = parts_->horizon.epoch_after(steps_.total(), ranks_);
}

void Bilateral::fields(Archive& a) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  common_fields(a);
  a.count("first_step", first_step_);
  steps_.fields(a);
  a.whole("exchange", exchange_, 0, kMost);
  a.whole("asked", asked_, -1, ranks_ - 1);
  a.whole("round", round_, 0, kMost);
  std::vector<Rank> partners(partners_.begin(), partners_.end());
  a.list("partners", partners, 0, ranks_ - 1);
  a.require(std::find(partners.begin(), partners.end(), rank_) == partners.end(), "partners",
            "names this rank");
  if (compressed()) a.part("replicas", *replicas_);
  if (!a.loads() || !a.ok()) return;
  partners_.assign(partners.begin(), partners.end());
  update_clock();
}

}  // namespace grapevine
