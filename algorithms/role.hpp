// Role: an exchange pattern. One file each in algorithms/roles; reads like the papers' pseudo-code.
#pragma once
#include <memory>
#include <string>

#include "algorithms/archive.hpp"
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

// Handlers run one at a time, to completion, on the Peer's thread of the moment. They must not
// block, read a clock, or draw randomness other than env.rng().
class Role {
 public:
  virtual ~Role() = default;

  // Called once, at the start of training or after load(): continues from the state, so that a
  // gradient that was outstanding at a checkpoint is requested again.
  virtual void on_start(Env& env) = 0;
  virtual void on_gradient(Env& env, Gradient gradient) = 0;
  virtual void on_message(Env& env, Envelope envelope) = 0;
  virtual void on_timer(Env&, TimerId) {}
  // env.membership() has changed already. Where a role does nothing, the supervisor ends the run.
  virtual void on_peer_down(Env&, Rank) {}
  // A rank that returns takes part again only through a restart, unless the role says otherwise.
  virtual void on_peer_up(Env&, Rank) {}

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

  // Figures about the algorithm for the summary, gathered since on_start; optional.
  virtual StateDict measures() const { return {}; }
};

}  // namespace grapevine
