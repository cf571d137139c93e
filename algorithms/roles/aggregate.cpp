#include "algorithms/roles/aggregate.hpp"

#include <ATen/ATen.h>

#include <cmath>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/roles/messages_of.hpp"
#include "algorithms/wiring/shared_parts.hpp"

namespace grapevine {
namespace {

void read_aggregate(KeyReader& keys, Plan& plan) {
  LocalUpdateSettings& local = plan.local;
  local.pack = read_pack(keys, {Pack::gradient, Pack::model, Pack::difference}, "");
  local.local_steps = read_local_steps(keys);
  keys.only_where("local_steps", local.pack != Pack::gradient || local.local_steps == 1,
                  "pack = 'gradient': gradients are summed at every step, choose pack = 'model' "
                  "or 'difference'");
  keys.where("pack", "difference", [&] { read_outer(keys, local); });
  plan.compression = read_compression(keys, {true, true});
  keys.only_where("compress", !plan.compression.enabled() || local.pack != Pack::model,
                  "pack = 'model': what is not sent would become 0 in the model, choose pack = "
                  "'difference'");
  keys.where("pack", "gradient", [&] { local.clip = read_clip(keys); });
}

std::unique_ptr<Optimizer> outer_optimizer(const LocalUpdateSettings& local) {
  if (!local.outer) return nullptr;
  OptimizerConfig config;
  config.momentum = local.outer_momentum;
  config.nesterov = local.outer_momentum > 0;
  return *make_optimizer(config);
}

}  // namespace

const RoleType& aggregate_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "aggregate";
    role.summary = "all ranks take the mean of their gradients, models or differences";
    role.read = &read_aggregate;
    role.prepare = [](SharedParts& parts, std::int32_t ranks) {
      return check_bytes(parts.plan.compression, ranks, parts.plan.hierarchy > 1);
    };
    role.make = [](RoleContext c) -> std::unique_ptr<Role> {
      return std::make_unique<Aggregate>(c.parts, c.rank, c.ranks, c.model, std::move(c.optimizer));
    };
    return role;
  }();
  return type;
}

Aggregate::Aggregate(std::shared_ptr<const SharedParts> parts, Rank rank, std::int32_t ranks,
                     ModelState& model, std::unique_ptr<Optimizer> optimizer)
    : parts_(std::move(parts)),
      rank_(rank),
      ranks_(ranks),
      model_(model),
      optimizer_(std::move(optimizer)),
      outer_(outer_optimizer(parts_->plan.local)),
      reduction_(make_reduction(reduction_settings(*parts_), rank, ranks, model.x.numel())) {}

void Aggregate::on_start(Env& env) {
  if (phase_ == Phase::reducing) return;  // the chunks on their way continue it
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
  GRAPEVINE_CHECK(phase_ == Phase::computing, "a gradient arrived without a request");
  at::Tensor g = std::move(gradient.value).thaw();
  if (parts_->plan.local.pack == Pack::gradient) return reduce(env, std::move(g));
  take_local_step(env, std::move(g));
  if (exchanges_now()) return reduce(env, packed());
  ++held_;
  step_done(env);
  begin_step(env);
}

bool Aggregate::exchanges_now() const {
  const Step done = model_.step + 1;
  return done % parts_->plan.local.local_steps == 0 || done >= parts_->horizon.steps;
}

// x_i <- x_i - gamma u(g_i).
void Aggregate::take_local_step(Env& env, at::Tensor gradient) {
  if (!anchor_.defined() && parts_->plan.local.pack == Pack::difference) anchor_ = model_.x;
  model_.lr = parts_->lr.at(parts_->horizon.epoch_of(model_.step));
  update_frozen(model_.x, pool_, [&](at::Tensor& out, const at::Tensor& x) {
    optimizer_->step_into(out, x, gradient, model_.lr, 1);
  });
  env.recycle(FrozenTensor::freeze(std::move(gradient)));
}

at::Tensor Aggregate::packed() const {
  if (parts_->plan.local.pack == Pack::model) return model_.x.read().clone();
  at::Tensor difference = at::empty_like(model_.x.read());
  kernels::subtract_into(difference, anchor_.read(), model_.x.read());
  return difference;
}

void Aggregate::reduce(Env& env, at::Tensor packed) {
  phase_ = Phase::reducing;
  const ClipSettings& clip = parts_->plan.local.clip;
  if (clip.norm > 0 && !clip.at_sum) kernels::clip(packed, clip.norm / std::sqrt(ranks_));
  send(env, reduction_->start(model_.step, parts_->horizon.epoch_of(model_.step), std::move(packed),
                              env.rng()));
  if (!reduction_->done()) env.record({EventKind::wait_begin, -1, stamp(), model_.step, 0, 0});
  apply_if_reduced(env);
}

void Aggregate::on_message(Env& env, Envelope envelope) {
  send(env, reduction_->on_message(envelope.from, std::move(envelope.payload)));
  if (reduction_->done()) env.record({EventKind::wait_end, -1, stamp(), model_.step, 0, 0});
  apply_if_reduced(env);
}

