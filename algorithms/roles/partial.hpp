// Partial: ranks sum the gradients that are ready, and do not wait for ranks that have none.
//
// Papers: eager-SGD: Li, Ben-Nun, Di Girolamo, Alistarh, Hoefler: "Taming Unbalanced Training
//   Workloads in Deep Learning with Partial Collective Operations", PPoPP 2020, Algorithm 2.
// Symbols: round r an operation of PartialAllReduce, S the steps of each rank, B the pending
//   gradients of a rank, tau the bound on their age.
//
//   step s:   g = gradient at the newest x;  B <- B + g
//             if round s is not over: post it, wait for it;  else continue (this rank is late)
//   round r:  begins when its trigger fires (solo: a rank that has reached step r posts; majority:
//             one drawn rank; quorum Q: Q of them);  contribute B, then B <- 0;  s = sum of all B
//             x <- x - gamma u(s / P)
//   end:      once S rounds are over, ranks that are behind take their last steps in further rounds
//
// Every gradient of a rank is consumed in one round: the one that begins next. The release of
// eager-SGD overwrites late gradients. Where the computation of a gradient has lasted tau rounds,
// its rank holds its contribution back until the gradient is ready, and the sum waits: age <= tau.
// With tau = 0, or a quorum of P, this is synchronous SGD, bit for bit that of the aggregate role.
// The triggers and the sequence of rounds: partial_rounds.hpp.
// Replicas: every rank takes every round's sum, in order, also while its worker computes: models
//   and momentum stay bitwise equal, so the average of models that the release takes every few
//   epochs would change nothing and is not taken.
// Deviations: rounds at the end are updates beyond S, with momentum and weight decay.
// Momentum: of the optimizer, on the sums, as in a synchronous run with late gradients.
// Compressed (Reduction): each contribution includes the residual; a contribution of zeros sends
//   residual too. Nothing is lost unless residual_decay lets residuals fade, and age is that of the
//   gradient when it was contributed.
// Bytes per rank and round: 2 (P-1)/P * 4 d and headers, or those of the reduction; a tally of
//   8 P log2 P; log2 P activations.
// Staleness of a gradient: rounds between the x of its computation and its round, <= tau.
// A rank that dies stops the training: it is part of every sum.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "algorithms/collectives/partial_all_reduce.hpp"
#include "algorithms/parts/buffer_pool.hpp"
#include "algorithms/role.hpp"
#include "algorithms/roles/partial_rounds.hpp"
#include "algorithms/wiring/role_type.hpp"

namespace grapevine {

const RoleType& partial_role();

class Partial final : public Role {
 public:
  // REQUIRES: `model` outlives this.
  Partial(std::shared_ptr<const SharedParts> parts, Rank rank, std::int32_t ranks,
          ModelState& model, std::unique_ptr<Optimizer> optimizer);

  void on_start(Env& env) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  void on_timer(Env& env, TimerId id) override;
  void on_peer_down(Env& env, Rank peer) override;
  void on_peer_up(Env& env, Rank peer) override;
  FrozenTensor debiased() const override;
  StateDict save() const override;
  Expected<void> load(const StateDict& state) override;

 private:
  // The state of the worker.
  enum class Phase : std::int64_t { idle, computing, waiting, finished };
  // A gradient of this rank that is not in the model yet.
  struct Pending {
    Step step = 0;
    Version version = 0;
  };

  // Training, in the order of the paper.
  void compute(Env& env);
  void post(Env& env);
  void contribute_if_begun(Env& env);
  bool must_hold_back() const;
  void apply_if_done(Env& env);
  void apply(Env& env, PartialAllReduce::Result result);
  void commit_own(Env& env, Version round);
  void next_round(Env& env);

  void start_round();
  void hold(Rank from, std::int64_t round, Payload payload);
  void take_early(Env& env);
  void send(Env& env, std::vector<OutgoingMessage> messages);
  Stamp stamp() const;
  Expected<void> load_pending(const StateDict& state);

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const PartialSettings& settings_;
  const Rank rank_;
  const std::vector<Rank> ranks_;
  ModelState& model_;

  LocalUpdate local_;
  Phase phase_ = Phase::idle;
  Step produced_ = 0;         // gradients of this rank
  Version computing_at_ = 0;  // rounds in the x that the worker reads
  at::Tensor pending_sum_;    // [d] or undefined
  std::vector<Pending> pending_, contributed_;

  const std::shared_ptr<Reduction> reduction_;  // of all rounds, one after the other
  PartialRounds rounds_;
  PartialAllReduce reduce_;  // of the present round
  CollectiveInbox early_;    // tallies of rounds that this rank has not reached
  std::map<std::int64_t, std::vector<Activate>> early_activations_;  // the same, by round
  BufferPool pool_;
};

}  // namespace grapevine
