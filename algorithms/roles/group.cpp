#include "algorithms/roles/group.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/roles/messages_of.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

void read_group(KeyReader& keys, Plan& plan) {
  auto group = std::make_shared<GroupSettings>();
  plan.local.pack = read_pack(keys, {Pack::model}, "exchange = 'group': group mixes models");
  group->staleness = keys.whole("staleness", group->staleness, 1,
                                "tau: exchanges from one global average to the next");
  group->group_size = static_cast<std::int32_t>(keys.whole(
      "group_size", 0, 1, "ranks that average, at most; about the root of all by default",
      std::numeric_limits<Rank>::max()));
  plan.local.local_steps = read_local_steps(keys);
  plan.local.clip = read_clip(keys, false);
  plan.settings = std::move(group);
}

Expected<void> prepare_group(SharedParts& parts, std::int32_t ranks) {
  auto groups = GroupSchedule::make(ranks, data_as<GroupSettings>(parts.plan.settings).group_size,
                                    parts.plan.seed);
  if (!groups) return groups.error();
  parts.prepared = std::make_shared<Groups>(std::move(*groups));
  return {};
}

}  // namespace

const RoleType& group_role() {
  static const RoleType type = [] {
    RoleType role;
    role.name = "group";
    role.summary = "ranks average their models in small groups that change at each step";
    role.read = &read_group;
    role.prepare = &prepare_group;
    role.make = [](RoleContext c) -> std::unique_ptr<Role> {
      return std::make_unique<Group>(c.parts, c.rank, c.ranks, c.model, std::move(c.optimizer));
    };
    role.announces_end = [](const Plan&) { return true; };
    return role;
  }();
  return type;
}

Group::Group(std::shared_ptr<const SharedParts> parts, Rank rank, std::int32_t ranks,
             ModelState& model, std::unique_ptr<Optimizer> optimizer)
    : parts_(std::move(parts)),
      settings_(data_as<GroupSettings>(parts_->plan.settings)),
      groups_(data_as<Groups>(parts_->prepared).schedule),
      rank_(rank),
      ranks_(all_ranks(ranks)),
      model_(model),
      local_(parts_->plan.local, parts_->horizon, parts_->lr, 1, std::move(optimizer)) {}

// ---- training ----

void Group::on_start(Env& env) {
  if (phase_ == Phase::averaging) return;  // the messages on their way continue it
  begin_step(env);
}

void Group::begin_step(Env& env) {
  if (model_.step >= parts_->horizon.steps) {
    phase_ = Phase::finished;
    return env.finished();
  }
  phase_ = Phase::computing;
  env.compute(model_.step, model_.x);
}

// x' = x - gamma u(g); after the last of H such steps the average.
void Group::on_gradient(Env& env, Gradient gradient) {
  GRAPEVINE_CHECK(phase_ == Phase::computing, "a gradient arrived without a request");
  at::Tensor g = std::move(gradient.value).thaw();
  g = local_.step(model_, std::move(g), parts_->horizon.epoch_of(model_.step), pool_);
  env.recycle(FrozenTensor::freeze(std::move(g)));
  if (!local_.exchange_due(model_.step + 1)) return step_done(env, false);
  phase_ = Phase::averaging;
  const std::int64_t exchange = exchange_now();
  Average& average = average_of(exchange);
  if (!average.reduce.contributed()) send(env, average.reduce.post());
  contribute_if_begun(env, exchange);
  env.record({EventKind::wait_begin, -1, stamp(), model_.step, 0, 0});
  apply_if_done(env);
}

// Contributes the fresh model where this rank has reached the exchange, else its present one. A
// global average waits for fresh ones.
void Group::contribute_if_begun(Env& env, std::int64_t exchange) {
  Average& average = average_of(exchange);
  const bool fresh = phase_ == Phase::averaging && exchange == exchange_now();
  if (!average.reduce.begun() || average.reduce.contributed() || (is_global(exchange) && !fresh))
    return;
  average.fresh = fresh;
  // The number of own gradients that the model lacks.
  const std::int64_t age =
      last_step_of(exchange) - model_.step + (phase_ == Phase::averaging ? 0 : 1);
  env.record({EventKind::contributed, -1, stamp(), model_.step, fresh ? 0 : age, 0});
  if (!fresh) env.record({EventKind::applied, -1, stamp(), model_.step, age, 0});
  at::Tensor copy = pool_.take(model_.x.numel());
  copy.copy_(model_.x.read());
  send(env, average.reduce.contribute(std::move(copy), fresh, model_.epoch, env.rng()));
}

void Group::apply_if_done(Env& env) {
  if (phase_ != Phase::averaging) return;
  const auto found = averages_.find(exchange_now());
  if (found == averages_.end() || !found->second.reduce.done()) return;
  mix(found->second);
  const bool fresh = found->second.fresh;
  averages_.erase(found);
  env.record({EventKind::wait_end, -1, stamp(), model_.step, 0, 0});
  step_done(env, fresh);
}

