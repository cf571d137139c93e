#include "algorithms/roles/levels/level.hpp"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/parts/stored_envelope.hpp"
#include "algorithms/roles/make_role.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

void model_fields(Archive& a, ModelState& model, std::int64_t d) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 4;
  a.needs("x");
  a.vector("x", model.x, d);
  a.number("w", model.w);
  a.require(model.w > 0, "w", "is not positive");
  a.whole("step", model.step, 0, kMost);
  a.number("epoch", model.epoch);
}

}  // namespace

// ---- the two worlds of a rank ----

// Where the role inside asks for a gradient of the next period, or ends, this one is over.
class Level::InsideEnv final : public NestedEnv {
 public:
  InsideEnv(Level& level, Env& env)
      : NestedEnv(env, level.members_, level.rank_ - level.members_.front()), level_(level) {}

  void compute(Step step, FrozenTensor z) override {
    if (step < level_.levels_.periods.end_of(level_.period_)) return env_.compute(step, z);
    level_.period_over_ = true;
  }
  void after(Duration delay, TimerId id) override { env_.after(delay, 2 * id + 1); }
  void finished() override { level_.period_over_ = true; }

 private:
  Level& level_;
};

// Its steps are periods, and those are no gradients: the role inside records what becomes of these.
class Level::OutsideEnv final : public NestedEnv {
 public:
  OutsideEnv(Level& level, Env& env)
      : NestedEnv(env, level.exchangers_, level.rank_ / level.parts_->plan.hierarchy),
        level_(level) {}

