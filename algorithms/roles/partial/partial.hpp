// Partial: ranks sum the gradients that are ready, and do not wait for ranks that have none.
//
// Papers: eager-SGD: Li, Ben-Nun, Di Girolamo, Alistarh, Hoefler: "Taming Unbalanced Training
//   Workloads in Deep Learning with Partial Collective Operations", PPoPP 2020, Algorithm 2.
//   Decoupled DiLoCo: Douillard et al. 2026 (a quorum with a grace window, samples as weights).
// Symbols: round r an operation of PartialAllReduce, S the steps of each rank, B the pending
//   gradients of a rank, tau the bound on their age.
//
//   step s:   g = gradient at the newest x;  B <- B + g
//             if round s is not over: post it, wait for it;  else continue (this rank is late)
//   round r:  begins when its trigger fires (solo: a rank that has reached step r posts; majority:
//             one drawn rank; quorum Q: Q of them);  contribute B, then B <- 0;  s = sum of all B
//             x <- x - gamma u(s / P)
//   differences: H steps  x_i <- x_i - gamma u(g) from the common model a;  B <- B + a_start - x_i
//             round: D = s / P;  a <- outer step along D;  ranks that were in it take x_i <- a, the
//             others complete their H steps first
//   end:      once S/H rounds are over, ranks that are behind end in further rounds
//
// Every gradient of a rank is consumed in one round: the one that begins next. The release of
// eager-SGD overwrites late gradients. Where the computation of a gradient has lasted tau rounds,
// its rank holds its contribution back until the gradient is ready, and the sum waits: age <= tau.
// With tau = 0, or a quorum of P, this is synchronous SGD, bit for bit that of the aggregate role.
// With differences a quorum of P is DiLoCo, bit for bit. Ranks make their sums at the quorum, or
// once its grace is over. The triggers and the sequence of rounds: partial_rounds.hpp.
// A sum is divided by P, by the ranks with a gradient in it, or by the samples in it: a difference
//   of h < H steps then weighs h/H.
// Replicas: every rank takes every round's sum, in order, also while its worker computes: models
//   and momentum stay bitwise equal, so the average of models that the release takes every few
//   epochs would change nothing and is not taken.
// Deviations: rounds at the end are updates beyond S, with momentum and weight decay. Decoupled
//   DiLoCo has a server that closes rounds, and anchors a late difference at the server's model of
//   H steps before; here a rank counts those that are ready, and a late difference is anchored
//   where its steps began. Fragments are not built.
// Momentum: of the optimizer, on the sums, as in a synchronous run with late gradients.
// Compressed (Reduction): each contribution includes the residual; a contribution of zeros sends
//   residual too. Nothing is lost unless residual_decay lets residuals fade, and age is that of the
//   gradient when it was contributed.
// Bytes per rank and round: 2 (P-1)/P * 4 d and headers, or those of the reduction; a tally of
//   8 P log2 P; log2 P activations.
// Staleness of a gradient: rounds between the x of its computation and its round, <= tau.
// Where members change, a round is complete on all that remain, or what they gave to it waits
// again.
#pragma once
#include <memory>
#include <vector>

#include "algorithms/collectives/partial_all_reduce.hpp"
#include "algorithms/parts/recycled_memory.hpp"
#include "algorithms/roles/partial/early_rounds.hpp"
#include "algorithms/roles/partial/own_gradients.hpp"
#include "algorithms/roles/partial/partial_rounds.hpp"
#include "algorithms/roles/training_role.hpp"

namespace grapevine {

const RoleType& partial_role();

class Partial final : public TrainingRole {
 public:
  explicit Partial(RoleContext context);

  void on_start(Env& env) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  void on_timer(Env& env, TimerId round) override;
  FrozenTensor debiased() const override;
  void fields(Archive& a) override;

  std::int64_t close(Env& env) override;
  void take_back(Env& env, std::int64_t operations) override;
  void count_as_done(Env& env) override;
  void shared_fields(Archive& a) override;
  void own_fields(Archive& a) override;
  void joiner_fields(Archive& a) override;
  void flush(Env& env) override;
  void take_over(const at::Tensor& optimizer) override;
  std::vector<Awaited> waits() const override;

 private:
  // Training, in the order of the paper.
  void compute_next(Env& env);
  bool collect(Env& env, at::Tensor g);
  void add_difference();
  std::int64_t full_steps() const;
  void weigh_what_waits();
  void post_if_nothing_follows(Env& env);
  bool has_no_steps_left() const { return produced_ >= parts_->horizon.steps; }
  void wait_for_round(Env& env);
  void post(Env& env);
  void contribute_if_begun(Env& env);
  at::Tensor new_vector();
  bool must_hold_back() const;
  void apply(Env& env, PartialAllReduce::Result result);
  void take_mean(at::Tensor mean, double epoch);
  void next_round(Env& env);

  std::vector<Awaited> awaited() const override { return reduce_.awaited(); }
  bool packs_differences() const { return plan().local.pack == Pack::difference; }
  void start_round();
  void give_grace(Env& env);
  // The step that this rank finishes next: its model takes the result of a round in it.
  Step step_now() const { return phase_ == Phase::waiting || waits_ ? produced_ - 1 : produced_; }
  void end_step(Env& env) { env.record({EventKind::step_done, -1, stamp(), produced_ - 1, 0, 0}); }
  Stamp stamp() const override {
    return stamp_of(rank_, std::max<Step>(0, produced_ - 1), rounds_.now());
  }

  // Constant after construction.
  const PartialSettings& settings_;
  const std::vector<Rank> everybody_;

  Step produced_ = 0;           // gradients of this rank
  bool waits_ = false;          // when members changed: for the round that its last gradient is of
  bool from_residual_ = false;  // gradients that wait are in the residual
  OwnGradients own_;
  const RecycledMemory vectors_;  // [d]: gradients, and what is given to rounds

  const std::shared_ptr<Reduction> reduction_;  // of all rounds, one after the other
  PartialRounds rounds_;
  PartialAllReduce reduce_;  // of the present round
  at::Tensor given_;         // to it, where no residual keeps it; or undefined: nothing was
  EarlyRounds early_;
};

}  // namespace grapevine
