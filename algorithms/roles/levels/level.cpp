#include "algorithms/roles/levels/level.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <utility>

#include "algorithms/parts/stored_envelope.hpp"
#include "algorithms/roles/make_role.hpp"
#include "messages/check.hpp"

namespace grapevine {

// Where the role inside asks for a gradient of the next period, or ends, this one is over.
class Level::InsideEnv final : public NestedEnv {
 public:
  InsideEnv(Level& level, Env& env)
      : NestedEnv(env, level.members_, level.rank_ - level.members_.front()), level_(level) {}

  void compute(Step step, FrozenTensor z) override {
    if (step < level_.parts_->exchanges.end_of(level_.period_)) return env_.compute(step, z);
    level_.period_over_ = true;
  }
  void after(Duration delay, TimerId id) override { env_.after(delay, 2 * id + 1); }
  void finished() override { level_.period_over_ = true; }

 private:
  Level& level_;
};

Level::Level(RoleContext context)
    : parts_(std::move(context.parts)),
      levels_(data_as<LevelParts>(parts_->prepared)),
      rank_(context.rank),
      depth_(data_as<LevelSettings>(parts_->plan.settings).depth),
      ranks_agree_(levels_.inside->plan.role->ranks_agree(levels_.inside->plan)),
      members_(group_of(rank_, parts_->plan.hierarchy)),
      world_size_(context.ranks + parts_->plan.servers),
      model_(context.model),
      mean_(members_, rank_),
      inside_(make_role(levels_.inside, rank_ - members_.front(), parts_->plan.hierarchy, model_)) {
  if (rank_ == members_.front())
    head_.emplace(static_cast<Group&>(*this), *parts_, rank_, context.ranks, model_);
}

Level::~Level() = default;

// ---- a period ----

void Level::on_start(Env& env) {
  const bool was_running = phase_ == Phase::running;
  if (head_) {
    head_->on_start(env);
  } else if (phase_ == Phase::finished && model_.step >= parts_->horizon.steps) {
    env.finished();
  } else if (phase_ == Phase::finished || phase_ == Phase::waiting) {
    phase_ = Phase::waiting;
    wait_for_head(env);
  }
  if (!was_running) return;
  InsideEnv inside(*this, env);
  inside_->on_start(inside);
  end_period_if_due(env);
}

// x_i <- z; the role inside continues from it.
void Level::begin_period(Env& env, std::int64_t period, FrozenTensor z) {
  period_ = period;
  phase_ = Phase::running;
  InsideEnv inside(*this, env);
  inside_->restart(std::move(z));
  inside_->on_start(inside);
  for (Envelope& envelope : std::exchange(early_messages_, {}))
    inside_->on_message(inside, inside.of_world(std::move(envelope)));
  GRAPEVINE_CHECK(!period_over_, "a period without a gradient of rank ", rank_);
}

void Level::on_gradient(Env& env, Gradient gradient) {
  GRAPEVINE_CHECK(phase_ == Phase::running, "a gradient arrived without a request");
  InsideEnv inside(*this, env);
  inside_->on_gradient(inside, std::move(gradient));
  end_period_if_due(env);
}

// Called after the role inside, not by it: what follows may call it again.
void Level::end_period_if_due(Env& env) {
  if (!std::exchange(period_over_, false)) return;
  if (ranks_agree_) return on_mean(env, inside_->debiased());
  phase_ = Phase::reducing;
  send_all(env, stamp(), mean_.start(operation(), inside_->numerator().read().clone()));
  if (!mean_.done()) env.record({EventKind::wait_begin, -1, stamp(), model_.step, 0, 0});
  take_mean(env);
}

void Level::take_mean(Env& env) {
  if (mean_.done()) on_mean(env, FrozenTensor::freeze(mean_.take()));
}

// The head exchanges the mean; the others wait for the next z.
void Level::on_mean(Env& env, const FrozenTensor& mean) {
  phase_ = Phase::waiting;
  if (head_) return head_->on_mean(env, period_, mean);
  wait_for_head(env);
  if (next_) follow(env, *std::exchange(next_, std::nullopt));
}

// ---- the head and its group ----

void Level::publish(Env& env, std::int64_t period, const FrozenTensor& z, bool last) {
  for (const Rank member : members_)
    if (member != rank_) env.send(member, stamp(), Parameters{tag(period), last, model_.epoch, z});
}

void Level::begin(Env& env, std::int64_t period, const FrozenTensor& z) {
  publish(env, period, z, false);
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
  publish(env, period_, model_.x, true);
}

void Level::follow(Env& env, Parameters parameters) {
  if (runs()) {
    next_ = std::move(parameters);
    return;
  }
  if (phase_ == Phase::waiting)
    env.record({EventKind::wait_end, members_.front(), stamp(), model_.step, 0, 0});
  if (!parameters.last) return begin_period(env, parameters.step / kLevelTags, parameters.x);
  model_.x = std::move(parameters.x);
  model_.w = 1;
  if (std::exchange(phase_, Phase::finished) != Phase::finished) env.finished();
}

void Level::wait_for_head(Env& env) {
  env.record({EventKind::wait_begin, members_.front(), stamp(), model_.step, 0, 0});
}

// ---- messages ----

void Level::on_message(Env& env, Envelope envelope) {
  if (!number_in(members_, envelope.from)) return on_outside_message(env, std::move(envelope));
  if (is_own(envelope.payload)) return on_own_message(env, std::move(envelope));
  // Others have begun the next period: the role inside must not, before it has the same z.
  if (phase_ != Phase::running) return early_messages_.push_back(std::move(envelope));
  InsideEnv inside(*this, env);
  inside_->on_message(inside, inside.of_world(std::move(envelope)));
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
    send_all(env, stamp(), mean_.on_chunk(std::move(*chunk)));
    if (mean_.done()) env.record({EventKind::wait_end, -1, stamp(), model_.step, 0, 0});
    return take_mean(env);
  }
  auto& parameters = std::get<Parameters>(envelope.payload);
  GRAPEVINE_CHECK(envelope.from == members_.front() && !head_ && parameters.step >= 0 &&
                      parameters.x.numel() == model_.x.numel() && std::isfinite(parameters.epoch),
                  "rank ", envelope.from, " sent its group parameters that are not the head's");
  follow(env, std::move(parameters));
}