  void compute(Step step, FrozenTensor z) override {
    // Resumed from a checkpoint: the period is under way.
    if (level_.phase_ == Phase::running || level_.phase_ == Phase::reducing) return;
    level_.z_ = z;
    level_.publish(env_, step, z, false);
    level_.begin_period(env_, step, std::move(z));
  }
  void after(Duration delay, TimerId id) override { env_.after(delay, 2 * id); }
  void finished() override { level_.finish(env_); }
  void record(const Event& event) override {
    const bool of_gradient = event.kind == EventKind::committed ||
                             event.kind == EventKind::dropped || event.kind == EventKind::step_done;
    if (of_gradient) return;
    const ExchangeSteps& periods = level_.levels_.periods;
    Event in_gradients = of_run(event);
    in_gradients.step = level_.model_.step;
    in_gradients.stamp.step =
        event.stamp.step < 0 ? event.stamp.step : periods.end_of(event.stamp.step) - 1;
    in_gradients.staleness *= periods.longest();
    env_.record(in_gradients);
  }

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
      exchangers_(heads_and_servers(context.ranks, parts_->plan)),
      world_size_(context.ranks + parts_->plan.servers),
      model_(context.model),
      mean_(members_, rank_),
      inside_(make_role(levels_.inside, rank_ - members_.front(), parts_->plan.hierarchy, model_)),
      group_(model_) {
  if (rank_ != members_.front()) return;
  outside_ = make_flat_role(levels_.outside, rank_ / parts_->plan.hierarchy,
                            static_cast<std::int32_t>(exchangers_.size()), group_);
}

Level::~Level() = default;

// ---- a period ----

void Level::on_start(Env& env) {
  const bool was_running = phase_ == Phase::running;
  if (is_head()) {
    OutsideEnv outside(*this, env);
    outside_->on_start(outside);
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
  if (ranks_agree_) return give_difference(env, inside_->debiased());
  phase_ = Phase::reducing;
  send(env, mean_.start(operation(), inside_->numerator().read().clone()));
  if (!mean_.done()) env.record({EventKind::wait_begin, -1, stamp(), model_.step, 0, 0});
  take_mean(env);
}

void Level::take_mean(Env& env) {
  if (mean_.done()) give_difference(env, FrozenTensor::freeze(mean_.take()));
}

// z - mean is the gradient of the role outside; the others wait for the next z.
void Level::give_difference(Env& env, const FrozenTensor& mean) {
  phase_ = Phase::waiting;
  if (is_head()) {
    at::Tensor difference = at::empty_like(mean.read());
    kernels::subtract_into(difference, z_.read(), mean.read());
    Gradient gradient;
    gradient.step = period_;
    gradient.value = FrozenTensor::freeze(std::move(difference));
    OutsideEnv outside(*this, env);
    return outside_->on_gradient(outside, std::move(gradient));
  }
  wait_for_head(env);
  if (next_) follow(env, *std::exchange(next_, std::nullopt));
}

// ---- the head and its group ----

void Level::publish(Env& env, std::int64_t period, const FrozenTensor& z, bool last) {
  for (const Rank member : members_)
    if (member != rank_) env.send(member, stamp(), Parameters{tag(period), last, model_.epoch, z});
}

void Level::finish(Env& env) {
  GRAPEVINE_CHECK(phase_ == Phase::waiting || phase_ == Phase::finished,
                  "the role outside ended amid a period");
  phase_ = Phase::finished;
  publish_last(env);
  env.finished();
}

// Messages of other groups that arrive after the end still change the group's model.
void Level::publish_last(Env& env) {
  model_.x = outside_->debiased();
  model_.w = 1;
  publish(env, period_, model_.x, true);
}

void Level::follow(Env& env, Parameters parameters) {
  if (phase_ == Phase::running || phase_ == Phase::reducing) {
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
  GRAPEVINE_CHECK(is_head(), "rank ", envelope.from, " of another group sent a message to rank ",
                  rank_, ", which is no head");
  const bool had_ended = phase_ == Phase::finished;
  OutsideEnv outside(*this, env);
  outside_->on_message(outside, outside.of_world(std::move(envelope)));
  if (had_ended && phase_ == Phase::finished) publish_last(env);
}

void Level::on_own_message(Env& env, Envelope envelope) {
  if (auto* chunk = std::get_if<Chunk>(&envelope.payload)) {
    send(env, mean_.on_chunk(std::move(*chunk)));
    if (mean_.done()) env.record({EventKind::wait_end, -1, stamp(), model_.step, 0, 0});
    return take_mean(env);
  }
  auto& parameters = std::get<Parameters>(envelope.payload);
  GRAPEVINE_CHECK(envelope.from == members_.front() && !is_head() && parameters.step >= 0 &&
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

void Level::send(Env& env, std::vector<OutgoingChunk> chunks) {
  for (OutgoingChunk& chunk : chunks) env.send(chunk.to, stamp(), std::move(chunk.chunk));
}

Stamp Level::stamp() const { return stamp_of(rank_, model_.step, model_.step); }

void Level::on_timer(Env& env, TimerId id) {
  if (id % 2 == 0) {
    if (!is_head()) return;
    OutsideEnv outside(*this, env);
    return outside_->on_timer(outside, id / 2);
  }
  InsideEnv inside(*this, env);
  inside_->on_timer(inside, id / 2);
  end_period_if_due(env);
}

void Level::on_peer_down(Env& env, Rank peer) {
  const auto number = number_in(exchangers_, peer);
  if (!is_head() || !number || peer == rank_) return;
  OutsideEnv outside(*this, env);
  outside_->on_peer_down(outside, *number);
}

void Level::on_peer_up(Env& env, Rank peer) {
  const auto number = number_in(exchangers_, peer);
  if (!is_head() || !number || peer == rank_) return;
  OutsideEnv outside(*this, env);
  outside_->on_peer_up(outside, *number);
}

// ---- inside another level ----

void Level::restart(FrozenTensor z) {
  if (is_head()) {
    z_ = z;
    outside_->restart(z);
  }
  inside_->restart(std::move(z));
}

// The head stands for its group, whose model may have a weight.
FrozenTensor Level::numerator() const {
  if (!is_head()) return FrozenTensor::freeze(at::zeros_like(model_.x.read()));
  const auto size = static_cast<double>(members_.size());
  return FrozenTensor::freeze(outside_->numerator().read() * size);
}

// ---- the model ----

FrozenTensor Level::debiased() const {
  return phase_ == Phase::finished ? model_.x : inside_->debiased();
}

StateDict Level::measures() const { return is_head() ? outside_->measures() : StateDict{}; }

void Level::fields(Archive& a) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / (2 * kLevelTags);
  const std::int64_t d = model_.x.numel();
  a.one_of("phase", phase_, Phase::finished);
  a.whole("period", period_, 0, kMost);
  a.part("inside", *inside_);
  if (is_head()) {
    a.vector("z", z_, d);
    a.require(z_.defined() || phase_ == Phase::waiting || phase_ == Phase::finished, "z",
              "is missing");
    a.nested("group", [&](Archive& inner) { model_fields(inner, group_, d); });
    a.part("outside", *outside_);
  }
  mean_.fields(a, operation(), d);
  a.require(mean_.running() == (phase_ == Phase::reducing), "phase", "does not fit the ring");
  a.items("early_messages", early_messages_, [&](Archive& inner, Envelope& envelope) {
    envelope_fields(inner, envelope, world_size_);
    inner.require(number_in(members_, envelope.from).has_value(), "bytes", "is of another group");
  });
  if (a.present("next", next_))
    a.nested("next", [&](Archive& inner) { parameters_fields(inner, *next_, d); });
}

}  // namespace grapevine
