#include "algorithms/roles/levels/hierarchy.hpp"

#include <algorithm>
#include <utility>

#include "messages/check.hpp"

namespace grapevine {

// Rank i * R exchanges for node i; parameter servers follow the nodes.
Hierarchy::Hierarchy(std::shared_ptr<const SharedParts> parts, Rank rank, std::int32_t ranks,
                     ModelState& model)
    : parts_(std::move(parts)), rank_(rank), model_(model), node_(rank, parts_->plan.hierarchy) {
  const Plan& plan = parts_->plan;
  if (rank_ == node_.head())
    head_.emplace(static_cast<NestedRole::Around&>(*this), plan, rank_, ranks - plan.servers,
                  parts_, model_);
}

void Hierarchy::on_start(Env& env) {
  if (head_) return head_->on_start(env);
  if (phase_ == Phase::computing) env.compute(step_, model_.x);
  if (phase_ == Phase::finished && model_.step < parts_->horizon.steps) phase_ = Phase::waiting;
  if (phase_ == Phase::waiting) node_.wait_for_head(env, stamp(), model_.step);
  if (phase_ == Phase::finished) env.finished();
}

void Hierarchy::compute(Env& env, Step step, FrozenTensor z) {
  if (phase_ == Phase::reducing) return;  // resumed from a checkpoint: it is on its way
  step_ = step;
  phase_ = Phase::computing;
  if (step > published_) {
    published_ = step;
    node_.publish(env, stamp(), {step, false, model_.epoch, z});
  }
  env.compute(step, std::move(z));
}

void Hierarchy::finished(Env& env) {
  phase_ = Phase::finished;
  publish_last(env);
  env.finished();
}

void Hierarchy::publish_last(Env& env) {
  node_.publish(env, stamp(), {model_.step, true, model_.epoch, head_->role().debiased()});
}

void Hierarchy::follow(Env& env, Parameters parameters) {
  if (phase_ == Phase::reducing) return node_.keep(std::move(parameters));
  model_.x = std::move(parameters.x);
  model_.epoch = std::max(model_.epoch, parameters.epoch);
  if (parameters.last) {
    // Late messages of other nodes may change the head's model again.
    if (std::exchange(phase_, Phase::finished) != Phase::finished) env.finished();
    return;
  }
  step_ = parameters.step;
  phase_ = Phase::computing;
  env.compute(step_, model_.x);
}

void Hierarchy::on_gradient(Env& env, Gradient gradient) {
  GRAPEVINE_CHECK(phase_ == Phase::computing, "a gradient arrived without a request");
  phase_ = Phase::reducing;
  at::Tensor value = std::move(gradient.value).thaw();
  gradient_ = std::move(gradient);
  gradient_.value = FrozenTensor();
  node_.start(env, stamp(), step_, std::move(value));
  use_if_reduced(env);
}

void Hierarchy::on_message(Env& env, Envelope envelope) {
  if (!node_.has(envelope.from)) {
    GRAPEVINE_CHECK(head_.has_value(), "rank ", envelope.from,
                    " of another node sent a message to rank ", rank_);
    const bool had_ended = phase_ == Phase::finished;
    head_->on_message(env, std::move(envelope));
    // Messages after the end still change the model, in the whole node.
    if (had_ended && phase_ == Phase::finished) publish_last(env);
    return;
  }
  if (auto* chunk = std::get_if<Chunk>(&envelope.payload)) {
    node_.on_chunk(env, stamp(), std::move(*chunk));
    return use_if_reduced(env);
  }
  GRAPEVINE_CHECK(node_.is_from_head(envelope, model_.x.numel()), "rank ", envelope.from,
                  " sent its node neither a chunk nor the head's parameters");
  if (phase_ == Phase::waiting) node_.stop_waiting(env, stamp(), model_.step);
  follow(env, std::get<Parameters>(std::move(envelope.payload)));
}

// g = 1/R sum_i g_i: to the role where this is the head; elsewhere the step is done.
void Hierarchy::use_if_reduced(Env& env) {
  if (!node_.done()) return;
  FrozenTensor value = FrozenTensor::freeze(node_.take());
  if (head_) {
    phase_ = Phase::waiting;
    gradient_.value = std::move(value);
    return head_->on_gradient(env, std::move(gradient_));
  }
  env.recycle(std::move(value));
  step_done(env);
}

void Hierarchy::step_done(Env& env) {
  phase_ = Phase::waiting;
  model_.step = step_ + 1;
  model_.lr = parts_->lr.at(model_.epoch);
  if (parts_->plan.role->counts_own_steps) model_.epoch = parts_->horizon.epoch_of(model_.step);
  env.record({EventKind::committed, rank_, stamp(), step_, 0, 0, step_});
  env.record({EventKind::step_done, -1, stamp(), step_, 0, 0});
  if (auto next = node_.take_kept()) follow(env, *std::move(next));
  if (phase_ == Phase::waiting) node_.wait_for_head(env, stamp(), model_.step);
}

void Hierarchy::on_timer(Env& env, TimerId id) {
  if (head_) head_->on_timer(env, id);
}

// A node without one of its members cannot sum: the supervisor ends the run.
void Hierarchy::on_peer_down(Env& env, Rank peer) {
  if (head_) head_->on_peer_down(env, peer);
}

void Hierarchy::on_peer_up(Env& env, Rank peer) {
  if (head_) head_->on_peer_up(env, peer);
}

std::vector<Awaited> Hierarchy::waits() const {
  if (phase_ == Phase::reducing) return {node_.awaited()};
  if (phase_ != Phase::waiting) return {};
  return head_ ? head_->waits() : std::vector<Awaited>{node_.awaited_from_head()};
}

FrozenTensor Hierarchy::debiased() const { return head_ ? head_->role().debiased() : model_.x; }

// ---- checkpoints ----

void Hierarchy::fields(Archive& a) {
  a.one_of("phase", phase_, Phase::finished);
  a.count("step", step_);
  a.count("published", published_, -1);
  node_.fields(a, step_, model_.x.numel());
  a.require(node_.running() == (phase_ == Phase::reducing), "phase", "does not fit the ring");
  if (head_) a.part("head", head_->role());
}

}  // namespace grapevine
