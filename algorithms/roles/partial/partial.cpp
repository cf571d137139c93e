#include "algorithms/roles/partial/partial.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "messages/check.hpp"

namespace grapevine {
Partial::Partial(RoleContext context)
    : TrainingRole(std::move(context), true),
      settings_(data_as<PartialSettings>(plan().settings)),
      everybody_(all_ranks(ranks_)),
      reduction_(make_reduction(reduction_settings(*parts_), everybody_, rank_, model_.x.numel(),
                                model_.x.device())),
      rounds_(settings_.activation, plan().seed, parts_->horizon.steps, exchanges().count(),
              ranks_),
      reduce_(everybody_, rank_, 0, rounds_.trigger(0), reduction_),
      early_(reduction_) {}

// ---- training ----

void Partial::on_start(Env& env) {
  if (rounds_.all_consumed()) return finish(env);
  if (std::exchange(waits_, false)) return wait_for_round(env);
  if (phase_ == Phase::finished) {
    phase_ = Phase::ready;
    rounds_.extend(exchanges().index_of(produced_));
    start_round();  // the training was extended: its trigger has changed
  }
  // Other members may have less to do than this one has done already, amid its local steps.
  if (own_.has_steps() && has_no_steps_left() && phase_ == Phase::ready) add_difference();
  give_grace(env);
  // A node's workers may have begun at an older x: its age is unchanged.
  if (phase_ == Phase::computing) env.compute(produced_, model_.x);
  if (phase_ == Phase::ready) compute_next(env);
  post_if_nothing_follows(env);
  contribute_if_begun(env);
}

// Asks for a gradient where this rank has steps left.
void Partial::compute_next(Env& env) {
  phase_ = Phase::ready;
  if (has_no_steps_left()) return;
  phase_ = Phase::computing;
  own_.begin(rounds_.now(), packs_differences() ? model_.x : FrozenTensor());
  if (!packs_differences() && model_.x.device().is_cpu())
    env.recycle(FrozenTensor::freeze(new_vector()));  // for the gradient
  env.compute(produced_, model_.x);
}

void Partial::on_gradient(Env& env, Gradient gradient) {
  if (!collect(env, take(std::move(gradient)))) {
    end_step(env);
    return compute_next(env);
  }
  const bool late =
      exchanges().index_of(produced_) <= rounds_.regular_rounds_done() && !rounds_.draining();
  if (late) {
    end_step(env);
    if (packs_differences()) local_.return_to_anchor(model_, pool_);
    compute_next(env);
    contribute_if_begun(env);
  } else {
    wait_for_round(env);
  }
}

void Partial::wait_for_round(Env& env) {
  phase_ = Phase::waiting;
  env.record({EventKind::wait_begin, awaited_rank(), stamp(), produced_ - 1, 0, 0});
  post(env);
  contribute_if_begun(env);
}

// Adds a gradient to those of this rank; false where a difference has local steps left.
bool Partial::collect(Env& env, at::Tensor g) {
  const Step step = produced_++;
  if (!packs_differences()) {
    local_.clip_own(g);
    own_.add(step, std::move(g));
    return true;
  }
  own_.note_step(step);
  local_step(env, std::move(g), parts_->horizon.epoch_of(step));
  if (!local_.exchange_due(produced_)) return false;
  add_difference();
  return true;
}

void Partial::add_difference() { own_.add_difference(model_.x, full_steps(), pool_); }

// Of a difference with the weight 1; 0: any.
std::int64_t Partial::full_steps() const {
  return settings_.scale == PartialSettings::Scale::samples ? exchanges().longest() : 0;
}

// Among other members, or with another rate, H may have another most: what waits was weighed by the
// one before.
void Partial::weigh_what_waits() {
  if (!packs_differences()) return;
  const double by = own_.weigh(full_steps());
  if (by == 1) return;
  at::Tensor residual = reduction_->take_residual();
  if (!residual.defined()) return;
  kernels::scale(residual, by);
  own_.take_back(std::move(residual));
  from_residual_ = false;
}

void Partial::post(Env& env) {
  if (reduce_.contributed()) return;
  send(env, reduce_.post());
  give_grace(env);
}

// Waiting gradients of this rank are posted if no further gradient follows.
void Partial::post_if_nothing_follows(Env& env) {
  const bool ends = phase_ == Phase::ready && has_no_steps_left();
  if (own_.waiting() && (rounds_.draining() || ends)) post(env);
}

// A quorum that is complete gives the others their grace.
void Partial::give_grace(Env& env) {
  if (reduce_.in_grace()) env.after(from_seconds(settings_.activation.grace), rounds_.now());
}

void Partial::on_timer(Env& env, TimerId round) {
  if (round != rounds_.now()) return;
  send(env, reduce_.end_grace());
  contribute_if_begun(env);
}

void Partial::contribute_if_begun(Env& env) {
  if (!reduce_.begun() || reduce_.contributed() || must_hold_back()) return;
  OwnGradients::Contribution own = own_.contribute();
  if (!own.sum.defined() && !from_residual_) own.sum = new_vector().zero_();
  from_residual_ = false;
  const CompressionSettings& compression = plan().compression;
  const bool kept = compression.enabled() && compression.error_feedback;
  given_ = own.gradients > 0 && !kept ? vectors_.copy_of(own.sum) : at::Tensor();
  send(env, reduce_.contribute(std::move(own.sum), own.gradients, model_.epoch, env.rng()));
  if (reduce_.done()) apply(env, reduce_.take_result());
}

// Differences: their memory may become that of a model.
at::Tensor Partial::new_vector() {
  return packs_differences() ? pool_.take(model_.x) : vectors_.take(model_.x.read());
}

// Whether the steps that are computed would be consumed more than tau rounds after their x.
bool Partial::must_hold_back() const {
  return phase_ == Phase::computing &&
         rounds_.now() - own_.begun_at() >= settings_.staleness.at(model_.epoch);
}

// x <- x - gamma u(s / P), or a <- outer step along s / P, the same on every rank.
void Partial::apply(Env& env, PartialAllReduce::Result result) {
  const double by = settings_.divisor(result.tally, exchanges().longest());
  if (by > 0 && by != 1) result.sum.mul_(1.0 / by);
  rounds_.consume(result.tally);
  const double steps = static_cast<double>(rounds_.consumed_by_all()) / ranks_;
  // Of the last of the steps in a difference, the same on every rank.
  const double last = parts_->horizon.epoch_at(std::max(0.0, steps - 1));
  take_mean(std::move(result.sum), packs_differences() ? last : model_.epoch);
  model_.step = rounds_.consumed(rank_);
  model_.epoch = parts_->horizon.epoch_at(steps);
  own_.commit(env, stamp(), step_now(), model_, result.contributors());
  next_round(env);
}

// A rank amid its local steps continues from its own model.
void Partial::take_mean(at::Tensor mean, double epoch) {
  if (!packs_differences()) {
    local_.step_along_mean(model_, std::move(mean), epoch, pool_);
    return;
  }
  local_.begin(model_);  // of a rank whose first gradient is still computed
  const FrozenTensor own = phase_ == Phase::computing ? model_.x : FrozenTensor();
  local_.take_mean(model_, std::move(mean), epoch, pool_);
  if (own.defined()) model_.x = own;
}

void Partial::next_round(Env& env) {
  rounds_.advance();
  if (phase_ == Phase::waiting) {
    env.record({EventKind::wait_end, -1, stamp(), produced_ - 1, 0, 0});
    end_step(env);
    phase_ = Phase::ready;
  }
  start_round();
  if (rounds_.all_consumed()) return finish(env);
  if (phase_ == Phase::ready) compute_next(env);
  post_if_nothing_follows(env);
  send(env, early_.pass_to(reduce_, rank_));
  give_grace(env);
  contribute_if_begun(env);
}

void Partial::start_round() {
  reduce_ =
      PartialAllReduce(everybody_, rank_, rounds_.now(), rounds_.trigger(model_.epoch), reduction_);
}

// ---- messages ----

// An activation of a round that has begun comes too late.
void Partial::on_message(Env& env, Envelope envelope) {
  const std::int64_t round = PartialAllReduce::operation_of(envelope.payload);
  const auto* activate = std::get_if<Activate>(&envelope.payload);
  if (round > rounds_.now()) return early_.hold(envelope.from, round, std::move(envelope.payload));
  if (round < rounds_.now() && activate != nullptr) return;
  GRAPEVINE_CHECK(round == rounds_.now(), "a part of round ", round, " that is over, from rank ",
                  envelope.from);
  if (activate != nullptr) {
    send(env, reduce_.on_activate(*activate));
    give_grace(env);
  } else {
    send(env, reduce_.on_message(envelope.from, std::move(envelope.payload)));
    if (reduce_.done()) return apply(env, reduce_.take_result());
  }
  contribute_if_begun(env);
}

// ---- the model ----

// Differences: the common model, also amid local steps.
FrozenTensor Partial::debiased() const {
  return packs_differences() && local_.anchor().defined() ? local_.anchor() : model_.x;
}

// A rank without steps left waits for the rounds that are to come.
std::vector<Awaited> Partial::waits() const {
  const bool ready = phase_ == Phase::ready && !rounds_.all_consumed();
  return ready || phase_ == Phase::waiting ? awaited() : std::vector<Awaited>();
}

// ---- a change of members ----

std::int64_t Partial::close(Env& env) {
  waits_ = phase_ == Phase::waiting;
  if (waits_) env.record({EventKind::wait_end, -1, stamp(), produced_ - 1, 0, 0});
  return rounds_.now();
}

void Partial::take_back(Env&, std::int64_t) {
  const bool contributed = reduce_.contributed();
  from_residual_ = reduction_->take_back() || from_residual_;
  if (contributed) own_.take_back(std::exchange(given_, at::Tensor()));
}

// Local steps of a model that is given up are a difference by themselves.
void Partial::count_as_done(Env& env) {
  own_.commit(env, stamp(), step_now(), model_, {});
  reduction_->count_as_given();
  if (packs_differences() && own_.has_steps()) add_difference();
  begins_at_anchor_ = true;
  if (std::exchange(waits_, false)) end_step(env);
}

void Partial::shared_fields(Archive& a) {
  TrainingRole::shared_fields(a);
  a.nested("rounds", [this](Archive& inner) { rounds_.kept_fields(inner, parts_->before); });
  // Rounds have other numbers among the new members where H changes with the epoch.
  Step regular = exchanges().begin_of(rounds_.regular_rounds_done());
  a.count("regular_steps", regular);
  a.number("epoch", model_.epoch);
  if (!a.loads() || !a.ok()) return;
  model_.step = rounds_.consumed(rank_);
  rounds_.extend(exchanges().index_of(regular));
}

void Partial::own_fields(Archive& a) {
  if (a.loads()) produced_ = model_.step;
  a.count("produced", produced_);
  a.flag("waits", waits_);
  a.flag("from_residual", from_residual_);
  begins_at_anchor_field(a);
  own_.fields(a, model_.x.numel());
  a.nested("reduction", [this](Archive& inner) { reduction_->kept_fields(inner); });
  if (!a.loads() || !a.ok()) return;
  weigh_what_waits();
  start_round();
}

void Partial::joiner_fields(Archive& a) {
  if (!a.loads()) return;
  produced_ = model_.step;
  start_round();
}

// ---- a change of the wiring ----

// Of differences: from the common model, with the local steps since the last one.
void Partial::flush(Env& env) {
  at::Tensor residual = reduction_->take_residual();
  at::Tensor waiting = own_.flush(env, stamp(), step_now(), model_);
  if (packs_differences() && local_.anchor().defined()) model_.x = local_.anchor();
  for (at::Tensor* part : {&residual, &waiting}) {
    if (!part->defined()) continue;
    if (packs_differences()) {
      change_in_place(model_.x, [part](at::Tensor& x) { kernels::subtract_into(x, x, *part); });
    } else {
      local_.step_along_late(model_, std::move(*part), model_.epoch);
    }
  }
  model_.step = produced_;
  from_residual_ = false;
  if (std::exchange(waits_, false)) end_step(env);
}

void Partial::take_over(const at::Tensor& optimizer) {
  TrainingRole::take_over(optimizer);
  produced_ = model_.step;
  rounds_.begin_at(produced_, exchanges().index_of(produced_));
  start_round();
}

void Partial::fields(Archive& a) {
  common_fields(a);
  const std::int64_t d = model_.x.numel();
  a.whole("produced", produced_, 0, std::numeric_limits<Step>::max() / 4);
  a.part("rounds", rounds_);
  own_.fields(a, d);
  early_.fields(a);
  if (a.loads() && a.ok()) start_round();
  a.part("reduce", reduce_, model_.epoch);
  a.vector("given", given_, d);
  if (a.has("from_residual")) a.flag("from_residual", from_residual_);
  a.require(!packs_differences() || phase_ != Phase::computing || a.has("start", true), "start",
            "is missing");
}

}  // namespace grapevine
