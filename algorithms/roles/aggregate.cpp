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
  keys.where("pack", "gradient", [&] { local.clip = read_clip(keys, true); });
  for (const char* pack : {"model", "difference"})
    keys.where("pack", pack, [&] { local.clip = read_clip(keys, false); });
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
      local_(parts_->plan.local, parts_->horizon, parts_->lr, ranks, std::move(optimizer)),
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
  if (parts_->plan.local.pack == Pack::gradient) {
    local_.clip_own(g);
    return reduce(env, std::move(g));
  }
  g = local_.step(model_, std::move(g), parts_->horizon.epoch_of(model_.step), pool_);
  env.recycle(FrozenTensor::freeze(std::move(g)));
  if (local_.exchange_due(model_.step + 1)) return reduce(env, local_.packed(model_));
  ++held_;
  step_done(env);
  begin_step(env);
}

void Aggregate::reduce(Env& env, at::Tensor packed) {
  phase_ = Phase::reducing;
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
  at::Tensor free =
      local_.take_mean(model_, std::move(mean), parts_->horizon.epoch_of(model_.step));
  if (free.defined()) env.recycle(FrozenTensor::freeze(std::move(free)));

  Stamp done = stamp();
  for (done.step -= held_; done.step < model_.step; ++done.step)
    env.record({EventKind::committed, rank_, done, model_.step, 0, 0});
  env.record({EventKind::committed, rank_, done, done.step, 0, 0});
  env.record({EventKind::applied, -1, done, done.step, 0, model_.x.nbytes()});
  held_ = 0;
  step_done(env);
  begin_step(env);
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
  local_.save_into(state);
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
  const bool begun = held_ > 0 || phase_ == Phase::reducing;
  if (auto loaded = local_.load_from(state, model_.x.numel(), begun); !loaded) return loaded;
  if (auto loaded = reduction_->load(state.under("reduction"), model_.step,
                                     parts_->horizon.epoch_of(model_.step));
      !loaded)
    return loaded;
  if (reduction_->running() != (phase_ == Phase::reducing))
    return bad_input(
        "entries 'phase' and 'reduction' of the saved state do not fit each other: the checkpoint "
        "is damaged, resume from another one");
  return {};
}

}  // namespace grapevine
