// The aggregate role where its members or the wiring change.
#include <ATen/ATen.h>

#include <utility>

#include "algorithms/roles/aggregate/aggregate.hpp"

namespace grapevine {

// ---- a change of members ----

std::int64_t Aggregate::close(Env& env) {
  if (phase_ == Phase::waiting) stop_waiting(env);
  if (reduction_->done()) take_result(env);
  return completed_;
}

// Without overlap models and differences are packed again from x; a gradient whose sum kept no copy
// of it is computed again.
void Aggregate::take_back(Env& env, std::int64_t) {
  const bool runs = reduction_->running();
  const bool kept = reduction_->take_back();
  if (!runs) return;
  const bool lost = !kept && !overlap_ && packs(Pack::gradient);
  redo_ = lost ? Redo::no : kept ? Redo::from_residual : Redo::packed_again;
  if (!lost) return;
  Stamp dropped = stamp();
  dropped.step = operation_;
  env.record({EventKind::dropped, rank_, dropped, model_.step, 0, 0, operation_});
}

// With overlap, the local steps since then belong to a model that is given up; a gradient enters
// the next sum.
void Aggregate::count_as_done(Env& env) {
  commit_up_to(env, operation_ + 1);
  completed_ = operation_ + 1;
  reduction_->count_as_given();
  sent_ = {};
  begins_at_anchor_ = true;
  if (!overlap_) return step_done(env);
  if (packs(Pack::gradient)) return;
  Stamp done = stamp();
  const Step computed = model_.step + (packed_.defined() ? 1 : 0);
  for (done.step = first_uncommitted(); done.step < computed; ++done.step)
    env.record({EventKind::dropped, rank_, done, model_.step, 0, 0, operation_});
  committed_ = model_.step;
  packed_ = at::Tensor();
}

void Aggregate::own_fields(Archive& a) {
  a.count("operation", operation_);
  a.count("committed", committed_);
  a.count("completed", completed_);
  a.count("first_own", first_own_);
  a.one_of("redo", redo_, Redo::packed_again);
  begins_at_anchor_field(a);
  a.vector("packed", packed_, model_.x.numel());
  a.vector("sent", sent_, model_.x.numel());
  a.nested("reduction", [this](Archive& inner) { reduction_->kept_fields(inner); });
}

// With overlap all ranks repeat the operation that was taken back. A rank that joins gives zeros to
// a sum, and to a mean of models the model that it took. Without overlap it computes its own part.
void Aggregate::joiner_fields(Archive& a) {
  bool again = overlap_ && redo_ != Redo::no;
  a.flag("again", again);
  a.count("operation", operation_);
  a.count("committed", committed_);
  a.count("completed", completed_);
  if (!a.loads()) return;
  first_own_ = model_.step;
  if (!again) return;
  redo_ = Redo::packed_again;
  sent_ = packs(Pack::model) ? model_.x : FrozenTensor::freeze(at::zeros_like(model_.x.read()));
}

// The operation that was given up, among the new members. Without overlap this rank stands before
// it, else behind it.
void Aggregate::give_again(Env& env) {
  if (!exchange_due((overlap_ ? operation_ : model_.step) + 1)) return skip_operation(env);
  const bool from_residual = std::exchange(redo_, Redo::no) == Redo::from_residual;
  at::Tensor next = std::exchange(packed_, at::Tensor());  // overlap: of the operation after it
  if (!from_residual) packed_ = overlap_ ? sent_.read().clone() : local_.packed(model_, pool_);
  if (!overlap_) return reduce(env);
  const double epoch = parts_->horizon.epoch_of(operation_);
  send(env, reduction_->start(operation_, epoch, std::move(packed_), env.rng()));
  if (has_residual() && !packs(Pack::model)) sent_ = {};  // the residual has it
  packed_ = std::move(next);
  packed_.defined() ? exchange(env) : begin_step(env);
}

// It is not due any more: training was to end with it, and the new members share more steps, or its
// boundary has moved. The local steps before it enter the next one, from x or from the residual. A
// model that was given is in both: what the residual has besides is left of roundings, and enters
// x. With overlap, so do the local steps behind it; the next one may be due after them.
void Aggregate::skip_operation(Env& env) {
  const bool from_residual = std::exchange(redo_, Redo::no) == Redo::from_residual;
  const bool stepped = !overlap_ || packed_.defined();
  const FrozenTensor sent = std::exchange(sent_, {});
  packed_ = at::Tensor();
  if (from_residual && packs(Pack::model)) {
    at::Tensor rounding = reduction_->take_residual();
    rounding.sub_((overlap_ ? sent : model_.x).read());
    flush_part(std::move(rounding));
  }
  if (!overlap_ && from_residual) local_.return_to_anchor(model_, pool_);
  if (overlap_ && !from_residual && packs(Pack::difference)) subtract_from_model(sent.read());
  if (stepped && overlap_ && exchange_due(model_.step + 1)) {
    packed_ = local_.packed(model_, pool_);
    return exchange(env);
  }
  if (stepped) step_done(env);
  begin_step(env);
}

// If H changes, new members have other boundaries behind them, and of two ranks in one period only
// one may have passed a boundary. So no boundary counts up to the step of the furthest rank.
bool Aggregate::exchange_due(Step steps) const {
  const Horizon& horizon = parts_->horizon;
  const bool moved = horizon.members_have_changed() && parts_->plan.local.steps.changes();
  if (moved && steps <= horizon.first_step && steps < horizon.steps) return false;
  return local_.exchange_due(steps);
}

// ---- a change of the wiring ----

// Local steps are in x, but for those that a difference has taken out of it. The oldest part first:
// the residual, with what was given up to it; the part of the operation that was given up; the next
// one.
void Aggregate::flush(Env& env) {
  const bool amid_step = packed_.defined() || (!overlap_ && redo_ != Redo::no);
  const bool from_residual = redo_ == Redo::from_residual;
  if (from_residual && !overlap_) local_.return_to_anchor(model_, pool_);
  at::Tensor residual = reduction_->take_residual();
  // A model that was given is in the residual, and in x.
  if (residual.defined() && from_residual && packs(Pack::model))
    residual.sub_((overlap_ ? sent_ : model_.x).read());
  if (residual.defined()) flush_part(std::move(residual));
  if (sent_.defined() && !packs(Pack::model)) flush_part(sent_.read().clone());
  if (packed_.defined() && packs(Pack::gradient)) flush_part(std::move(packed_));
  packed_ = at::Tensor();
  sent_ = {};
  redo_ = Redo::no;
  if (amid_step) step_done(env);
  commit_up_to(env, model_.step);
}

// Gradients, differences, or what rounding has left of models.
void Aggregate::flush_part(at::Tensor part) {
  if (packs(Pack::gradient)) return local_.step_along_late(model_, std::move(part), epoch_now());
  if (packs(Pack::model)) part.neg_();
  subtract_from_model(part);
}

void Aggregate::take_over(const at::Tensor& optimizer) {
  TrainingRole::take_over(optimizer);
  operation_ = committed_ = completed_ = first_own_ = model_.step;
}

}  // namespace grapevine
