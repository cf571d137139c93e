#include "algorithms/roles/training_role.hpp"

#include <utility>

#include "messages/check.hpp"

namespace grapevine {

TrainingRole::TrainingRole(RoleContext context, bool sums)
    : parts_(std::move(context.parts)),
      rank_(context.rank),
      ranks_(context.ranks),
      model_(context.model),
      local_(parts_->plan.local, parts_->exchanges, parts_->horizon, parts_->lr, sums ? ranks_ : 1,
             std::move(context.optimizer), parts_->optimizer.momentum, parts_->optimizer.nesterov) {
  // Beside the anchor and the model: these two before an exchange, and the difference.
  if (plan().local.pack == Pack::difference) pool_.add_capacity(3);
}

void TrainingRole::restart(FrozenTensor z) {
  model_.x = std::move(z);
  model_.w = 1;
  local_.restart(model_);
}

void TrainingRole::take_over(const at::Tensor& optimizer) {
  local_.set_optimizer_state(optimizer, model_.x.numel());
  local_.restart(model_);
}

void TrainingRole::compute(Env& env, FrozenTensor z) {
  phase_ = Phase::computing;
  env.compute(model_.step, std::move(z));
}

void TrainingRole::compute_in_parts(Env& env, const PartBegins& parts) {
  if (!parts) return compute(env);
  phase_ = Phase::computing;
  env.compute_in_parts(model_.step, model_.x, parts);
}

at::Tensor TrainingRole::take(Gradient gradient) {
  GRAPEVINE_CHECK(phase_ == Phase::computing, "a gradient arrived without a request");
  phase_ = Phase::ready;
  return std::move(gradient.value).thaw();
}

void TrainingRole::local_step(Env& env, at::Tensor g, double epoch) {
  StepRound alone;
  local_step(env, std::move(g), epoch, alone);
}

void TrainingRole::local_step(Env& env, at::Tensor g, double epoch, StepRound& round) {
  g = local_.step(model_, std::move(g), epoch, pool_, round);
  env.recycle(FrozenTensor::freeze(std::move(g)));
}

void TrainingRole::count_step() {
  ++model_.step;
  if (plan().role->counts_own_steps) model_.epoch = epoch_now();
}

Rank TrainingRole::awaited_rank() const {
  const std::vector<Awaited> missing = awaited();
  return missing.empty() ? -1 : missing.front().from;
}

void TrainingRole::wait(Env& env) {
  phase_ = Phase::waiting;
  env.record({EventKind::wait_begin, awaited_rank(), stamp(), model_.step, 0, 0});
}

void TrainingRole::stop_waiting(Env& env) {
  env.record({EventKind::wait_end, -1, stamp(), model_.step, 0, 0});
  phase_ = Phase::ready;
}

void TrainingRole::finish(Env& env) {
  phase_ = Phase::finished;
  env.finished();
}

void TrainingRole::common_fields(Archive& a) {
  a.one_of("phase", phase_, Phase::finished);
  local_.fields(a, model_.x.numel(), model_.step > 0 || phase_ == Phase::waiting);
}

void TrainingRole::begins_at_anchor_field(Archive& a) {
  a.flag("begins_at_anchor", begins_at_anchor_);
  const bool at_anchor = a.loads() && a.ok() && std::exchange(begins_at_anchor_, false);
  if (at_anchor && local_.anchor().defined()) local_.return_to_anchor(model_, pool_);
}

// What the local steps have learned; those of a rank that joins begin with another's.
void TrainingRole::shared_fields(Archive& a) { local_.fields(a, model_.x.numel(), false); }

}  // namespace grapevine
