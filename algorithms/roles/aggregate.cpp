#include "algorithms/roles/aggregate.hpp"

#include <cmath>

#include "algorithms/kernels.hpp"

namespace grapevine {

Aggregate::Aggregate(std::shared_ptr<const SharedParts> parts, Rank rank, std::int32_t ranks,
                     ModelState& model, std::unique_ptr<Optimizer> optimizer)
    : parts_(std::move(parts)),
      rank_(rank),
      ranks_(ranks),
      model_(model),
      optimizer_(std::move(optimizer)),
      reduction_(make_reduction(parts_, rank, ranks, model.x.numel())) {}

void Aggregate::on_start(Env& env) {
  if (phase_ == Phase::reducing) return;  // the chunks on their way carry on
  begin_step(env);
}

void Aggregate::begin_step(Env& env) {
  if (model_.step >= parts_->horizon.steps) {
    phase_ = Phase::finished;
    return env.finished();
  }
  phase_ = Phase::computing;
  env.compute(model_.step, model_.x);
}

void Aggregate::on_gradient(Env& env, Gradient gradient) {
  GRAPEVINE_CHECK(phase_ == Phase::computing, "a gradient that was not asked for");
  phase_ = Phase::reducing;
  reduce(env, std::move(gradient.value).thaw());
}

void Aggregate::reduce(Env& env, at::Tensor gradient) {
  const ClipSettings& clip = parts_->plan.clip;
  if (clip.norm > 0 && !clip.at_sum) kernels::clip(gradient, clip.norm / std::sqrt(ranks_));
  send(env, reduction_->start(model_.step, std::move(gradient), env.rng()));
  if (!reduction_->done()) env.record({EventKind::wait_begin, -1, stamp(), model_.step, 0, 0});
  apply_if_reduced(env);
}

void Aggregate::on_message(Env& env, Envelope envelope) {
  send(env, reduction_->on_message(envelope.from, std::move(envelope.payload)));
  if (reduction_->done()) env.record({EventKind::wait_end, -1, stamp(), model_.step, 0, 0});
  apply_if_reduced(env);
}

// x <- x - gamma u(1/P sum_i g_i), the same on every rank.
void Aggregate::apply_if_reduced(Env& env) {
  if (!reduction_->done()) return;
  at::Tensor mean = reduction_->take_sum();
  if (ranks_ > 1) mean.mul_(1.0 / static_cast<double>(ranks_));
  const ClipSettings& clip = parts_->plan.clip;
  if (clip.norm > 0 && clip.at_sum) kernels::clip(mean, clip.norm);
  model_.lr = parts_->lr.at(parts_->horizon.epoch_of(model_.step));
  at::Tensor x = std::move(model_.x).thaw();
  optimizer_->step(x, mean, model_.lr);
  model_.x = FrozenTensor::freeze(std::move(x));
  env.recycle(FrozenTensor::freeze(std::move(mean)));

  const Stamp done = stamp();
  ++model_.step;
  model_.epoch = parts_->horizon.epoch_of(model_.step);
  env.record({EventKind::committed, rank_, done, done.step, 0, 0});
  env.record({EventKind::applied, -1, done, done.step, 0, model_.x.nbytes()});
  env.record({EventKind::step_done, -1, done, done.step, 0, 0});
  begin_step(env);
}

void Aggregate::on_timer(Env&, TimerId) {}

// The sum cannot be completed without this rank: the supervisor ends the run.
void Aggregate::on_peer_down(Env&, Rank) {}
void Aggregate::on_peer_up(Env&, Rank) {}

FrozenTensor Aggregate::debiased() const { return model_.x; }

void Aggregate::send(Env& env, std::vector<OutgoingPayload> messages) {
  for (OutgoingPayload& message : messages)
    env.send(message.to, stamp(), std::move(message.payload));
}

Stamp Aggregate::stamp() const {
  Stamp stamp;
  stamp.origin = rank_;
  stamp.step = model_.step;
  stamp.version = model_.step;
  return stamp;
}

StateDict Aggregate::save() const {
  StateDict state;
  state.put("phase", static_cast<std::int64_t>(phase_));
  state.put_all("optimizer", optimizer_->save());
  state.put_all("reduction", reduction_->save());
  return state;
}

Expected<void> Aggregate::load(const StateDict& state) {
  const auto phase = state.integer("phase");
  if (!phase) return phase.error();
  phase_ = static_cast<Phase>(*phase);
  if (auto loaded = reduction_->load(state.under("reduction"), model_.step); !loaded) return loaded;
  return optimizer_->load(state.under("optimizer"));
}

}  // namespace grapevine
