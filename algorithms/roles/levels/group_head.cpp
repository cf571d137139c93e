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
      model_(model),
      outside_(*this, parts.plan, rank, workers, data_as<LevelParts>(parts.prepared).outside,
               model_),
      z_(model.x) {}

// After a resume the period is under way already.
void GroupHead::compute(Env& env, Step step, FrozenTensor z) {
  if (group_.runs()) return;
  z_ = z;
  group_.begin(env, step, z);
}

void GroupHead::record(Env& env, const Event& event) {
  const bool of_gradient = event.kind == EventKind::committed || event.kind == EventKind::dropped ||
                           event.kind == EventKind::step_done;
  if (of_gradient) return;
  Event in_gradients = event;
  in_gradients.step = group_.step();
  if (event.stamp.step >= 0) in_gradients.stamp.step = periods_.end_of(event.stamp.step) - 1;
  if (event.staleness > 0) in_gradients.staleness *= periods_.longest();
  env.record(in_gradients);
}

void GroupHead::on_mean(Env& env, std::int64_t period, const FrozenTensor& mean) {
  at::Tensor difference = at::empty_like(mean.read());
  kernels::subtract_into(difference, z_.read(), mean.read());
  Gradient gradient;
  gradient.step = period;
  gradient.value = FrozenTensor::freeze(std::move(difference));
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
  a.part("outside", outside_.role());
}

}  // namespace grapevine
