#include "algorithms/roles/levels/group_head.hpp"

#include <ATen/ATen.h>

#include <limits>
#include <utility>

#include "algorithms/kernels/kernels.hpp"
#include "algorithms/roles/make_role.hpp"

namespace grapevine {

// The steps of this world are periods, and those are no gradients: the role inside the group
// records what becomes of these.
class GroupHead::OutsideEnv final : public NestedEnv {
 public:
  OutsideEnv(GroupHead& head, Env& env) : NestedEnv(env, head.world_, head.number_), head_(head) {}

  // After a resume the period is under way already.
  void compute(Step step, FrozenTensor z) override {
    if (head_.group_.runs()) return;
    head_.z_ = z;
    head_.group_.begin(env_, step, z);
  }
  void after(Duration delay, TimerId id) override { env_.after(delay, 2 * id); }
  void finished() override { head_.group_.end(env_); }
  void record(const Event& event) override {
    const bool of_gradient = event.kind == EventKind::committed ||
                             event.kind == EventKind::dropped || event.kind == EventKind::step_done;
    if (of_gradient) return;
    const ExchangeSteps& periods = head_.periods_;
    Event in_gradients = of_run(event);
    in_gradients.step = head_.group_.step();
    if (event.stamp.step >= 0) in_gradients.stamp.step = periods.end_of(event.stamp.step) - 1;
    if (event.staleness > 0) in_gradients.staleness *= periods.longest();
    env_.record(in_gradients);
  }

 private:
  GroupHead& head_;
};

GroupHead::GroupHead(Group& group, const SharedParts& parts, Rank rank, std::int32_t ranks,
                     const ModelState& model)
    : group_(group),
      periods_(parts.exchanges),
      number_(rank / parts.plan.hierarchy),
      world_(heads_and_servers(ranks, parts.plan)),
      model_(model),
      role_(make_flat_role(data_as<LevelParts>(parts.prepared).outside, number_,
                           static_cast<std::int32_t>(world_.size()), model_)),
      z_(model.x) {}

void GroupHead::on_start(Env& env) {
  OutsideEnv outside(*this, env);
  role_->on_start(outside);
}

void GroupHead::on_mean(Env& env, std::int64_t period, const FrozenTensor& mean) {
  at::Tensor difference = at::empty_like(mean.read());
  kernels::subtract_into(difference, z_.read(), mean.read());
  Gradient gradient;
  gradient.step = period;
  gradient.value = FrozenTensor::freeze(std::move(difference));
  OutsideEnv outside(*this, env);
  role_->on_gradient(outside, std::move(gradient));
}

void GroupHead::on_message(Env& env, Envelope envelope) {
  OutsideEnv outside(*this, env);
  role_->on_message(outside, outside.of_world(std::move(envelope)));
}

void GroupHead::on_timer(Env& env, TimerId id) {
  OutsideEnv outside(*this, env);
  role_->on_timer(outside, id);
}

void GroupHead::restart(const FrozenTensor& z) {
  z_ = z;
  role_->restart(z);
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
  a.part("outside", *role_);
}

}  // namespace grapevine
