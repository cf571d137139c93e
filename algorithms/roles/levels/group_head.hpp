// GroupHead: the role of a group among groups, on the first rank of each group. A part of Level.
//
// Its gradients are periods of the group: one at z is z - mean, where mean is the group's model
// after the period, and its rate is 1.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>

#include "algorithms/parts/buffer_pool.hpp"
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

  // `rank`: one of `workers`, which train; `model`: where the group starts. `group` and `parts`
  // outlive this.
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

  // ---- a change of members, and of the wiring: see Role ----

  // What the group gives to the mean of all models, besides its period: numbers of that mean.
  struct Given {
    at::Tensor x;       // [d]
    double weight = 0;  // of w
  };

  void close(Env& env) { operations_ = outside_.close(env); }
  std::int64_t operations() const { return operations_; }
  // `operations`: the most of any head; `share`: in the mean, of the model of one that has them.
  void resolve_open(Env& env, std::int64_t operations, double share);
  Given flush(Env& env);
  // The group begins at `period`, with this model.
  void take_over(const ModelState& model, std::int64_t period);

 private:
  // The steps of the role are periods, and those are no gradients: the role inside the group
  // records what becomes of these.
  void compute(Env& env, Step step, FrozenTensor z) override;
  void finished(Env& env) override { group_.end(env); }
  TimerId timer_of_run(TimerId id) const override { return 2 * id; }
  void record(Env& env, const Event& event) override;
  void keep_account(const Event& event);

  // Constant after construction.
  Group& group_;
  const ExchangeSteps& periods_;
  const LevelParts& levels_;

  ModelState model_;         // of the group
  NestedRole outside_;       // among the heads of all groups, then the servers
  FrozenTensor z_;           // where the period began,
  std::int64_t period_ = 0;  // and which one it is
  // Of periods that the role has not committed: what it may give up where members change.
  std::map<std::int64_t, FrozenTensor> differences_;
  BufferPool pool_;  // of these

  // While members change.
  std::int64_t operations_ = 0;
  bool behind_ = false;  // another head has the result of an operation that this one lacks
  double share_ = 1;     // of its model, in place of those that are behind
  at::Tensor given_up_;  // [d], of periods; undefined: none
};

}  // namespace grapevine
