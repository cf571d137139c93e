#include "algorithms/roles/partial.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/wiring/shared_parts.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

void read_partial(KeyReader& keys, Plan& plan) {
  auto partial = std::make_shared<PartialSettings>();
  using Scale = PartialSettings::Scale;
  plan.local.pack = read_pack(keys, {Pack::gradient, Pack::difference},
                              "exchange = 'partial': a partial sum of models would be no mean");
  partial->activation = read_activation(keys, "majority");
  partial->staleness =
      keys.whole("staleness", partial->staleness, 0, "tau: rounds that a gradient may be old");
  keys.where("pack", "difference", [&] {
    plan.local.steps = read_local_steps(keys);
    read_outer(keys, plan.local);
    plan.local.clip = read_clip(keys, false);
  });
  keys.where("pack", "gradient", [&] { plan.local.clip = read_clip(keys, true); });
  CompressionUse use;
  use.sums = true;
  plan.compression = read_compression(keys, use);
  partial->scale = keys.choice<Scale>(
      "scale", "ranks",
      {{"ranks", Scale::ranks}, {"active", Scale::active}, {"samples", Scale::samples}},
      "what a partial sum is divided by: all ranks, those in it, or the gradients in it");
  keys.only_where("scale", partial->scale == Scale::ranks || !plan.compression.enabled(),
                  "compress = '" + plan.compression.name +
                      "': ranks without a gradient still send what was left over, choose scale = "
                      "'ranks'");
  plan.settings = std::move(partial);
}

Expected<void> prepare_partial(SharedParts& parts, std::int32_t ranks) {
  return check_quorum(data_as<PartialSettings>(parts.plan.settings).activation, ranks);
}

}  // namespace

const RoleType& partial_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "partial";
    role.summary = "ranks sum the gradients that they have, without waiting for the others";
    role.read = &read_partial;
    role.prepare = &prepare_partial;
    role.make = &make_from_context<Partial>;
    role.counts_own_steps = false;
    role.announces_end = [](const Plan& plan) {
      return data_as<PartialSettings>(plan.settings).staleness > 0;
    };
    return role;
  }();
  return type;
}

Partial::Partial(RoleContext context)
    : TrainingRole(std::move(context), true),
      settings_(data_as<PartialSettings>(plan().settings)),
      everybody_(all_ranks(ranks_)),
      reduction_(make_reduction(reduction_settings(*parts_), everybody_, rank_, model_.x.numel())),
      rounds_(settings_.activation, plan().seed, parts_->horizon.steps, exchanges().count(),
              ranks_),
      reduce_(everybody_, rank_, 0, rounds_.trigger(0), reduction_) {}

// ---- training ----

void Partial::on_start(Env& env) {
  if (rounds_.all_consumed()) return finish(env);
  if (phase_ == Phase::finished) {
    phase_ = Phase::ready;
    rounds_.extend(exchanges().index_of(produced_));
    start_round();  // the training was extended: its trigger has changed
  }
  give_grace(env);
  // A node's workers may have begun at an older x: its age is unchanged.
  if (phase_ == Phase::computing) env.compute(produced_, model_.x);
  if (phase_ == Phase::ready) compute_next(env);
}

// Asks for a gradient where this rank has steps left.
void Partial::compute_next(Env& env) {
  phase_ = Phase::ready;
  if (produced_ >= parts_->horizon.steps) return;
  phase_ = Phase::computing;
  if (steps_.empty()) computing_at_ = rounds_.now();
  if (packs_differences() && steps_.empty()) start_ = model_.x;
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
    if (packs_differences()) local_.return_to_anchor(model_);
    compute_next(env);
  } else {
    phase_ = Phase::waiting;
    env.record({EventKind::wait_begin, -1, stamp(), produced_ - 1, 0, 0});
    post(env);
  }
  contribute_if_begun(env);
}

// Adds a gradient to those of this rank; false where a difference has local steps left.
bool Partial::collect(Env& env, at::Tensor g) {
  const Pending own{produced_++, computing_at_};
  if (!packs_differences()) {
    pending_.push_back(own);
    local_.clip_own(g);
    add_pending(env, std::move(g));
    return true;
  }
  steps_.push_back(own);
  local_step(env, std::move(g), parts_->horizon.epoch_of(own.step));
  if (!local_.exchange_due(produced_)) return false;
  add_pending(env, difference());
  const Gradients done = std::exchange(steps_, {});
  pending_.insert(pending_.end(), done.begin(), done.end());
  return true;
}

