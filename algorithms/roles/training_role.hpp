// TrainingRole: the part of a role that all ranks with a worker have in common: the phase, the
// local update, and the events of a step.
#pragma once
#include <memory>
#include <vector>

#include "algorithms/collectives/collective.hpp"
#include "algorithms/parts/buffer_pool.hpp"
#include "algorithms/parts/local_update.hpp"
#include "algorithms/role.hpp"
#include "algorithms/roles/messages_of.hpp"
#include "algorithms/wiring/role_type.hpp"

namespace grapevine {

class TrainingRole : public Role {
 public:
  FrozenTensor debiased() const override { return model_.x; }
  FrozenTensor numerator() const override { return model_.x; }
  void restart(FrozenTensor z) override;
  void shared_fields(Archive& a) override;
  at::Tensor optimizer_state() const override { return local_.optimizer_state(model_.x.numel()); }
  void take_over(const at::Tensor& optimizer) override;
  std::vector<Awaited> waits() const override {
    return phase_ == Phase::waiting ? awaited() : std::vector<Awaited>();
  }

 protected:
  // Of this rank between handlers.
  enum class Phase : std::int64_t { ready, computing, waiting, finished };

  // `sums`: the gradients of all ranks are added up. context.model outlives this.
  explicit TrainingRole(RoleContext context, bool sums = false);

  // Asks for the gradient of model_.step at x, or at z.
  void compute(Env& env) { compute(env, model_.x); }
  void compute(Env& env, FrozenTensor z);
  // At x, in parts, where there are any.
  void compute_in_parts(Env& env, const PartBegins& parts);
  // The gradient that was asked for.
  at::Tensor take(Gradient gradient);
  // See LocalUpdate::step.
  void local_step(Env& env, at::Tensor g, double epoch);
  void local_step(Env& env, at::Tensor g, double epoch, StepRound& round);
  // One gradient more of this rank is in its model.
  void count_step();
  // From now on this rank waits for awaited().
  void wait(Env& env);
  virtual std::vector<Awaited> awaited() const { return {}; }
  // The first sender of awaited(); -1: any may be it.
  Rank awaited_rank() const;
  void stop_waiting(Env& env);
  void finish(Env& env);

  const Plan& plan() const { return parts_->plan; }
  const ExchangeSteps& exchanges() const { return parts_->exchanges; }
  bool at_end() const { return model_.step >= parts_->horizon.steps; }
  double epoch_now() const { return parts_->horizon.epoch_of(model_.step); }
  // Of messages and events: this rank's step and version.
  virtual Stamp stamp() const { return stamp_of(rank_, model_.step, model_.step); }
  void send(Env& env, std::vector<OutgoingMessage> messages) {
    send_all(env, stamp(), std::move(messages));
  }
  void common_fields(Archive& a);
  // One of own_fields(). A rank that takes the model of another one, because it lacked an
  // operation, begins at the anchor: the other's model has local steps of its own in it.
  void begins_at_anchor_field(Archive& a);

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const Rank rank_;
  const std::int32_t ranks_;  // that train
  ModelState& model_;

  LocalUpdate local_;
  Phase phase_ = Phase::ready;
  bool begins_at_anchor_ = false;  // differences: once it is loaded
  BufferPool pool_;
};

// RoleType::make of a role that is made from its context alone.
template <class R>
std::unique_ptr<Role> make_from_context(RoleContext context) {
  return std::make_unique<R>(std::move(context));
}

}  // namespace grapevine
