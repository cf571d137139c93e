#include "algorithms/roles/group/group.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <limits>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "messages/check.hpp"

namespace grapevine {
Group::Group(RoleContext context)
    : TrainingRole(std::move(context)),
      settings_(data_as<GroupSettings>(plan().settings)),
      groups_(data_as<Groups>(parts_->prepared).schedule),
      everybody_(all_ranks(ranks_)) {
  // A rank that is behind has a model in each average that others have begun.
  pool_.add_capacity(static_cast<std::size_t>(settings_.staleness.most()));
}

// ---- training ----

void Group::on_start(Env& env) {
  for (const auto& average : averages_) give_grace(env, average.second.reduce);
  if (phase_ == Phase::waiting) return;  // the messages on their way continue it
  begin_step(env);
}

void Group::begin_step(Env& env) { at_end() ? finish(env) : compute(env); }

// x' = x - gamma u(g); after the last of H such steps the average.
void Group::on_gradient(Env& env, Gradient gradient) {
  local_step(env, take(std::move(gradient)), epoch_now());
  if (!local_.exchange_due(model_.step + 1)) return step_done(env, false);
  // An average that the members skip: the steps enter the next one.
  if (exchange_now() < first_) return step_done(env, false);
  const std::int64_t exchange = exchange_now();
  PartialAllReduce& reduce = average_of(exchange).reduce;
  wait(env);
  if (!reduce.contributed()) send(env, reduce.post());
  give_grace(env, reduce);
  contribute_if_begun(env, exchange);
  apply_if_done(env);
}

// A quorum that is complete gives the others their grace.
void Group::give_grace(Env& env, const PartialAllReduce& reduce) const {
  if (reduce.in_grace()) env.after(from_seconds(settings_.activation.grace), reduce.operation());
}

void Group::on_timer(Env& env, TimerId exchange) {
  const auto found = averages_.find(exchange);
  if (found == averages_.end()) return;
  send(env, found->second.reduce.end_grace());
  contribute_if_begun(env, exchange);
  apply_if_done(env);
}

// Where tau changes, exchanges are still counted from the first: all ranks agree on the next.
bool Group::is_global(std::int64_t exchange) const {
  const double epoch = parts_->horizon.epoch_of(exchanges().begin_of(exchange));
  return (exchange + 1) % settings_.staleness.at(epoch) == 0;
}

// Contributes the fresh model where this rank has reached the exchange, else its present one. A
// global average waits for fresh ones.
void Group::contribute_if_begun(Env& env, std::int64_t exchange) {
  Average& average = average_of(exchange);
  const bool fresh = phase_ == Phase::waiting && exchange == exchange_now();
  if (!average.reduce.begun() || average.reduce.contributed() || (is_global(exchange) && !fresh))
    return;
  average.fresh = fresh;
  // The number of own gradients that the model lacks.
  const std::int64_t age =
      exchanges().end_of(exchange) - 1 - model_.step + (phase_ == Phase::waiting ? 0 : 1);
  // The newest gradient in the model: the one of this step is not there while it is computed.
  const bool lacks_own = phase_ != Phase::waiting, has_none = lacks_own && model_.step == 0;
  const Step last = lacks_own && !has_none ? model_.step - 1 : model_.step;
  const Stamp newest = stamp_of(rank_, last, last);
  const std::int64_t age_there = has_none ? -1 : fresh ? 0 : age;
  env.record({EventKind::contributed, -1, newest, model_.step, age_there, 0, exchange});
  if (!fresh) env.record({EventKind::applied, -1, newest, model_.step, age, 0, exchange});
  at::Tensor copy = pool_.copy_of(model_.x.read(), model_.x);
  send(env, average.reduce.contribute(std::move(copy), fresh, model_.epoch, env.rng()));
}

void Group::apply_if_done(Env& env) {
  if (phase_ != Phase::waiting) return;
  const auto found = averages_.find(exchange_now());
  if (found == averages_.end() || !found->second.reduce.done()) return;
  mix(found->second);
  env.record(
      {EventKind::reduced, -1, stamp(), model_.step, 0, 0, exchange_now(), found->second.members});
  const bool fresh = found->second.fresh;
  averages_.erase(found);
  stop_waiting(env);
  step_done(env, fresh);
}

// The gradient of this step is in the model, and, where `averaged`, in a common one.
void Group::step_done(Env& env, bool averaged) {
  count_done(env, averaged);
  begin_step(env);
}

void Group::count_done(Env& env, bool averaged) {
  const Stamp done = stamp();
  env.record({EventKind::committed, rank_, done, done.step, 0, 0});
  if (averaged) env.record({EventKind::applied, -1, done, done.step, 0, model_.x.nbytes()});
  count_step();
  env.record({EventKind::step_done, -1, done, done.step, 0, 0});
}

// x <- s / S, or (s + x') / (S + 1).
void Group::mix(Average& average) {
  at::Tensor sum = average.reduce.take_result().sum;
  if (!average.fresh) kernels::fold(sum, model_.x.read());
  const auto models = static_cast<std::int32_t>(average.members.size()) + (average.fresh ? 0 : 1);
  if (models > 1) sum.div_(models);  // not times 1/S, whose rounding would scale every mean
  pool_.give(std::move(model_.x));
  model_.x = FrozenTensor::freeze(std::move(sum));
  local_.step_to_mixed(model_, epoch_now(), pool_);
}

Group::Average& Group::average_of(std::int64_t exchange) {
  const auto found = averages_.find(exchange);
  if (found != averages_.end()) return found->second;
  const bool global = is_global(exchange);
  const std::vector<Rank> members = global ? everybody_ : groups_.members(exchange, rank_);
  const auto position =
      static_cast<std::int32_t>(std::find(members.begin(), members.end(), rank_) - members.begin());
  const auto size = static_cast<std::int32_t>(members.size());
  // A global average waits for all, so that nothing else need begin it.
  const Trigger trigger =
      global ? Trigger{}
             : make_trigger(settings_.activation, plan().seed, exchange,
                            parts_->horizon.epoch_of(exchanges().begin_of(exchange)),
                            all_ranks(size), size);
  // One rank alone sends nothing that could be compressed.
  ReductionSettings settings = size > 1 ? reduction_settings(*parts_) : ReductionSettings();
  settings.memory = sums_;
  auto reduction = std::shared_ptr<Reduction>(
      make_reduction(settings, members, position, model_.x.numel(), model_.x.device()));
  PartialAllReduce reduce(members, position, exchange, trigger, std::move(reduction));
  return averages_.emplace(exchange, Average{std::move(reduce), members, false}).first->second;
}

// A rank that waits has its own part in the exchange; before that it posts.
std::vector<Awaited> Group::awaited() const {
  const auto found = averages_.find(exchange_now());
  return found == averages_.end() ? std::vector<Awaited>() : found->second.reduce.awaited();
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
  give_grace(env, reduce);
  contribute_if_begun(env, exchange);
  apply_if_done(env);
}

// ---- a change of members ----

std::int64_t Group::close(Env& env) {
  if (phase_ == Phase::waiting) {
    stop_waiting(env);
    count_done(env, false);
  }
  return model_.step;
}

void Group::take_back(Env&, std::int64_t operations) { first_step_ = operations; }

// Steps count alike among all members; exchanges have other numbers where H changes with the epoch.
void Group::own_fields(Archive& a) {
  a.count("first_step", first_step_);
  if (a.loads() && a.ok()) first_ = exchanges().index_of(first_step_);
}

void Group::fields(Archive& a) {
  common_fields(a);
  a.count("first", first_);
  std::vector<std::int64_t> exchanges;
  for (const auto& average : averages_) exchanges.push_back(average.first);
  a.list("exchanges", exchanges, 0, std::numeric_limits<std::int64_t>::max() / 4);
  if (a.loads()) averages_.clear();
  for (const std::int64_t exchange : exchanges)
    a.nested("average." + std::to_string(exchange), [&](Archive& inner) {
      Average& average = average_of(exchange);
      inner.flag("fresh", average.fresh);
      inner.part("reduce", average.reduce, model_.epoch);
    });
}

}  // namespace grapevine