void Partial::add_pending(Env& env, at::Tensor vector) {
  if (!pending_sum_.defined()) {
    pending_sum_ = std::move(vector);
    return;
  }
  kernels::fold(pending_sum_, vector);
  env.recycle(FrozenTensor::freeze(std::move(vector)));
}

// The way from the x at which the steps began to x.
at::Tensor Partial::difference() {
  at::Tensor way = pool_.take(model_.x.numel());
  kernels::subtract_into(way, start_.read(), model_.x.read());
  const auto taken = static_cast<double>(steps_.size());
  const auto local_steps = static_cast<double>(exchanges().longest());
  if (settings_.scale == PartialSettings::Scale::samples && taken < local_steps)
    kernels::scale(way, taken / local_steps);
  return way;
}

void Partial::post(Env& env) {
  if (reduce_.contributed()) return;
  send(env, reduce_.post());
  give_grace(env);
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
  at::Tensor value = std::exchange(pending_sum_, at::Tensor());
  if (!value.defined()) value = at::zeros({model_.x.numel()});
  contributed_ = std::exchange(pending_, {});
  send(env, reduce_.contribute(std::move(value), static_cast<std::int64_t>(contributed_.size()),
                               model_.epoch, env.rng()));
  if (reduce_.done()) apply(env, reduce_.take_result());
}

// Whether the steps that are computed would be consumed more than tau rounds after their x.
bool Partial::must_hold_back() const {
  return phase_ == Phase::computing && rounds_.now() - computing_at_ >= settings_.staleness;
}

// x <- x - gamma u(s / P), or a <- outer step along s / P, the same on every rank.
void Partial::apply(Env& env, PartialAllReduce::Result result) {
  const double by = divisor(result.tally);
  if (by > 0 && by != 1) result.sum.mul_(1.0 / by);
  rounds_.consume(result.tally);
  const double steps = static_cast<double>(rounds_.consumed_by_all()) / ranks_;
  // Of the last of the steps in a difference, the same on every rank.
  const double last = std::max(0.0, steps - 1) / parts_->horizon.steps_per_epoch;
  take_mean(env, std::move(result.sum), packs_differences() ? last : model_.epoch);
  model_.step = rounds_.consumed(rank_);
  model_.epoch = steps / parts_->horizon.steps_per_epoch;
  commit_own(env, rounds_.now());
  next_round(env);
}

double Partial::divisor(const std::vector<std::int64_t>& tally) const {
  if (settings_.scale == PartialSettings::Scale::ranks) return ranks_;
  if (settings_.scale == PartialSettings::Scale::samples)
    return static_cast<double>(std::accumulate(tally.begin(), tally.end(), std::int64_t{0})) /
           static_cast<double>(exchanges().longest());
  return static_cast<double>(std::count_if(tally.begin(), tally.end(),
                                           [](std::int64_t gradients) { return gradients > 0; }));
}

// A rank amid its local steps continues from its own model.
void Partial::take_mean(Env& env, at::Tensor mean, double epoch) {
  if (!packs_differences()) {
    mean = local_.step_along_mean(model_, std::move(mean), epoch, pool_);
    return env.recycle(FrozenTensor::freeze(std::move(mean)));
  }
  local_.begin(model_);  // of a rank whose first gradient is still computed
  const FrozenTensor own = phase_ == Phase::computing ? model_.x : FrozenTensor();
  mean = local_.take_mean(model_, std::move(mean), epoch);
  if (own.defined()) model_.x = own;
  env.recycle(FrozenTensor::freeze(std::move(mean)));
}

