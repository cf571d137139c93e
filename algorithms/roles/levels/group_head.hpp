// GroupHead: the role of a group among groups, on the first rank of each group. A part of Level.
//
// Its gradients are periods of the group: one at z is z - mean, where mean is the group's model
// after the period, and its rate is 1.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/role.hpp"
#include "algorithms/roles/levels/level_parts.hpp"
#include "algorithms/roles/levels/nested_env.hpp"

namespace grapevine {

// Not thread-safe: belongs to one role.
class GroupHead {
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

  // `rank`: of the run; `ranks`: those that train; `model`: where the group starts. `group` and
  // `parts` outlive this.
  GroupHead(Group& group, const SharedParts& parts, Rank rank, std::int32_t ranks,
            const ModelState& model);

  void on_start(Env& env);
  // The period is over.
  void on_mean(Env& env, std::int64_t period, const FrozenTensor& mean);
  // From another head, or a server.
  void on_message(Env& env, Envelope envelope);
  void on_timer(Env& env, TimerId id);

  // Where the group continues from z, in a level around it.
  void restart(const FrozenTensor& z);
  FrozenTensor debiased() const { return role_->debiased(); }
  FrozenTensor numerator() const { return role_->numerator(); }
  StateDict measures() const { return role_->measures(); }
  void fields(Archive& a, std::int64_t d);

 private:
  class OutsideEnv;

  // Constant after construction.
  Group& group_;
  const ExchangeSteps& periods_;
  const Rank number_;              // of this group
  const std::vector<Rank> world_;  // the heads of all groups, then the servers

  ModelState model_;  // of the group
  std::unique_ptr<Role> role_;
  FrozenTensor z_;  // where the period began
};

}  // namespace grapevine
