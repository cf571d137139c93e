#include "algorithms/roles/aggregate/aggregate.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/wiring/make_parts.hpp"

namespace grapevine {
namespace {

ReductionSettings bucketed(const SharedParts& parts) {
  ReductionSettings settings = reduction_settings(parts);
  settings.bucket_bytes = data_as<AggregateSettings>(parts.plan.settings).bucket_bytes;
  return settings;
}

}  // namespace

Aggregate::Aggregate(RoleContext context)
    : TrainingRole(std::move(context), true),
      overlap_(data_as<AggregateSettings>(plan().settings).overlap),
      reduction_(make_reduction(bucketed(*parts_), all_ranks(ranks_), rank_, model_.x.numel(),
                                model_.x.device())) {}

// A rank that waits does nothing: the messages in flight continue the operation.
void Aggregate::on_start(Env& env) {
  if (redo_ != Redo::no) return give_again(env);
  if (phase_ == Phase::waiting) return;
  packed_.defined() ? exchange(env) : begin_step(env);
}

void Aggregate::begin_step(Env& env) {
  if (!at_end()) return compute_in_parts(env, reduction_->parts());
  if (reduction_->done()) take_result(env);
  if (reduction_->running()) return wait(env);
  finish(env);
}

// The worker still computes the parts before it.
void Aggregate::on_gradient_part(Env& env, GradientPart part) {
  operation_ = model_.step;
  send(env,
       reduction_->start_part(operation_, epoch_now(), part.begin, part.value.read(), env.rng()));
}

void Aggregate::on_gradient(Env& env, Gradient gradient) {
  at::Tensor g = take(std::move(gradient));
  if (packs(Pack::gradient)) {
    local_.clip_own(g);
    packed_ = std::move(g);
    return exchange(env);
  }
  local_step(env, std::move(g), epoch_now());
  if (exchange_due(model_.step + 1)) {
    packed_ = local_.packed(model_, pool_);
    return exchange(env);
  }
  step_done(env);
  begin_step(env);
}

// The operation before this one is over first.
void Aggregate::exchange(Env& env) {
  if (!reduction_->running()) return reduce(env);
  if (!reduction_->done()) return wait(env);
  take_result(env);
  reduce(env);
}

void Aggregate::reduce(Env& env) {
  operation_ = model_.step;
  if (overlap_ && packs(Pack::model)) {
    packed_.copy_(model_.x.read());
    sent_ = model_.x;
  } else if (overlap_ && !has_residual()) {
    sent_ = FrozenTensor::freeze(pool_.copy_of(packed_, model_.x));
    pool_.give(sent_);  // for the next one, once this is used
  }
  send(env, reduction_->start(operation_, epoch_now(), std::move(packed_), env.rng()));
  packed_ = at::Tensor();
  if (overlap_) {
    local_.return_to_anchor(model_, pool_);
    step_done(env);
    return begin_step(env);
  }
  if (!reduction_->done()) return wait(env);
  take_result(env);
  step_done(env);
  begin_step(env);
}

void Aggregate::on_message(Env& env, Envelope envelope) {
  send(env, reduction_->on_message(envelope.from, std::move(envelope.payload)));
  if (phase_ != Phase::waiting || !reduction_->done()) return;
  stop_waiting(env);
  take_result(env);
  if (packed_.defined()) return reduce(env);
  if (!overlap_) step_done(env);
  begin_step(env);
}

// The mean enters the model, and the gradients of the operation count.
void Aggregate::take_result(Env& env) {
  at::Tensor mean = reduction_->take_sum();
  // Models are divided: the rounding of 1/P would change the mean by one factor in every exchange.
  const auto ranks = static_cast<double>(ranks_);
  if (ranks_ > 1 && packs(Pack::model))
    mean.div_(ranks);
  else if (ranks_ > 1)
    kernels::scale(mean, 1.0 / ranks);
  const FrozenTensor sent = std::exchange(sent_, {});
  // Members may change amid the local steps that hide an operation: what has been packed is kept
  // by itself, what has not goes on from the new model.
  const bool amid_steps = !packed_.defined() && model_.step > operation_ + 1;
  if (packs(Pack::model) && sent.defined() && (packed_.defined() || amid_steps))
    mean.add_(model_.x.read()).sub_(sent.read());
  at::Tensor way;
  if (packs(Pack::difference) && amid_steps) way = local_.packed(model_, pool_);
  at::Tensor free =
      local_.take_mean(model_, std::move(mean), parts_->horizon.epoch_of(operation_), pool_);
  if (free.defined()) free = reduction_->recycle(std::move(free));
  if (free.defined()) env.recycle(FrozenTensor::freeze(std::move(free)));
  if (way.defined()) subtract_from_model(way);

  commit_up_to(env, operation_ + 1);
  completed_ = operation_ + 1;
  Stamp done = stamp();
  done.step = operation_;
  env.record({EventKind::reduced, -1, done, model_.step, 0, 0, operation_, all_ranks(ranks_)});
  env.record({EventKind::applied, -1, done, model_.step, model_.step - operation_,
              model_.x.nbytes(), operation_});
}

// The gradients of this rank before step `end` count.
void Aggregate::commit_up_to(Env& env, Step end) {
  Stamp done = stamp();
  for (done.step = first_uncommitted(); done.step < end; ++done.step)
    env.record({EventKind::committed, rank_, done, model_.step, 0, 0, operation_});
  committed_ = end;
}

void Aggregate::step_done(Env& env) {
  const Stamp done = stamp();
  count_step();
  env.record({EventKind::step_done, -1, done, done.step, 0, 0});
}

void Aggregate::subtract_from_model(const at::Tensor& vector) {
  change_in_place(model_.x, [&vector](at::Tensor& x) { kernels::subtract_into(x, x, vector); });
}

void Aggregate::fields(Archive& a) {
  common_fields(a);
  const Step latest = model_.step;
  a.whole("operation", operation_, 0, latest);
  a.whole("committed", committed_, 0, latest);
  if (a.loads()) completed_ = committed_;
  if (a.has("completed", completed_ != committed_)) a.whole("completed", completed_, 0, latest);
  if (a.has("first_own", first_own_ > 0)) a.whole("first_own", first_own_, 0, latest);
  a.vector("packed", packed_, model_.x.numel());
  a.vector("sent", sent_, model_.x.numel());
  a.part("reduction", *reduction_, operation_, parts_->horizon.epoch_of(operation_));
  const bool running = reduction_->running(), waits = phase_ == Phase::waiting;
  const bool keeps = packs(Pack::model) || !has_residual();
  if ((waits && !running) || (running && !waits && !overlap_) ||
      sent_.defined() != (running && overlap_ && keeps))
    a.fail(bad_input(
        "entries 'phase' and 'reduction' of the saved state do not fit each other: the checkpoint "
        "is damaged, resume from another one"));
}

}  // namespace grapevine
