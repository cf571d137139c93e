#include "algorithms/roles/levels/level.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "algorithms/parts/stored_envelope.hpp"
#include "algorithms/roles/make_role.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

std::vector<Rank> members_of(const LevelGroup& group) {
  std::vector<Rank> members(static_cast<std::size_t>(group.size));
  std::iota(members.begin(), members.end(), group.head);
  return members;
}

constexpr std::size_t kOwnCounts = 2;

std::int64_t mark_of(const std::vector<std::int64_t>& counts) {
  return counts[counts.size() - kOwnCounts];
}

std::int64_t newest_mark(const ClosedCounts& group) {
  std::int64_t newest = -1;
  for (const auto& [rank, counts] : group) newest = std::max(newest, mark_of(counts));
  return newest;
}

// The complete operations of heads that agree, by a rank's mark: see Level::period_mark().
std::int64_t operations_behind(std::int64_t mark) { return mark < 0 ? -1 : (mark + 1) / 2; }

}  // namespace

Level::Level(RoleContext context)
    : parts_(std::move(context.parts)),
      levels_(data_as<LevelParts>(parts_->prepared)),
      rank_(context.rank),
      own_group_(levels_.group_of(rank_)),
      tag_{data_as<LevelSettings>(parts_->plan.settings).depth},
      ranks_agree_(own_group_.inside->plan.role->ranks_agree(own_group_.inside->plan)),
      world_size_(context.ranks + parts_->plan.servers),
      model_(context.model),
      group_(members_of(own_group_), own_group_.head, rank_, model_.x.numel()),
      inside_(*this, group_.members(), group_.position(),
              make_role(own_group_.inside, group_.position(), own_group_.size, model_)) {
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
  z_ = z;
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

// The period is over when the role inside asks for a gradient of the next one, or ends.
void Level::compute(Env& env, Step step, FrozenTensor z) {
  if (step < parts_->exchanges.end_of(period_)) return env.compute(step, std::move(z));
  period_over_ = true;
}

// Called after the role inside, not by it: what follows may call it again.
void Level::end_period_if_due(Env& env) {
  if (!std::exchange(period_over_, false)) return;
  if (ranks_agree_) return on_mean(env, inside_.role().debiased());
  phase_ = Phase::reducing;
  const FrozenTensor x = inside_.role().numerator();
  group_.start(env, stamp(), tag_.operation(period_), pool_.copy_of(x.read(), x));
  take_mean(env);
}

void Level::take_mean(Env& env) {
  if (!group_.done()) return;
  const FrozenTensor mean = FrozenTensor::freeze(group_.take());
  pool_.give(mean);  // for the next one, once this is used
  on_mean(env, mean);
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
    group_.on_chunk(env, stamp(), envelope.from, std::move(*chunk));
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
  if (phase_ == Phase::reducing) return group_.awaited();
  if (phase_ == Phase::finished) return {};
  return head_ ? head_->waits() : std::vector<Awaited>{group_.awaited_from_head()};
}

// ---- inside another level ----

void Level::restart(FrozenTensor z) {
  if (head_) head_->restart(z);
  z_ = z;  // its next period has begun
  inside_.role().restart(std::move(z));
}

// The head gives the part of its group, whose model may have a weight. Groups count alike, as they
// do for the role among them, however many ranks they have lost: the sum of their weights is their
// number.
FrozenTensor Level::numerator() const {
  if (!head_) return FrozenTensor::freeze(at::zeros_like(model_.x.read()));
  return FrozenTensor::freeze(head_->numerator().read() * levels_.mean_size());
}

// ---- a change of members, and of the wiring ----

std::int64_t Level::close(Env& env) {
  if (!head_ && phase_ == Phase::waiting) group_.stop_waiting(env, stamp(), model_.step);
  group_.close(env, stamp());
  begin_with_early_shares(env);
  operations_ = inside_.close(env);
  if (head_) head_->close(env);
  return model_.step;
}

// The mean of a period may be complete at the head alone: others of the group have begun the next
// one then. With push-sum they have given this rank a part of their steps, which nobody else has:
// this rank has begun, too, with that part and without a step of its own. Roles with other weights
// take back what no peer has folded.
void Level::begin_with_early_shares(Env& env) {
  const Plan& inside = own_group_.inside->plan;
  const auto& next = group_.kept();
  if (early_messages_.empty() || !next || next->last || !inside.role->keeps_mass(inside)) return;
  period_ = next->step / kLevelTags;
  phase_ = Phase::running;
  z_ = next->x;
  static_cast<void>(group_.take_kept());
  inside_.role().restart(z_);
  for (Envelope& envelope : std::exchange(early_messages_, {}))
    inside_.on_message(env, std::move(envelope));
}

// Of the role inside; then kOwnCounts: this rank's mark, and the operations of the role outside.
std::vector<std::int64_t> Level::counts() const {
  std::vector<std::int64_t> counts = inside_.role().counts();
  if (counts.empty()) counts.push_back(operations_);
  counts.push_back(period_mark());
  counts.push_back(head_ ? head_->operations() : 0);
  return counts;
}

// 2p: has a part of period p; 2p + 1: of a head that has had all parts of it, or of a rank that has
// the model after the last one; -1: before the first one.
std::int64_t Level::period_mark() const {
  if (!z_.defined()) return -1;
  const auto& kept = group_.kept();
  if (phase_ == Phase::finished || (kept && kept->last)) return 2 * period_ + 1;
  if (kept) return 2 * (kept->step / kLevelTags);
  return head_ && !runs() ? 2 * period_ + 1 : 2 * period_;
}

void Level::resolve_open(Env& env, const ClosedCounts& counts) {
  std::map<Rank, ClosedCounts> groups;  // of which ranks remain, by head
  for (const auto& [rank, of_rank] : counts) groups[levels_.group_of(rank).head][rank] = of_rank;
  const ClosedCounts& group = groups[group_.head()];
  resolve_inside(env, group);
  const Agreed agreed = agreed_outside(groups);
  resolve_period(group, agreed);
  if (head_) head_->resolve_open(env, agreed.operations, agreed.share);
}

// If heads agree, a group without a head counts, too: the z of its newest period is the result of
// the operation before it.
Level::Agreed Level::agreed_outside(const std::map<Rank, ClosedCounts>& groups) const {
  std::vector<std::int64_t> operations;
  for (const auto& [head, group] : groups) {
    const auto of_head = group.find(head);
    if (of_head != group.end())
      operations.push_back(of_head->second.back());
    else if (levels_.heads_agree())
      operations.push_back(operations_behind(newest_mark(group)));
  }
  Agreed agreed;
  if (operations.empty()) return agreed;
  agreed.operations = *std::max_element(operations.begin(), operations.end());
  const auto with_result = std::count(operations.begin(), operations.end(), agreed.operations);
  if (levels_.outside->plan.role->replicates)
    agreed.share = static_cast<double>(operations.size()) / static_cast<double>(with_result);
  return agreed;
}

void Level::resolve_inside(Env& env, const ClosedCounts& group) {
  if (own_group_.inside->plan.role->changes_by_mean) {
    ClosedCounts inside = group;
    for (auto& [rank, counts] : inside) counts.resize(counts.size() - kOwnCounts);
    return inside_.resolve_open(env, inside);
  }
  for (const auto& [rank, counts] : group)
    most_operations_ = std::max(most_operations_, counts.front());
  if (is_behind({operations_})) return inside_.count_as_done(env);
  inside_.take_back(env, most_operations_);
}

// Another rank of the group has the result of an operation that this one lacks.
bool Level::is_behind(const std::vector<std::int64_t>& counts) const {
  return own_group_.inside->plan.role->replicates && counts.front() < most_operations_;
}

void Level::resolve_period(const ClosedCounts& group, const Agreed& agreed) {
  const auto head = group.find(group_.head());
  const bool head_is_lost = head == group.end();
  const std::int64_t newest = head_is_lost ? newest_mark(group) : mark_of(head->second);
  gives_model_ = head_is_lost;
  bool counts_already = !head_is_lost && (newest < 0 || newest % 2 != 0);
  if (head_is_lost && levels_.heads_agree()) {
    share_ = agreed.share;
    counts_already = operations_behind(newest) < agreed.operations;
  }
  has_part_ = period_mark() == newest && !counts_already;
  givers_ = exact_ = 0;
  for (const auto& [rank, counts] : group) {
    if (mark_of(counts) != newest) continue;  // it has changed nothing in the period
    ++givers_;
    if (!is_behind(counts)) ++exact_;
  }
  remaining_ = static_cast<double>(group.size());
  if (!own_group_.inside->plan.role->replicates) exact_ = remaining_;
}

// All that the role inside keeps enters its model. Of that, what this rank alone has to give; amid
// a period also its share of the model.
GroupHead::Given Level::share_inside(Env& env, bool amid_period) {
  if (own_group_.inside->plan.role->changes_by_mean) {
    inside_.flush(env);
    const auto groups =
        static_cast<double>(data_as<LevelParts>(own_group_.inside->prepared).groups.size());
    const at::Tensor& x = model_.x.read();
    if (!amid_period) return {at::zeros_like(x), 0};
    return {x / groups, inside_.role().mean_weight() * model_.w / groups};
  }
  const at::Tensor before = model_.x.read().clone();
  const double w = model_.w;
  inside_.flush(env);
  GroupHead::Given share{(model_.x.read() - before) / remaining_, (model_.w - w) / remaining_};
  if (!amid_period || is_behind({operations_})) return share;
  share.x.add_(before, 1 / exact_);
  share.weight += w / exact_;
  return share;
}

// What the period has changed; where the head is lost, beside a share of the z of the period.
GroupHead::Given Level::part_of_period(Env& env) {
  FrozenTensor z = z_;  // undefined before the first period
  const bool has_next = group_.kept().has_value();
  if (phase_ == Phase::finished || !z.defined()) z = model_.x;
  if (has_next) z = group_.kept()->x;
  const bool amid = has_part_ && z_.defined() && phase_ != Phase::finished && !has_next;
  GroupHead::Given part = share_inside(env, amid);
  part.x.sub_(z.read(), part.weight);
  part.weight = has_part_ && gives_model_ ? share_ / givers_ : 0;
  part.x.add_(z.read(), part.weight);
  return part;
}

void Level::flush(Env& env) {
  GroupHead::Given given = part_of_period(env);
  if (head_) {
    const GroupHead::Given of_group = head_->flush(env);
    given.x.add_(of_group.x);
    given.weight = of_group.weight;
  }
  model_.x = FrozenTensor::freeze(std::move(given.x));
  model_.w = 1;
  mean_weight_ = given.weight;
}

void Level::take_over(const at::Tensor& optimizer) {
  inside_.role().take_over(optimizer);
  if (head_) head_->take_over(model_, parts_->exchanges.index_of(model_.step));
}

// ---- checkpoints ----

void Level::fields(Archive& a) {
  const std::int64_t d = model_.x.numel();
  a.one_of("phase", phase_, Phase::finished);
  a.whole("period", period_, 0, parts_->exchanges.count());
  a.part("inside", inside_.role());
  if (head_) head_->fields(a, d);
  group_.fields(a, tag_.operation(period_));
  if (a.has("began_at", z_.defined())) a.vector("began_at", z_, d);
  a.require(group_.running() == (phase_ == Phase::reducing), "phase", "does not fit the sum");
  a.require(!group_.kept() || tag_.is_on(*group_.kept()), "next", "is of another level");
  a.items("early_messages", early_messages_, [&](Archive& inner, Envelope& envelope) {
    envelope_fields(inner, envelope, world_size_);
    const bool is_of_group = group_.has(envelope.from) && group_.has(envelope.stamp.origin) &&
                             !tag_.is_on(envelope.payload);
    inner.require(is_of_group, "bytes", "is not for the role inside");
  });
}

}  // namespace grapevine