void Partial::commit_own(Env& env, Version round) {
  for (const Pending& gradient : contributed_) {
    Stamp own = stamp();
    own.step = gradient.step;
    own.version = gradient.version;
    env.record({EventKind::committed, rank_, own, gradient.step, 0, 0});
    env.record(
        {EventKind::applied, -1, own, gradient.step, round - gradient.version, model_.x.nbytes()});
  }
  const Version newest = contributed_.empty() ? round + 1 : contributed_.back().version;
  env.record({EventKind::contributed, -1, stamp(), model_.step, round - newest, 0});
  contributed_.clear();
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
  if (rounds_.draining() && !pending_.empty()) post(env);
  take_early(env);
  contribute_if_begun(env);
}

void Partial::start_round() {
  reduce_ =
      PartialAllReduce(everybody_, rank_, rounds_.now(), rounds_.trigger(model_.epoch), reduction_);
}

void Partial::end_step(Env& env) {
  env.record({EventKind::step_done, -1, stamp(), produced_ - 1, 0, 0});
}

// ---- messages ----

void Partial::on_message(Env& env, Envelope envelope) {
  const std::int64_t round = PartialAllReduce::operation_of(envelope.payload);
  if (const auto* activate = std::get_if<Activate>(&envelope.payload)) {
    if (round < rounds_.now()) return;  // that round has begun
    if (round > rounds_.now()) return early_activations_[round].push_back(*activate);
    send(env, reduce_.on_activate(*activate));
    give_grace(env);
  } else {
    GRAPEVINE_CHECK(round >= rounds_.now(), "a part of round ", round, " that is over, from rank ",
                    envelope.from);
    if (round > rounds_.now()) return hold(envelope.from, round, std::move(envelope.payload));
    send(env, reduce_.on_message(envelope.from, std::move(envelope.payload)));
    if (reduce_.done()) return apply(env, reduce_.take_result());
  }
  contribute_if_begun(env);
}

// A message of a later round shows that this round has begun. The reduction stores early vectors.
void Partial::hold(Rank from, std::int64_t round, Payload payload) {
  early_activations_[round].push_back({round, true});
  if (!PartialAllReduce::is_part_of_sum(payload))
    return early_.hold(std::move(std::get<Chunk>(payload)));
  const auto out = reduction_->on_message(from, std::move(payload));
  GRAPEVINE_CHECK(out.empty(), "a later round's message was used in round ", rounds_.now());
}

void Partial::take_early(Env& env) {
  const auto early = early_activations_.extract(rounds_.now());
  if (!early.empty())
    for (const Activate& activate : early.mapped()) send(env, reduce_.on_activate(activate));
  for (Chunk& chunk : early_.take(2 * rounds_.now() + 1))
    send(env, reduce_.on_message(rank_, std::move(chunk)));
  give_grace(env);
}

// ---- the model ----

// Differences: the common model, also amid local steps.
FrozenTensor Partial::debiased() const {
  return packs_differences() && local_.anchor().defined() ? local_.anchor() : model_.x;
}

Stamp Partial::stamp() const {
  return stamp_of(rank_, std::max<Step>(0, produced_ - 1), rounds_.now());
}

void Partial::gradients_fields(Archive& a, const std::string& name, Gradients& gradients) {
  a.items(name, gradients, [](Archive& inner, Pending& gradient) {
    inner.whole("step", gradient.step);
    inner.whole("version", gradient.version);
  });
}

void Partial::fields(Archive& a) {
  common_fields(a);
  const std::int64_t d = model_.x.numel();
  a.whole("produced", produced_, 0, std::numeric_limits<Step>::max() / 4);
  a.whole("computing_at", computing_at_);
  a.vector("start", start_, d);
  a.part("rounds", rounds_);
  a.vector("pending_sum", pending_sum_, d);
  gradients_fields(a, "steps", steps_);
  gradients_fields(a, "pending", pending_);
  gradients_fields(a, "contributed", contributed_);
  a.keyed("early.rounds", "early.", early_activations_,
          [](Archive& inner, std::vector<Activate>& messages) {
            inner.items("messages", messages, [](Archive& one, Activate& message) {
              one.whole("round", message.operation);
              one.flag("begun", message.begun);
            });
          });
  a.part("early_chunks", early_);
  if (a.loads() && a.ok()) start_round();
  a.part("reduce", reduce_, model_.epoch);
  a.require(!packs_differences() || phase_ != Phase::computing || start_.defined(), "start",
            "is missing");
}

}  // namespace grapevine