void Aggregate::apply_if_reduced(Env& env) {
  if (!reduction_->done()) return;
  at::Tensor mean = reduction_->take_sum();
  // Models are divided: the rounding of 1/P would change the mean by one factor in every exchange.
  const auto ranks = static_cast<double>(ranks_);
  if (ranks_ > 1 && parts_->plan.local.pack == Pack::model)
    mean.div_(ranks);
  else if (ranks_ > 1)
    mean.mul_(1.0 / ranks);
  const ClipSettings& clip = parts_->plan.local.clip;
  if (clip.norm > 0 && clip.at_sum) kernels::clip(mean, clip.norm);
  apply(env, std::move(mean));

  Stamp done = stamp();
  for (done.step -= held_; done.step < model_.step; ++done.step)
    env.record({EventKind::committed, rank_, done, model_.step, 0, 0});
  env.record({EventKind::committed, rank_, done, done.step, 0, 0});
  env.record({EventKind::applied, -1, done, done.step, 0, model_.x.nbytes()});
  held_ = 0;
  step_done(env);
  begin_step(env);
}

// The same on every rank: all have the same mean, and the same x or anchor.
void Aggregate::apply(Env& env, at::Tensor mean) {
  const Pack pack = parts_->plan.local.pack;
  if (pack == Pack::model) {
    model_.x = FrozenTensor::freeze(std::move(mean));
    return;
  }
  if (pack == Pack::gradient) model_.lr = parts_->lr.at(parts_->horizon.epoch_of(model_.step));
  if (pack == Pack::difference) model_.x = std::move(anchor_);
  at::Tensor x = std::move(model_.x).thaw();
  if (pack == Pack::gradient)
    optimizer_->step(x, mean, model_.lr);
  else if (outer_)
    outer_->step(x, mean, parts_->plan.local.outer_lr);
  else
    kernels::subtract_into(x, x, mean);
  model_.x = FrozenTensor::freeze(std::move(x));
  if (pack == Pack::difference) anchor_ = model_.x;
  env.recycle(FrozenTensor::freeze(std::move(mean)));
}

void Aggregate::step_done(Env& env) {
  const Stamp done = stamp();
  ++model_.step;
  model_.epoch = parts_->horizon.epoch_of(model_.step);
  env.record({EventKind::step_done, -1, done, done.step, 0, 0});
}

void Aggregate::on_timer(Env&, TimerId) {}

// The sum cannot be completed without this rank: the supervisor ends the run.
void Aggregate::on_peer_down(Env&, Rank) {}
void Aggregate::on_peer_up(Env&, Rank) {}

FrozenTensor Aggregate::debiased() const { return model_.x; }

void Aggregate::send(Env& env, std::vector<OutgoingMessage> messages) {
  send_all(env, stamp(), std::move(messages));
}

Stamp Aggregate::stamp() const { return stamp_of(rank_, model_.step, model_.step); }

StateDict Aggregate::save() const {
  StateDict state;
  state.put("phase", static_cast<std::int64_t>(phase_));
  state.put("held", held_);
  if (anchor_.defined()) state.put("anchor", anchor_.read());
  if (outer_) state.put_all("outer", outer_->save());
  state.put_all("optimizer", optimizer_->save());
  state.put_all("reduction", reduction_->save());
  return state;
}

Expected<void> Aggregate::load(const StateDict& state) {
  const auto phase = state.integer_in("phase", 0, static_cast<std::int64_t>(Phase::finished)),
             held = state.integer_in("held", 0, parts_->plan.local.local_steps - 1);
  for (const auto* field : {&phase, &held})
    if (!*field) return field->error();
  phase_ = static_cast<Phase>(*phase);
  held_ = *held;
  if (auto loaded = load_anchor(state); !loaded) return loaded;
  if (outer_) {
    if (auto loaded = outer_->load(state.under("outer"), model_.x.numel()); !loaded) return loaded;
  }
  if (auto loaded = reduction_->load(state.under("reduction"), model_.step,
                                     parts_->horizon.epoch_of(model_.step));
      !loaded)
    return loaded;
  if (reduction_->running() != (phase_ == Phase::reducing))
    return bad_input(
        "entries 'phase' and 'reduction' of the saved state do not fit each other: the checkpoint "
        "is damaged, resume from another one");
  return optimizer_->load(state.under("optimizer"), model_.x.numel());
}

// Local steps need their anchor.
Expected<void> Aggregate::load_anchor(const StateDict& state) {
  anchor_ = FrozenTensor();
  const bool begun = held_ > 0 || phase_ == Phase::reducing;
  const bool has_anchor = state.entries().count("anchor") > 0;
  if (parts_->plan.local.pack != Pack::difference || (!has_anchor && !begun)) return {};
  const auto anchor = state.flat_tensor("anchor", model_.x.numel());
  if (!anchor) return anchor.error();
  anchor_ = FrozenTensor::copy_of(*anchor);
  return {};
}

}  // namespace grapevine
