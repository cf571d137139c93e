#include "algorithms/roles/levels/hierarchy.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "algorithms/roles/make_role.hpp"
#include "messages/check.hpp"

namespace grapevine {

namespace {

GroupExchange node_of(Rank rank, const TrainingRanks& ranks, std::int32_t size, std::int64_t d) {
  std::vector<Rank> members = members_of_node(ranks.members, rank, size);
  const std::vector<Rank> heads = members_of_node(ranks.heads, rank, size);
  GRAPEVINE_CHECK(heads.size() == 1, "the node of rank ", rank, " has ", heads.size(), " heads");
  return GroupExchange(std::move(members), heads.front(), rank, d);
}

}  // namespace

Hierarchy::Hierarchy(std::shared_ptr<const SharedParts> parts, const TrainingRanks& ranks,
                     Rank rank, ModelState& model)
    : parts_(std::move(parts)),
      rank_(rank),
      model_(model),
      node_(node_of(rank, ranks, parts_->plan.hierarchy, model_.x.numel())) {
  if (rank_ != node_.head()) return;
  head_.emplace(static_cast<NestedRole::Around&>(*this), ranks.heads,
                static_cast<std::int32_t>(ranks.members.size()), rank_, parts_, model_);
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
  resolve_given(env, parameters.step);
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
    node_.on_chunk(env, stamp(), envelope.from, std::move(*chunk));
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
  given_ = step_;
  const bool again = model_.step > step_;  // its first mean did not reach the head
  model_.step = step_ + 1;
  model_.lr = parts_->lr.at(model_.epoch);
  if (parts_->plan.role->counts_own_steps) model_.epoch = parts_->horizon.epoch_of(model_.step);
  if (!again) env.record({EventKind::step_done, -1, stamp(), step_, 0, 0});
  if (auto next = node_.take_kept()) follow(env, *std::move(next));
  if (phase_ == Phase::waiting) node_.wait_for_head(env, stamp(), model_.step);
}

void Hierarchy::on_timer(Env& env, TimerId id) {
  if (head_) head_->on_timer(env, id);
}

void Hierarchy::on_peer_down(Env& env, Rank peer) {
  if (head_) head_->on_peer_down(env, peer);
}

std::vector<Awaited> Hierarchy::waits() const {
  if (phase_ == Phase::reducing) return node_.awaited();
  if (phase_ != Phase::waiting) return {};
  return head_ ? head_->waits() : std::vector<Awaited>{node_.awaited_from_head()};
}

FrozenTensor Hierarchy::debiased() const { return head_ ? head_->role().debiased() : model_.x; }

// The gradient that this rank gave is in the model of the head if that asks for a later one.
void Hierarchy::resolve_given(Env& env, Step next) {
  const Step step = std::exchange(given_, -1);
  if (step < 0) return;
  const Stamp given = stamp_of(rank_, step, step);
  const EventKind kind = next > step ? EventKind::committed : EventKind::dropped;
  env.record({kind, rank_, given, step, 0, 0, step});
  if (next <= step || model_.step > step) return;  // else the head alone had the mean
  model_.step = step + 1;
  model_.lr = parts_->lr.at(model_.epoch);
  env.record({EventKind::step_done, -1, given, step, 0, 0});
}

// ---- a change of members ----

std::int64_t Hierarchy::close(Env& env) {
  if (!head_ && phase_ == Phase::waiting) node_.stop_waiting(env, stamp(), model_.step);
  node_.close(env, stamp());
  give_up_mean(env);
  if (head_) return head_->close(env);
  return kFollows;
}

// Only the messages of the lost rank are missing: the mean is open at the head, too, or complete
// there alone. The next request of the head shows which.
void Hierarchy::give_up_mean(Env& env) {
  if (phase_ != Phase::reducing) return;
  phase_ = Phase::waiting;
  given_ = step_;
  if (head_) resolve_given(env, step_);
}

void Hierarchy::take_back(Env& env, std::int64_t operations) {
  if (head_) head_->take_back(env, operations);
}

void Hierarchy::count_as_done(Env& env) {
  if (head_) head_->count_as_done(env);
}

void Hierarchy::forget(Env& env) { resolve_given(env, 0); }

void Hierarchy::shared_fields(Archive& a) {
  if (head_) a.nested("head", [this](Archive& inner) { head_->role().shared_fields(inner); });
}

void Hierarchy::own_fields(Archive& a) {
  if (head_) return a.nested("head", [this](Archive& inner) { head_->role().own_fields(inner); });
  a.count("given_step", given_, -1);
}

void Hierarchy::joiner_fields(Archive& a) {
  if (head_) a.nested("head", [this](Archive& inner) { head_->role().joiner_fields(inner); });
}

// ---- a change of the wiring ----

void Hierarchy::flush(Env& env) {
  if (head_) return head_->flush(env);
  resolve_given(env, given_ + 1);  // the head did not ask for it again
  model_.x = FrozenTensor::freeze(at::zeros_like(model_.x.read()));
  model_.w = 1;
}

// The mean is over all ranks: the head gives its state once for each rank of its node, the others
// give zeros.
at::Tensor Hierarchy::optimizer_state() const {
  if (head_) return head_->role().optimizer_state() * static_cast<double>(node_.members().size());
  return at::zeros_like(make_run_optimizer(*parts_)->state_vector(model_.x.numel()));
}

void Hierarchy::take_over(const at::Tensor& optimizer) {
  if (head_) head_->role().take_over(optimizer);
}

// ---- checkpoints ----

void Hierarchy::fields(Archive& a) {
  a.one_of("phase", phase_, Phase::finished);
  a.count("step", step_);
  a.count("published", published_, -1);
  node_.fields(a, step_);
  a.require(node_.running() == (phase_ == Phase::reducing), "phase", "does not fit the sum");
  // Not limited by this rank's own step: after a change of members the head may be further.
  if (a.has("given_step", given_ >= 0)) a.count("given_step", given_, -1);
  a.require(!head_ || given_ < 0, "given_step", "is of a rank that follows");
  if (head_) a.part("head", head_->role());
}

}  // namespace grapevine
