// NestedRole: a role whose world is a part of the run: some of its ranks, under numbers of their
// own.
#pragma once
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "algorithms/role.hpp"
#include "algorithms/wiring/plan.hpp"

namespace grapevine {

// Not thread-safe: belongs to one role.
class NestedRole {
 public:
  // The role around it, which answers its requests for gradients, timers and the end. `env` is that
  // of the run.
  class Around {
   public:
    virtual ~Around() = default;
    virtual void compute(Env& env, Step step, FrozenTensor z) = 0;
    // Where it hands parts of gradients on.
    virtual void compute_in_parts(Env& env, Step step, FrozenTensor z, const PartBegins&) {
      compute(env, step, std::move(z));
    }
    virtual void finished(Env& env) = 0;
    // The number in the run of a timer of the role.
    virtual TimerId timer_of_run(TimerId id) const { return id; }
    virtual void record(Env& env, const Event& event) { env.record(event); }
  };

  // `world`: the run's ranks, ascending; `own`: this rank's number. `around` outlives this.
  NestedRole(Around& around, std::vector<Rank> world, Rank own, std::unique_ptr<Role> role)
      : around_(around), world_(std::move(world)), own_(own), role_(std::move(role)) {}

  // Of a head: its world are the heads of all nodes or groups, ascending, then the plan's servers,
  // which follow `workers` ranks that train. `rank`: one of the heads; `parts`: of the role.
  NestedRole(Around& around, std::vector<Rank> heads, std::int32_t workers, Rank rank,
             const std::shared_ptr<const SharedParts>& parts, ModelState& model);

  Role& role() { return *role_; }
  const Role& role() const { return *role_; }

  void on_start(Env& env);
  void on_gradient_part(Env& env, GradientPart part);
  void on_gradient(Env& env, Gradient gradient);
  // Of the run. REQUIRES: its sender is in this world.
  void on_message(Env& env, Envelope envelope);
  // `id`: the role's.
  void on_timer(Env& env, TimerId id);
  // See Role, "a change of members".
  std::int64_t close(Env& env);
  void take_back(Env& env, std::int64_t operations);
  void resolve_open(Env& env, const ClosedCounts& counts);  // by rank of the run
  void count_as_done(Env& env);
  // See Role, "a change of the wiring".
  void flush(Env& env);
  // Of the role, with the ranks of the run.
  std::vector<Awaited> waits() const;
  // A rank of the run; nothing where it is outside, or this one.
  void on_peer_down(Env& env, Rank peer);

 private:
  class NestedEnv;

  std::optional<Rank> number_of(Rank rank) const;

  // Constant after construction.
  Around& around_;
  const std::vector<Rank> world_;
  const Rank own_;

  const std::unique_ptr<Role> role_;
};

}  // namespace grapevine
