// Role: an exchange pattern. One file each in algorithms/roles; reads like the papers' pseudo-code.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <vector>

#include "algorithms/archive.hpp"
#include "algorithms/awaited.hpp"
#include "algorithms/env.hpp"
#include "messages/check.hpp"
#include "messages/envelope.hpp"

namespace grapevine {

// The model of one rank. Owned by the Peer, changed by its role alone. `x` is frozen between
// handlers: the worker, messages and checkpoints share it without a copy, and a handler that
// changes it thaws it (a copy only where another holder still reads).
struct ModelState {
  FrozenTensor x;    // [d] float32: push-sum numerator; the parameters themselves where w == 1
  double w = 1;      // push-sum weight
  Step step = 0;     // gradients of this rank that it consumed
  double epoch = 0;  // training behind it, in epochs, by the clock that the role keeps
  double lr = 0;     // learning rate of the last update, for reports
};

// Role::counts() of the ranks that remain, by rank.
using ClosedCounts = std::map<Rank, std::vector<std::int64_t>>;

// Handlers run one at a time, to completion, on the Peer's thread of the moment. They must not
// block, read a clock, or draw randomness other than env.rng().
class Role {
 public:
  virtual ~Role() = default;

  // Called once, at the start of training or after load(): continues from the state, so that a
  // gradient that was outstanding at a checkpoint is requested again.
  virtual void on_start(Env& env) = 0;
  virtual void on_gradient(Env& env, Gradient gradient) = 0;
  // Of a gradient that was asked for by Env::compute_in_parts(). on_gradient() follows the last
  // one, unless the gradient is asked for again: after load(), or by the role after this one.
  virtual void on_gradient_part(Env&, GradientPart) {
    GRAPEVINE_CHECK(false, "a part of a gradient came to a role that asks for whole ones");
  }
  virtual void on_message(Env& env, Envelope envelope) = 0;
  virtual void on_timer(Env&, TimerId) {}
  // env.membership() has changed already. Called of a role whose plan does not change members
  // (changes_members() of a plan): where it does nothing, the supervisor ends the run. Else only of
  // a server, which serves the others until they agree on the next view; close() takes its place.
  virtual void on_peer_down(Env&, Rank) {}

  // The de-biased parameters z = x / w, [d]. Shares memory with x where w == 1.
  virtual FrozenTensor debiased() const = 0;

  // Inside a level (roles/levels/level.hpp): x <- z and w <- 1, the same z on all ranks, between
  // two periods; on_start() follows. REQUIRES: RoleType::synchronous.
  virtual void restart(FrozenTensor) {
    GRAPEVINE_CHECK(false, "a role that is not synchronous is inside a level");
  }
  // The part of this rank in the sum of all ranks' models, [d]: the x of push-sum.
  virtual FrozenTensor numerator() const { return debiased(); }

  // Everything besides ModelState that a restart needs: optimizer, rotation, arrived shares… The
  // Peer saves ModelState and messages in flight itself.
  virtual void fields(Archive& a) = 0;
  StateDict save() const { return save_state(*this); }
  // Errors (bad_input): entries that are missing or damaged; the role must not be used then.
  Expected<void> load(const StateDict& state) { return load_state(*this, state); }

  // ---- a change of members (RoleType::changes_members) ----
  //
  // The ranks that train change: some are lost, others join. Then this role is replaced by one
  // among the new members, in three calls: close(); take_back() or count_as_done(); and, on the new
  // role, load_kept(), or load_joined() where the rank joins, before on_start(). No message among
  // the present members is on its way then, and a gradient that was asked for comes to nothing: the
  // new role asks for it again.

