#include "algorithms/roles/server/server_client.hpp"

#include <ATen/ATen.h>

#include <string>
#include <utility>

#include "algorithms/compressors/sparse_compressor.hpp"
#include "algorithms/kernels/kernels.hpp"
#include "messages/check.hpp"
#include "messages/tensor_memory.hpp"

namespace grapevine {

ServerClient::ServerClient(RoleContext context)
    : TrainingRole(RoleContext{context.parts, context.rank, context.ranks, context.model,
                               std::move(context.optimizer)}),
      settings_(server_settings(*parts_)),
      servers_(plan().servers),
      rule_(settings_.rule->client(context, local_)),
      pulled_(servers_) {
  pool_.add_capacity(static_cast<std::size_t>(servers_));  // commits
  for (std::int32_t server = 0; plan().compression.enabled() && server < servers_; ++server) {
    const Slice part = slice(server);
    packed_.emplace_back(settings_of_slice(plan().compression, part.begin, part.size), part.size);
  }
}

// ---- training ----

// Clients and servers start from the same parameters: there is nothing to pull. A client that has
// taken its last step waits for receipts as long as commits are outstanding.
void ServerClient::on_start(Env& env) {
  if (phase_ == Phase::waiting || (phase_ == Phase::ready && at_end() && !outstanding_.empty()))
    return;
  at_end() ? leave(env) : compute(env);
}

void ServerClient::on_gradient(Env& env, Gradient gradient) {
  at::Tensor g = take(std::move(gradient));
  if (!settings_.rule->has_optimizer) local_.clip_own(g);
  rule_->step(env, model_, std::move(g), epoch_now());
  ++held_;
  if (!local_.exchange_due(model_.step + 1)) {
    step_done(env);
    return compute(env);
  }
  exchange(env);
}

void ServerClient::step_done(Env& env) {
  const Stamp done = stamp();
  count_step();
  env.record({EventKind::step_done, -1, done, done.step, 0, 0});
}

// With overlap the answer to the exchange before this one comes first.
void ServerClient::exchange(Env& env) {
  answer_due_ && !pulled_.complete() ? wait(env) : offer(env);
}

// A rule that takes turns asks for one; the other rules commit without theta. A single server
// receives the whole vector without a copy.
void ServerClient::offer(Env& env) {
  const std::vector<Version> computed_at = pulled_.versions();
  if (answer_due_) use_answer(env);
  ++exchange_;
  outstanding_.send(exchange_, steps_given(), servers_);
  const std::int64_t gradients = std::exchange(held_, 0);
  const FrozenTensor offered = rule_->offer(model_, gradients);
  answer_due_ = true;
  if (!settings_.overlap) wait(env);
  for (std::int32_t server = 0; server < servers_; ++server) {
    const Stamp stamp = stamp_at(computed_at[static_cast<std::size_t>(server)]);
    if (takes_turns())
      env.send(rank_of(server), stamp, Ask{exchange_});
    else
      commit(env, server, stamp, gradients, part_of(offered, slice(server)));
  }
  if (!settings_.overlap) return;
  sent_ = model_.x;
  step_done(env);
  at_end() ? wait(env) : compute(env);
}

void ServerClient::commit(Env& env, std::int32_t server, const Stamp& stamp, std::int64_t gradients,
                          FrozenTensor update) {
  const Rank to = rank_of(server);
  if (packed_.empty()) return env.send(to, stamp, Commit{exchange_, gradients, std::move(update)});
  at::Tensor vector = std::move(update).thaw();
  PackedCommits& packed = packed_[static_cast<std::size_t>(server)];
  env.send(to, stamp, packed.commit(exchange_, gradients, rank_, vector, model_.epoch, env.rng()));
}

void ServerClient::on_message(Env& env, Envelope envelope) {
  const std::int32_t server = envelope.from - ranks_;
  GRAPEVINE_CHECK(server >= 0 && server < servers_, "rank ", envelope.from, " is no server");
  if (auto* grant = std::get_if<Grant>(&envelope.payload))
    on_grant(env, server, envelope.stamp, std::move(*grant));
  else if (auto* receipt = std::get_if<Receipt>(&envelope.payload))
    on_receipt(env, server, envelope.stamp, std::move(*receipt));
  else
    GRAPEVINE_CHECK(false, "rank ", envelope.from, " sent a client neither a grant nor a receipt");
}

// This client's turn: the commit is made from theta as it is now.
void ServerClient::on_grant(Env& env, std::int32_t server, const Stamp& stamp, Grant grant) {
  GRAPEVINE_CHECK(phase_ == Phase::waiting && grant.exchange == exchange_, "rank ", rank_of(server),
                  " granted exchange ", grant.exchange,
                  ", for which no request of this client is open");
  GRAPEVINE_CHECK(slice(server).size == grant.theta.numel(), "rank ", rank_of(server),
                  " granted a slice of another size");
  at::Tensor update = pool_.take(grant.theta);
  rule_->commit_into(update, slice(server), grant.theta, model_);
  FrozenTensor given = FrozenTensor::freeze(std::move(update));
  if (packed_.empty()) pool_.give(given);  // for a later one; compression writes to it
  commit(env, server, stamp_for(server), 1, std::move(given));
  pulled(env, server, stamp.version, std::move(grant.theta));
}

void ServerClient::on_receipt(Env& env, std::int32_t server, const Stamp& stamp, Receipt receipt) {
  if (!packed_.empty())
    packed_[static_cast<std::size_t>(server)].on_receipt(receipt.exchange, receipt.accepted);
  record_outcome(env, receipt.exchange, receipt.accepted);
  if (!takes_turns()) return pulled(env, server, stamp.version, std::move(receipt.value));
  if (phase_ == Phase::ready && outstanding_.empty()) leave(env);
}

// Uses the answers once all have arrived; with overlap only where this client waits for them.
void ServerClient::pulled(Env& env, std::int32_t server, Version version, FrozenTensor value) {
  pulled_.take_in(server, version, std::move(value));
  if (!pulled_.complete() || phase_ != Phase::waiting) return;
  stop_waiting(env);
  const bool offers = settings_.overlap && !at_end();
  if (offers) return offer(env);
  use_answer(env);
  if (!settings_.overlap) step_done(env);
  if (!at_end()) return compute(env);
  if (outstanding_.empty()) leave(env);
}

// At its end a client waits for receipts, of any of its servers.
std::vector<Awaited> ServerClient::waits() const {
  const bool at_last = phase_ == Phase::ready && at_end() && !outstanding_.empty();
  if (at_last) return {{servers_ == 1 ? rank_of(0) : -1, PayloadKind::receipt, exchange_}};
  return TrainingRole::waits();
}

std::vector<Awaited> ServerClient::awaited() const {
  const PayloadKind answer = takes_turns() ? PayloadKind::grant : PayloadKind::receipt;
  std::vector<Awaited> missing;
  for (std::int32_t server = 0; server < servers_; ++server)
    if (!pulled_.has(server)) missing.push_back({rank_of(server), answer, exchange_});
  return missing;
}

// The steps since the offer, with overlap, are taken from the answer.
void ServerClient::use_answer(Env& env) {
  answer_due_ = false;
  const FrozenTensor now = model_.x, sent = std::exchange(sent_, FrozenTensor());
  if (sent.defined()) model_.x = sent;
  rule_->take(env, model_, pulled_.take(now));
  if (sent.defined() && sent.read().data_ptr() != now.read().data_ptr())
    model_.x = frozen_successor(now, model_.x.read() + (now.read() - sent.read()));
}

// Gradients count as committed or dropped once the receipts of all servers have arrived.
void ServerClient::record_outcome(Env& env, std::int64_t exchange, bool accepted) {
  if (const auto outcome = outstanding_.on_receipt(exchange, accepted))
    account_for(env, exchange, *outcome);
}

void ServerClient::account_for(Env& env, std::int64_t exchange,
                               const OutstandingCommits::Outcome& outcome) {
  if (outcome.refused && !packed_.empty() && packed_.front().keeps_refused()) {
    resend_steps_.insert(resend_steps_.end(), outcome.steps.begin(), outcome.steps.end());
    return;
  }
  record(env, outcome.refused ? EventKind::dropped : EventKind::committed, outcome.steps, exchange);
}

void ServerClient::record(Env& env, EventKind kind, const std::vector<Step>& steps,
                          std::int64_t exchange) {
  for (const Step step : steps) {
    Stamp of_gradient = stamp();
    of_gradient.step = step;
    env.record({kind, ranks_, of_gradient, model_.step, 0, 0, exchange});
  }
}

// The gradients of this exchange, and refused ones whose residual it sends again.
std::vector<Step> ServerClient::steps_given() {
  std::vector<Step> steps = std::exchange(resend_steps_, {});
  for (Step step = model_.step + 1 - held_; step <= model_.step; ++step) steps.push_back(step);
  return steps;
}

void ServerClient::leave(Env& env) {
  for (std::int32_t server = 0; server < servers_; ++server)
    if (env.membership().is_alive(rank_of(server)))
      env.send(rank_of(server), stamp_for(server), Leave{exchange_});
  finish(env);
}

// Answers that are still due, of a synchronous round, come to the role that follows.
std::int64_t ServerClient::close(Env&) { return 0; }

// Besides the state of the local steps: the versions that the copy is of.
void ServerClient::joiner_fields(Archive& a) {
  pulled_.version_fields(a);
  if (a.loads() && a.ok()) local_.restart(model_);
}

// ---- a change of the wiring ----

// No answer is on its way. An offer in a synchronous round that is still open, of a model, comes to
// nothing at its server: its gradients are in the model. A turn may be due, of a server whose grant
// a lost client had: no server grants one any more.
void ServerClient::flush(Env& env) {
  const bool amid_step = phase_ == Phase::waiting && (!settings_.overlap || held_ > 0);
  if (phase_ == Phase::waiting) stop_waiting(env);
  if (answer_due_ && pulled_.complete()) use_answer(env);
  if (!offers_models()) model_.x = FrozenTensor::freeze(uncommitted());
  answer_due_ = false;
  sent_ = {};
  if (amid_step) step_done(env);
  for (const auto& outcome : outstanding_.take_all()) account_for(env, exchange_, outcome);
  std::vector<Step> steps = std::exchange(resend_steps_, {});
  for (; held_ > 0; --held_) steps.push_back(model_.step - held_);
  record(env, EventKind::committed, steps, exchange_);
}

// What the servers would have added for the steps since the last offer, for one that waits for its
// turn, and for what compression has kept back.
at::Tensor ServerClient::uncommitted() {
  at::Tensor sum =
      held_ > 0 ? rule_->offer(model_, held_).read().clone() : at::zeros_like(model_.x.read());
  if (takes_turns() && answer_due_) add_step_without_turn(sum);
  for (std::size_t server = 0; server < packed_.size(); ++server) {
    const at::Tensor& residual = packed_[server].residual();
    if (!residual.defined()) continue;
    const Slice part = slice(static_cast<std::int32_t>(server));
    at::Tensor of_server = sum.narrow(0, part.begin, part.size);
    kernels::fold(of_server, residual);
  }
  kernels::scale(sum, rule_->commit_factor(model_));
  return sum;
}

// In the slices of servers that have granted the turn the commit has arrived, with its receipt.
void ServerClient::add_step_without_turn(at::Tensor& sum) const {
  for (std::int32_t server = 0; server < servers_; ++server) {
    if (pulled_.has(server)) continue;
    const Slice part = slice(server);
    at::Tensor of_server = sum.narrow(0, part.begin, part.size);
    kernels::fold(of_server, rule_->step_in(part));
  }
}

// The state of an optimizer that no step of this rule moves on would be an old one later.
void ServerClient::take_over(const at::Tensor& optimizer) {
  settings_.rule->has_optimizer ? TrainingRole::take_over(optimizer) : local_.restart(model_);
}

// ---- checkpoints ----

void ServerClient::fields(Archive& a) {
  common_fields(a);
  a.whole("held", held_, 0, model_.step);
  a.count("exchange", exchange_);
  a.nested("rule", [this](Archive& inner) {
    rule_->fields(inner, model_.x.numel(), phase_ == Phase::waiting);
  });
  pulled_.fields(a, [this](std::int32_t server) { return slice(server).size; });
  for (std::size_t server = 0; server < packed_.size(); ++server)
    a.part("packed." + std::to_string(server), packed_[server]);
  a.flag("answer_due", answer_due_);
  a.vector("sent", sent_, model_.x.numel());
  a.require(sent_.defined() == (answer_due_ && settings_.overlap), "sent", "does not fit the run");
  a.require(settings_.overlap || answer_due_ == (phase_ == Phase::waiting), "answer_due",
            "does not fit the phase");
  a.part("outstanding", outstanding_, servers_);
  a.list("resend", resend_steps_);
}

}  // namespace grapevine
