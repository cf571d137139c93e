// GroupHead: the role of a group among groups, on the first rank of each group. A part of Level.
//
// Its gradients are periods of the group: one at z is z - mean, where mean is the group's model
// after the period, and its rate is 1.
#pragma once
#include <cstdint>

#include "algorithms/role.hpp"
#include "algorithms/roles/levels/level_parts.hpp"
#include "algorithms/roles/levels/nested_role.hpp"

namespace grapevine {

// Not thread-safe: belongs to one role.
class GroupHead final : private NestedRole::Around {
 public:
  // What the role asks of its group, within any handler below.
  class Group {
   public:
    virtual ~Group() = default;
    // A period is under way.
    virtual bool runs() const = 0;
    // The next one begins at z.
    virtual void begin(Env& env, std::int64_t period, const FrozenTensor& z) = 0;
    // No period follows.
    virtual void end(Env& env) = 0;
    // Gradients of this rank so far, for events.
    virtual Step step() const = 0;
  };

  // `rank`: of the run; `workers`: those that train; `model`: where the group starts. `group` and
  // `parts` outlive this.
  GroupHead(Group& group, const SharedParts& parts, Rank rank, std::int32_t workers,
            const ModelState& model);

  void on_start(Env& env) { outside_.on_start(env); }
  // The period is over.
  void on_mean(Env& env, std::int64_t period, const FrozenTensor& mean);
  // From another head, or a server.
  void on_message(Env& env, Envelope envelope) { outside_.on_message(env, std::move(envelope)); }
  void on_timer(Env& env, TimerId id) { outside_.on_timer(env, id); }

  // Where the group continues from z, in a level around it.
  void restart(const FrozenTensor& z);
  FrozenTensor debiased() const { return outside_.role().debiased(); }
  FrozenTensor numerator() const { return outside_.role().numerator(); }
  StateDict measures() const { return outside_.role().measures(); }
  std::vector<Awaited> waits() const { return outside_.waits(); }
  void fields(Archive& a, std::int64_t d);

 private:
  // The steps of the role are periods, and those are no gradients: the role inside the group
  // records what becomes of these.
  void compute(Env& env, Step step, FrozenTensor z) override;
  void finished(Env& env) override { group_.end(env); }
  TimerId timer_of_run(TimerId id) const override { return 2 * id; }
  void record(Env& env, const Event& event) override;

  // Constant after construction.
  Group& group_;
  const ExchangeSteps& periods_;

  ModelState model_;    // of the group
  NestedRole outside_;  // among the heads of all groups, then the servers
  FrozenTensor z_;      // where the period began
};

}  // namespace grapevine
