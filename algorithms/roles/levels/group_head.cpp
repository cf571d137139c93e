#include "algorithms/roles/levels/group_head.hpp"

#include <ATen/ATen.h>

#include <limits>
#include <utility>

#include "algorithms/kernels/kernels.hpp"

namespace grapevine {

GroupHead::GroupHead(Group& group, const SharedParts& parts, Rank rank, std::int32_t workers,
                     const ModelState& model)
    : group_(group),
      periods_(parts.exchanges),
      levels_(data_as<LevelParts>(parts.prepared)),
      model_(model),
      outside_(*this, levels_.heads(), workers, rank, levels_.outside, model_),
      z_(model.x) {}

// After a resume the period is under way already.
void GroupHead::compute(Env& env, Step step, FrozenTensor z) {
  if (group_.runs()) return;
  z_ = z;
  period_ = step;
  group_.begin(env, step, z);
}

void GroupHead::record(Env& env, const Event& event) {
  const bool of_gradient = event.kind == EventKind::committed || event.kind == EventKind::dropped ||
                           event.kind == EventKind::step_done;
  if (of_gradient) return keep_account(event);
  Event in_gradients = event;
  in_gradients.step = group_.step();
  if (event.stamp.step >= 0) in_gradients.stamp.step = periods_.end_of(event.stamp.step) - 1;
  if (event.staleness > 0) in_gradients.staleness *= periods_.longest();
  env.record(in_gradients);
}

void GroupHead::keep_account(const Event& event) {
  if (event.kind == EventKind::step_done) return;
  auto difference = differences_.extract(event.stamp.step);
  if (difference.empty() || event.kind == EventKind::committed) return;
  const at::Tensor& given_up = difference.mapped().read();
  given_up_ = given_up_.defined() ? given_up_ + given_up : given_up.clone();
}

void GroupHead::on_mean(Env& env, std::int64_t period, const FrozenTensor& mean) {
  at::Tensor difference = pool_.take(mean);
  kernels::subtract_into(difference, z_.read(), mean.read());
  Gradient gradient;
  gradient.step = period;
  gradient.value = FrozenTensor::freeze(std::move(difference));
  differences_[period] = gradient.value;
  pool_.give(gradient.value);  // for a later one, once the role has committed this
  outside_.on_gradient(env, std::move(gradient));
}

void GroupHead::restart(const FrozenTensor& z) {
  z_ = z;
  outside_.role().restart(z);
}

void GroupHead::fields(Archive& a, std::int64_t d) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 4;
  a.nested("group", [&](Archive& inner) {
    inner.needs("x");
    inner.vector("x", model_.x, d);
    inner.number("w", model_.w);
    inner.require(model_.w > 0, "w", "is not positive");
    inner.whole("step", model_.step, 0, kMost);
    inner.number("epoch", model_.epoch);
    inner.require(model_.epoch >= 0, "epoch", "is negative");
  });
  a.vector("z", z_, d);
  a.require(z_.defined(), "z", "is missing");
  if (!a.loads() || a.has("period"))
    a.count("period", period_);
  else
    period_ = model_.step;  // of an earlier program
  a.part("outside", outside_.role());
  std::vector<std::pair<std::int64_t, FrozenTensor>> kept(differences_.begin(), differences_.end());
  if (a.has("differences.count", !kept.empty()))
    a.items("differences", kept, [d](Archive& inner, auto& difference) {
      inner.count("period", difference.first);
      inner.needs("x");
      inner.vector("x", difference.second, d);
    });
  if (a.loads()) differences_ = {kept.begin(), kept.end()};
}

// ---- a change of members, and of the wiring ----

void GroupHead::resolve_open(Env& env, std::int64_t operations, double share) {
  share_ = share;
  behind_ = levels_.outside->plan.role->replicates && operations_ < operations;
  behind_ ? outside_.count_as_done(env) : outside_.take_back(env, operations);
}

// A head that is behind gives only what its role had still to give: the others have its model.
GroupHead::Given GroupHead::flush(Env& env) {
  const FrozenTensor before = FrozenTensor::copy_of(model_.x.read());
  const double w = model_.w;
  outside_.flush(env);
  Given given{model_.x.read() - before.read(), model_.w - w};
  if (!behind_) {
    given.x.add_(before.read());
    // It also gives for the groups that are behind, from the model that the heads agree on.
    const bool is_newer = !levels_.heads_agree() || operations_ > period_;
    given.x.add_(is_newer ? before.read() : z_.read(), share_ - 1);
    given.weight += share_ * w;
  }
  if (given_up_.defined()) given.x.sub_(given_up_);
  return given;
}

void GroupHead::take_over(const ModelState& model, std::int64_t period) {
  model_ = model;
  model_.step = period_ = period;
  z_ = model_.x;
  outside_.role().take_over(at::empty({0}));
}

}  // namespace grapevine