// The gradient of this step is in the model, and, where `averaged`, in a common one.
void Group::step_done(Env& env, bool averaged) {
  const Stamp done = stamp();
  env.record({EventKind::committed, rank_, done, done.step, 0, 0});
  if (averaged) env.record({EventKind::applied, -1, done, done.step, 0, model_.x.nbytes()});
  ++model_.step;
  model_.epoch = parts_->horizon.epoch_of(model_.step);
  env.record({EventKind::step_done, -1, done, done.step, 0, 0});
  begin_step(env);
}

// Of the step that this rank is at; at the end the number of all exchanges.
std::int64_t Group::exchange_now() const {
  const std::int64_t local_steps = parts_->plan.local.local_steps;
  const bool over = model_.step >= parts_->horizon.steps;
  return (over ? parts_->horizon.steps + local_steps - 1 : model_.step) / local_steps;
}

Step Group::last_step_of(std::int64_t exchange) const {
  return std::min((exchange + 1) * parts_->plan.local.local_steps, parts_->horizon.steps) - 1;
}

// x <- s / S, or (s + x') / (S + 1).
void Group::mix(Average& average) {
  at::Tensor sum = average.reduce.take_result().sum;
  if (!average.fresh) kernels::fold(sum, model_.x.read());
  const std::int32_t models = average.size + (average.fresh ? 0 : 1);
  if (models > 1) sum.div_(models);  // not times 1/S, whose rounding would scale every mean
  pool_.give(std::move(model_.x));
  model_.x = FrozenTensor::freeze(std::move(sum));
}

Group::Average& Group::average_of(std::int64_t exchange) {
  const auto found = averages_.find(exchange);
  if (found != averages_.end()) return found->second;
  const std::vector<Rank> members = is_global(exchange) ? ranks_ : groups_.members(exchange, rank_);
  const auto position =
      static_cast<std::int32_t>(std::find(members.begin(), members.end(), rank_) - members.begin());
  const auto size = static_cast<std::int32_t>(members.size());
  return averages_
      .emplace(exchange,
               Average{PartialAllReduce(members, position, exchange, Trigger{}), size, false})
      .first->second;
}

// ---- messages ----

void Group::on_message(Env& env, Envelope envelope) {
  const std::int64_t exchange = PartialAllReduce::operation_of(envelope.payload);
  const auto* activate = std::get_if<Activate>(&envelope.payload);
  if (exchange < exchange_now()) {  // an activation that arrived over a longer path
    GRAPEVINE_CHECK(activate != nullptr, "a chunk of exchange ", exchange,
                    " that is over, from rank ", envelope.from);
    return;
  }
  PartialAllReduce& reduce = average_of(exchange).reduce;
  send(env, activate != nullptr ? reduce.on_activate(*activate)
                                : reduce.on_message(envelope.from, std::move(envelope.payload)));
  contribute_if_begun(env, exchange);
  apply_if_done(env);
}

void Group::on_timer(Env&, TimerId) {}

// The others wait for the dead rank's part of a sum: the supervisor ends the run.
void Group::on_peer_down(Env&, Rank) {}
void Group::on_peer_up(Env&, Rank) {}

void Group::send(Env& env, std::vector<OutgoingMessage> messages) {
  send_all(env, stamp(), std::move(messages));
}

// ---- the model ----

FrozenTensor Group::debiased() const { return model_.x; }

Stamp Group::stamp() const { return stamp_of(rank_, model_.step, model_.step); }

// ---- checkpoints ----

StateDict Group::save() const {
  StateDict state;
  state.put("phase", static_cast<std::int64_t>(phase_));
  local_.save_into(state);
  std::int64_t count = 0;
  for (const auto& [exchange, average] : averages_) {
    StateDict saved;
    saved.put("step", exchange);
    saved.put("fresh", std::int64_t{average.fresh});
    saved.put_all("reduce", average.reduce.save());
    state.put_all("average" + std::to_string(count++), saved);
  }
  state.put("averages", count);
  return state;
}

Expected<void> Group::load(const StateDict& state) {
  const auto phase = state.integer_in("phase", 0, static_cast<std::int64_t>(Phase::finished)),
             count = state.integer("averages");
  if (!phase) return phase.error();
  if (!count) return count.error();
  phase_ = static_cast<Phase>(*phase);
  averages_.clear();
  for (std::int64_t i = 0; i < *count; ++i) {
    const StateDict saved = state.under("average" + std::to_string(i));
    const auto step = saved.integer_in("step", 0, std::numeric_limits<std::int64_t>::max() / 4),
               fresh = saved.integer("fresh");
    if (!step) return step.error();
    if (!fresh) return fresh.error();
    Average& average = average_of(*step);
    average.fresh = *fresh != 0;
    if (auto loaded = average.reduce.load(saved.under("reduce")); !loaded) return loaded;
  }
  return local_.load_from(state, model_.x.numel(), false);
}

}  // namespace grapevine
