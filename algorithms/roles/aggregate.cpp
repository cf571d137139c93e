#include "algorithms/roles/aggregate.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "algorithms/compressors/compressor.hpp"
#include "algorithms/kernels/kernels.hpp"
#include "algorithms/wiring/shared_parts.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

// Whole: buckets cost messages, and pay where links are slow (docs/performance.md).
constexpr std::int64_t kBucketBytes = 0;

// The only place that decides which gradients may leave in parts: those of which nothing is to be
// known before they are summed. Compression selects among all entries, a local norm is one of all,
// and with overlap the sum has the whole next pass for itself.
std::int64_t read_bucket_bytes(KeyReader& keys, const LocalUpdateSettings& local) {
  std::int64_t bytes = 0;
  keys.where("pack", "gradient", [&] {
    keys.where("overlap", "false", [&] {
      keys.where("compress", "none", [&] {
        bytes = keys.whole("bucket_bytes", kBucketBytes, 0,
                           "size of the parts in which a gradient is summed while the backward "
                           "pass computes those before them; 0: whole, after it");
      });
    });
  });
  const bool whole = local.clip.norm > 0 && local.clip.at == ClipSettings::At::own_part;
  keys.only_where(
      "bucket_bytes", !whole || bytes == 0,
      "clip_at = 'local': the norm of a rank's own gradient is known at its end, choose "
      "clip_at = 'sum'");
  return whole ? 0 : bytes;
}

void read_aggregate(KeyReader& keys, Plan& plan) {
  auto settings = std::make_shared<AggregateSettings>();
  LocalUpdateSettings& local = plan.local;
  local.pack = read_pack(keys, {Pack::gradient, Pack::model, Pack::difference}, "");
  for (const char* pack : {"model", "difference"})
    keys.where("pack", pack, [&] { local.steps = read_local_steps(keys); });
  keys.where("pack", "difference", [&] { read_outer(keys, local); });
  settings->overlap = keys.flag("overlap", false, "exchange while the worker computes");
  CompressionUse use;
  use.sums = use.momentum = true;
  plan.compression = read_compression(keys, use);
  keys.only_where("compress", !is_sparse(plan.compression) || local.pack != Pack::model,
                  "pack = 'model': what is not sent would become 0 in the model, choose pack = "
                  "'difference'");
  keys.only_where("compress", keeps_magnitudes(plan.compression) || local.pack != Pack::model,
                  "pack = 'model': gradients would be computed at models of less than 8 bits a "
                  "number, choose pack = 'difference'");
  keys.where("pack", "gradient", [&] { local.clip = read_clip(keys, true); });
  for (const char* pack : {"model", "difference"})
    keys.where("pack", pack, [&] { local.clip = read_clip(keys, false); });
  settings->bucket_bytes = read_bucket_bytes(keys, local);
  plan.settings = std::move(settings);
}

}  // namespace

const RoleType& aggregate_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "aggregate";
    role.any_device = [](const Plan&) { return true; };
    role.summary = "all ranks take the mean of their gradients, models or differences";
    role.read = &read_aggregate;
    role.make = &make_from_context<Aggregate>;
    // The last operation is used at once, and not at the exchange after it.
    role.announces_end = [](const Plan& plan) {
      return data_as<AggregateSettings>(plan.settings).overlap;
    };
    role.changes_members = [](const Plan&) { return true; };
    role.replicates = true;
    role.synchronous = role.ranks_agree = [](const Plan& plan) {
      return !data_as<AggregateSettings>(plan.settings).overlap;
    };
    return role;
  }();
  return type;
}

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

// Where this rank waits, the messages on their way continue the operation.
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
    packed_ = local_.packed(model_);
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
    sent_ = FrozenTensor::copy_of(packed_);
  }
  send(env, reduction_->start(operation_, epoch_now(), std::move(packed_), env.rng()));
  packed_ = at::Tensor();
  if (overlap_) {
    local_.return_to_anchor(model_);
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
  if (packs(Pack::difference) && amid_steps) way = local_.packed(model_);
  at::Tensor free = local_.take_mean(model_, std::move(mean), parts_->horizon.epoch_of(operation_));
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

// With overlap, local steps since then are of a model that is given up; a gradient enters the next
// sum.
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

// With overlap all ranks give again what was taken back: this one adds nothing to a sum, and to
// models the one that it took. Without, it computes its own part.
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
  packed_ = from_residual ? at::Tensor() : overlap_ ? sent_.read().clone() : local_.packed(model_);
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
  if (!overlap_ && from_residual) local_.return_to_anchor(model_);
  if (overlap_ && !from_residual && packs(Pack::difference)) subtract_from_model(sent.read());
  if (stepped && overlap_ && exchange_due(model_.step + 1)) {
    packed_ = local_.packed(model_);
    return exchange(env);
  }
  if (stepped) step_done(env);
  begin_step(env);
}

// Where H changes, new members have other boundaries behind them. Of two ranks in one period, one
// may have passed a boundary that the other has still before it: none counts up to the step of the
// furthest one.
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
  if (from_residual && !overlap_) local_.return_to_anchor(model_);
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

void Aggregate::subtract_from_model(const at::Tensor& vector) {
  at::Tensor x = std::move(model_.x).thaw();
  kernels::subtract_into(x, x, vector);
  model_.x = FrozenTensor::freeze(std::move(x));
}

void Aggregate::take_over(const at::Tensor& optimizer) {
  TrainingRole::take_over(optimizer);
  operation_ = committed_ = completed_ = first_own_ = model_.step;
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