// Of what this level sends within its group: levels inside have other tags, and their roles number
// their operations from 0.
std::int64_t Level::tag(std::int64_t period) const { return period * kLevelTags + depth_; }

std::int64_t Level::operation() const { return -1 - tag(period_); }

bool Level::is_own(const Payload& payload) const {
  if (const auto* chunk = std::get_if<Chunk>(&payload))
    return chunk->operation < 0 && (-1 - chunk->operation) % kLevelTags == depth_;
  const auto* parameters = std::get_if<Parameters>(&payload);
  return parameters != nullptr && parameters->step % kLevelTags == depth_;
}

// The two worlds share the timers of a rank: even ones are of the head.
void Level::on_timer(Env& env, TimerId id) {
  if (id % 2 == 0) {
    if (head_) head_->on_timer(env, id / 2);
    return;
  }
  InsideEnv inside(*this, env);
  inside_->on_timer(inside, id / 2);
  end_period_if_due(env);
}

// ---- inside another level ----

void Level::restart(FrozenTensor z) {
  if (head_) head_->restart(z);
  inside_->restart(std::move(z));
}

// The head stands for its group, whose model may have a weight.
FrozenTensor Level::numerator() const {
  if (!head_) return FrozenTensor::freeze(at::zeros_like(model_.x.read()));
  const auto size = static_cast<double>(members_.size());
  return FrozenTensor::freeze(head_->numerator().read() * size);
}

// ---- the model ----

FrozenTensor Level::debiased() const {
  return phase_ == Phase::finished ? model_.x : inside_->debiased();
}

StateDict Level::measures() const { return head_ ? head_->measures() : StateDict{}; }

void Level::fields(Archive& a) {
  const std::int64_t d = model_.x.numel();
  a.one_of("phase", phase_, Phase::finished);
  a.whole("period", period_, 0, parts_->exchanges.count());
  a.part("inside", *inside_);
  if (head_) head_->fields(a, d);
  mean_.fields(a, operation(), d);
  a.require(mean_.running() == (phase_ == Phase::reducing), "phase", "does not fit the ring");
  a.items("early_messages", early_messages_, [&](Archive& inner, Envelope& envelope) {
    envelope_fields(inner, envelope, world_size_);
    const bool is_of_group = number_in(members_, envelope.from) &&
                             number_in(members_, envelope.stamp.origin) &&
                             !is_own(envelope.payload);
    inner.require(is_of_group, "bytes", "is not for the role inside");
  });
  if (a.present("next", next_))
    a.nested("next", [&](Archive& inner) {
      parameters_fields(inner, *next_, d);
      inner.require(next_->step % kLevelTags == depth_, "step", "is of another level");
    });
}

}  // namespace grapevine
