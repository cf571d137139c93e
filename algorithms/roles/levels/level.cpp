#include "algorithms/roles/levels/level.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "algorithms/parts/stored_envelope.hpp"
#include "algorithms/roles/make_role.hpp"
#include "messages/check.hpp"

namespace grapevine {

Level::Level(RoleContext context)
    : parts_(std::move(context.parts)),
      levels_(data_as<LevelParts>(parts_->prepared)),
      rank_(context.rank),
      tag_{data_as<LevelSettings>(parts_->plan.settings).depth},
      ranks_agree_(levels_.inside->plan.role->ranks_agree(levels_.inside->plan)),
      world_size_(context.ranks + parts_->plan.servers),
      model_(context.model),
      group_(rank_, parts_->plan.hierarchy),
      inside_(*this, group_.members(), group_.position(),
              make_role(levels_.inside, group_.position(), parts_->plan.hierarchy, model_)) {
  if (rank_ == group_.head())
    head_.emplace(static_cast<Group&>(*this), *parts_, rank_, context.ranks, model_);
}

// ---- a period ----

void Level::on_start(Env& env) {
  const bool was_running = phase_ == Phase::running;
  if (head_) {
    head_->on_start(env);
  } else if (phase_ == Phase::finished && model_.step >= parts_->horizon.steps) {
    env.finished();
  } else if (phase_ == Phase::finished || phase_ == Phase::waiting) {
    phase_ = Phase::waiting;
    group_.wait_for_head(env, stamp(), model_.step);
  }
  if (!was_running) return;
  inside_.on_start(env);
  end_period_if_due(env);
}

// x_i <- z; the role inside continues from it.
void Level::begin_period(Env& env, std::int64_t period, FrozenTensor z) {
  period_ = period;
  phase_ = Phase::running;
  inside_.role().restart(std::move(z));
  inside_.on_start(env);
  for (Envelope& envelope : std::exchange(early_messages_, {}))
    inside_.on_message(env, std::move(envelope));
  GRAPEVINE_CHECK(!period_over_, "a period without a gradient of rank ", rank_);
}

void Level::on_gradient(Env& env, Gradient gradient) {
  GRAPEVINE_CHECK(phase_ == Phase::running, "a gradient arrived without a request");
  inside_.on_gradient(env, std::move(gradient));
  end_period_if_due(env);
}

// Where the role inside asks for a gradient of the next period, or ends, this one is over.
void Level::compute(Env& env, Step step, FrozenTensor z) {
  if (step < parts_->exchanges.end_of(period_)) return env.compute(step, std::move(z));
  period_over_ = true;
}

// Called after the role inside, not by it: what follows may call it again.
void Level::end_period_if_due(Env& env) {
  if (!std::exchange(period_over_, false)) return;
  if (ranks_agree_) return on_mean(env, inside_.role().debiased());
  phase_ = Phase::reducing;
  group_.start(env, stamp(), tag_.operation(period_), inside_.role().numerator().read().clone());
  take_mean(env);
}

void Level::take_mean(Env& env) {
  if (group_.done()) on_mean(env, FrozenTensor::freeze(group_.take()));
}

// The head exchanges the mean; the others wait for the next z.
void Level::on_mean(Env& env, const FrozenTensor& mean) {
  phase_ = Phase::waiting;
  if (head_) return head_->on_mean(env, period_, mean);
  group_.wait_for_head(env, stamp(), model_.step);
  if (auto next = group_.take_kept()) follow(env, *std::move(next));
}

// ---- the head and its group ----

void Level::begin(Env& env, std::int64_t period, const FrozenTensor& z) {
  group_.publish(env, stamp(), {tag_.of(period), false, model_.epoch, z});
  begin_period(env, period, z);
}

void Level::end(Env& env) {
  GRAPEVINE_CHECK(phase_ == Phase::waiting || phase_ == Phase::finished,
                  "the role outside ended amid a period");
  phase_ = Phase::finished;
  publish_last(env);
  env.finished();
}

// Messages of other groups that arrive after the end still change the group's model.
void Level::publish_last(Env& env) {
  model_.x = head_->debiased();
  model_.w = 1;
  group_.publish(env, stamp(), {tag_.of(period_), true, model_.epoch, model_.x});
}

void Level::follow(Env& env, Parameters parameters) {
  if (runs()) return group_.keep(std::move(parameters));
  if (phase_ == Phase::waiting) group_.stop_waiting(env, stamp(), model_.step);
  if (!parameters.last) return begin_period(env, parameters.step / kLevelTags, parameters.x);
  model_.x = std::move(parameters.x);
  model_.w = 1;
  if (std::exchange(phase_, Phase::finished) != Phase::finished) env.finished();
}

// ---- messages ----

void Level::on_message(Env& env, Envelope envelope) {
  if (!group_.has(envelope.from)) return on_outside_message(env, std::move(envelope));
  if (tag_.is_on(envelope.payload)) return on_own_message(env, std::move(envelope));
  // Others have begun the next period: the role inside must not, before it has the same z.
  if (phase_ != Phase::running) return early_messages_.push_back(std::move(envelope));
  inside_.on_message(env, std::move(envelope));
  end_period_if_due(env);
}

void Level::on_outside_message(Env& env, Envelope envelope) {
  GRAPEVINE_CHECK(head_.has_value(), "rank ", envelope.from,
                  " of another group sent a message to rank ", rank_, ", which is no head");
  const bool had_ended = phase_ == Phase::finished;
  head_->on_message(env, std::move(envelope));
  if (had_ended && phase_ == Phase::finished) publish_last(env);
}

void Level::on_own_message(Env& env, Envelope envelope) {
  if (auto* chunk = std::get_if<Chunk>(&envelope.payload)) {
    group_.on_chunk(env, stamp(), std::move(*chunk));
    return take_mean(env);
  }
  auto& parameters = std::get<Parameters>(envelope.payload);
  GRAPEVINE_CHECK(group_.is_from_head(envelope, model_.x.numel()) && parameters.step >= 0, "rank ",
                  envelope.from, " sent its group parameters that are not the head's");
  follow(env, std::move(parameters));
}

// The two worlds share the timers of a rank: even ones are of the head.
void Level::on_timer(Env& env, TimerId id) {
  if (id % 2 == 0) {
    if (head_) head_->on_timer(env, id / 2);
    return;
  }
  inside_.on_timer(env, id / 2);
  end_period_if_due(env);
}

std::vector<Awaited> Level::waits() const {
  if (phase_ == Phase::running) return inside_.waits();
  if (phase_ == Phase::reducing) return {group_.awaited()};
  if (phase_ == Phase::finished) return {};
  return head_ ? head_->waits() : std::vector<Awaited>{group_.awaited_from_head()};
}

// ---- inside another level ----

void Level::restart(FrozenTensor z) {
  if (head_) head_->restart(z);
  inside_.role().restart(std::move(z));
}

// The head stands for its group, whose model may have a weight.
FrozenTensor Level::numerator() const {
  if (!head_) return FrozenTensor::freeze(at::zeros_like(model_.x.read()));
  const auto size = static_cast<double>(group_.members().size());
  return FrozenTensor::freeze(head_->numerator().read() * size);
}

// ---- checkpoints ----

void Level::fields(Archive& a) {
  const std::int64_t d = model_.x.numel();
  a.one_of("phase", phase_, Phase::finished);
  a.whole("period", period_, 0, parts_->exchanges.count());
  a.part("inside", inside_.role());
  if (head_) head_->fields(a, d);
  group_.fields(a, tag_.operation(period_), d);
  a.require(group_.running() == (phase_ == Phase::reducing), "phase", "does not fit the ring");
  a.require(!group_.kept() || tag_.is_on(*group_.kept()), "next", "is of another level");
  a.items("early_messages", early_messages_, [&](Archive& inner, Envelope& envelope) {
    envelope_fields(inner, envelope, world_size_);
    const bool is_of_group = group_.has(envelope.from) && group_.has(envelope.stamp.origin) &&
                             !tag_.is_on(envelope.payload);
    inner.require(is_of_group, "bytes", "is not for the role inside");
  });
}

}  // namespace grapevine