  // In the place of a number of operations: the rank exchanges nothing, its node's head does.
  static constexpr std::int64_t kFollows = -2;
  // Ends what is open, as far as it can be ended: what has arrived enters the model. Returns how
  // many operations are complete here: of roles whose ranks agree on their results
  // (RoleType::replicates) the number of results in the model; of others any that their take_back()
  // compares; or kFollows. Counted so that it means the same under another horizon: in steps, not
  // in exchanges whose ends move with the epoch.
  virtual std::int64_t close(Env&) {
    GRAPEVINE_CHECK(false, "the members of a role changed that does not allow it");
  }
  // The open operation is complete nowhere. What this rank gave to it is given again by the new
  // role, or its gradient computed again. `operations`: the most that close() returned on any rank.
  virtual void take_back(Env&, std::int64_t /*operations*/) {}
  // The open operation is complete on another rank: what this rank gave to it counts, and is in no
  // residual. Its result comes with that rank's shared_fields() and model, which have arrived.
  virtual void count_as_done(Env&) {}
  // Replaces these two where this rank joins anew because its node has lost its head: contributions
  // to that head are recorded as dropped.
  virtual void forget(Env&) {}
  // The part of the state that does not depend on the number of ranks, after the calls above:
  // shared by all, or in place of a rank's own where it joins or is behind;
  virtual void shared_fields(Archive&) {}
  // and of this rank alone.
  virtual void own_fields(Archive&) {}
  // Replaces own_fields() for a rank that joins: saved by the role of the rank whose
  // shared_fields() and model it takes, loaded after them. The joining rank has given nothing to
  // open operations.
  virtual void joiner_fields(Archive&) {}
  // Of a new role. Errors as of load().
  Expected<void> load_kept(const StateDict& shared, const StateDict& own) {
    return load_fields(shared, own, &Role::own_fields);
  }
  Expected<void> load_joined(const StateDict& shared, const StateDict& joiner) {
    return load_fields(shared, joiner, &Role::joiner_fields);
  }
  StateDict save_shared() { return save_fields(&Role::shared_fields); }
  StateDict save_own() { return save_fields(&Role::own_fields); }
  StateDict save_joiner() { return save_fields(&Role::joiner_fields); }

  // ---- the same, of a role that is made of others (RoleType::changes_by_mean) ----
  //
  // Nothing of it but the model and the optimizer goes on: close(), resolve_open(), and then the
  // calls of a change of the wiring.

  // After close(): what ranks compare, as many numbers on each of them. Of a role whose clock
  // counts the gradients of all ranks (not RoleType::plans_each_rank), and is made of no others:
  // how many it has counted among these members, and how many of them are of ranks that had ended.
  virtual std::vector<std::int64_t> counts() const { return {}; }
  // In the place of take_back() and count_as_done(). A rank that is not in `counts` is lost.
  virtual void resolve_open(Env&, const ClosedCounts& /*counts*/) {
    GRAPEVINE_CHECK(false, "a role that is made of no others cannot resolve its operations so");
  }

  // ---- a change of the wiring (changes_members() of a plan) ----
  //
  // Another role follows, which shares nothing with this one but the model and the optimizer. After
  // load_kept(), before on_start(), this role gives all that it keeps besides them, in two calls;
  // then all ranks take the mean of their models (roles/common_model.hpp).

  // What this rank keeps for exchanges that do not come any more enters its model, as a late part
  // of its last step (Optimizer::step_late); gradients that are in the model count. model.step is
  // then the number of its gradients.
  virtual void flush(Env&) {}
  // The weight of that model in the mean, in units of w. Of clients of parameter servers, whose
  // model is that of the servers, x is then what is to be added to it, with the weight 0; of a
  // server it is its slice, with its part of the weight of one model.
  virtual double mean_weight() const { return 1; }
  // [k], k the same on all ranks: see Optimizer::state_vector(). Undefined: it has none.
  virtual at::Tensor optimizer_state() const { return {}; }
  // On the new role, in the place of load_kept(): it begins at model.step, which is the same on all
  // ranks, as their models are. The state of an optimizer of another kind counts for nothing.
  // REQUIRES: w == 1.
  virtual void take_over(const at::Tensor& /*optimizer*/) {}

  // The messages without which this rank does not continue; none while it computes, or has nothing
  // to do.
  virtual std::vector<Awaited> waits() const { return {}; }

  // Figures about the algorithm for the summary, gathered since on_start; optional.
  virtual StateDict measures() const { return {}; }

 private:
  using Fields = void (Role::*)(Archive&);

  Expected<void> load_fields(const StateDict& shared, const StateDict& other, Fields fields) {
    Archive from_shared = Archive::loader(shared), from_other = Archive::loader(other);
    shared_fields(from_shared);
    (this->*fields)(from_other);
    if (auto loaded = from_shared.result(); !loaded) return loaded;
    return from_other.result();
  }
  StateDict save_fields(Fields fields) {
    StateDict state;
    Archive archive = Archive::saver(state);
    (this->*fields)(archive);
    return state;
  }
};

}  // namespace grapevine
