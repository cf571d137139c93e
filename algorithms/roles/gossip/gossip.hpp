// Gossip: every rank mixes its model with a few peers' per round.
//
// Papers: SGP, OSGP: Assran, Loizou, Ballas, Rabbat: "Stochastic Gradient Push for Distributed Deep
//   Learning", ICML 2019, Algorithms 1 and 2; push-sum: Kempe, Dobra, Gehrke 2003. D-PSGD: Lian et
//   al.: "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017, Alg. 1.
//   CHOCO-SGD: Koloskova, Stich, Jaggi, ICML 2019, Algorithm 2. Running sums: sums_mixer.cpp.
// Symbols: x numerator, w push-sum weight, z = x/w de-biased model, W_k the mixing matrix of round
//   k, gamma lr, u the optimizer's direction. A mixer (mixer.hpp) gives and folds: shares
//   W_k (x, w), their sums over all rounds, or compressed differences.
//
//   update before, step k:  x <- x - gamma u(z);  give;  wait for in(k);  fold;  z = x/w
//   (SGP)
//   overlap (OSGP), step k: fold the outstanding round (or skip it, at most tau times running, or
//                           wait);  give;  z = x/w;  gradient at z meanwhile;  x <- x - gamma u(z)
//   update after, step k:   give;  z = x/w;  gradient at z meanwhile;  wait for in(k);  fold;
//   (D-PSGD)                x <- x - gamma u(z)
//
// u(z) includes weight decay, which acts at z with its whole strength.
//
// With H local steps a rank exchanges at every H-th step only and, where the update comes before
//   the exchange, at its last one. Where gossip overlaps, or the update comes after the exchange,
//   the H steps hide it (CoCoD-SGD: Shen et al. 2019; Overlap-Local-SGD: Wang et al. 2020; with
//   differences SPARQ-SGD, Singh et al. 2020, without its trigger). They start from the whole
//   (x, w). The given mass is subtracted when the round is folded, at the next exchange:
//   x <- x - given + sum of shares.  tau counts exchanges that were skipped.
// With running sums messages may be lost, and no rank waits: a round that is still incomplete after
//   tau skipped exchanges is folded as it is, and the sums of later rounds contain what it lacks.
//   A rank sends its newest sums once more at its end.
// With gradient tracking (gradient_tracker.hpp) u is taken of y, which a round mixes beside x, for
//   twice the bytes; where a round is on its way during a step, of y after the fold. With
//   quasi-global momentum (Lin et al. 2021) u is of the way of the mixed model; deviation: weight
//   decay acts beside it, also in Nesterov's form.
// With pack = difference each rank takes an outer step along the way from its anchor to the mixed
//   model, once for each exchange (LocalUpdate::step_to_mixed).
//
// Averaging: push-sum splits evenly among the destinations; symmetric takes the graph's symmetric
//   weights with every edge used both ways, which keeps w at 1; biased is push-sum that takes w for
//   1 once a round is folded, as the comparison in Assran et al. does: right on regular graphs
//   only.
// Bytes per rank and round: links * (4 d, or the compressor's, + header). Messages: links, twice
//   that where compressed differences travel with a push-sum weight.
// Staleness of what is folded: without overlap 0, or H - 1 where the update comes after the
//   exchange, which H local steps hide; with overlap H (1 + rounds skipped), so at most
//   H (1 + tau) against a peer of equal speed. With running sums nothing bounds it.
// Conservation: the mixer's. Sums change by gradients alone, and by outer steps.
// Where members change, what has arrived is folded and rounds begin anew (Mixer::close): the others
//   lack the mass that lost ranks had, or were given.
// Deviations: rounds are numbered by exchanges, not by steps, so that after skipped rounds sender
//   and receiver still agree on the graph; a round is folded when complete and in rank order, so
//   that results do not depend on arrival order. Momentum is never gossiped. SlowMo's paper takes
//   a slow step after many rounds and an average of all ranks; here each exchange has one.
#pragma once
#include <memory>

#include "algorithms/parts/gradient_tracker.hpp"
#include "algorithms/roles/gossip/mixer.hpp"
#include "algorithms/roles/gossip/round_peers.hpp"
#include "algorithms/roles/training_role.hpp"

namespace grapevine {

// When the optimizer steps.
enum class Update { before_exchange, after_exchange };

struct GossipSettings final : RoleData {
  MixingRule averaging = MixingRule::push_sum;
  Update update = Update::before_exchange;
  bool overlap = false;  // exchange while the worker computes
  // tau: exchanges running that may be skipped, with overlap
  CountSchedule staleness = CountSchedule::constant(0);
  bool running_sums = false;  // messages may be lost: no round is waited for
  bool tracking = false;      // steps follow an estimate of the mean gradient, mixed with x

  // Whether ranks may exchange different numbers of rounds.
  bool rounds_differ() const { return staleness.most() > 0 || running_sums; }
  // Whether a round is given before the step whose gradient it meets.
  bool exchanges_first() const { return overlap || update == Update::after_exchange; }
};

const RoleType& gossip_role();

class Gossip final : public TrainingRole {
 public:
  // REQUIRES: context.parts->graph.
  explicit Gossip(RoleContext context);

  void on_start(Env& env) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  void on_peer_down(Env& env, Rank peer) override;
  FrozenTensor debiased() const override;
  void fields(Archive& a) override;

  std::int64_t close(Env& env) override;

 private:
  void advance(Env& env);
  void push(Env& env);
  FrozenTensor apply(Env& env, StepRound round = {});
  StepRound round_after(Env& env, FrozenTensor share, Step steps);
  FrozenTensor fold_last(StepRound round);
  void compute_at_z(Env& env, FrozenTensor z = {});
  void leave(Env& env);
  void fold(Env& env, std::int64_t round);
  FrozenTensor fold_but_last(Env& env);
  bool steps_in_one_pass() const;
  void outer_step();
  void resume_if_complete(Env& env, Rank peer);

  bool hides_exchanges() const;
  std::vector<Awaited> awaited() const override;
  Stamp stamp() const override;

  const GossipSettings& settings_;                  // constant after construction
  const std::unique_ptr<GradientTracker> tracker_;  // or null
  const std::unique_ptr<Mixer> mixer_;

  std::int64_t round_ = -1;      // newest round pushed
  bool outstanding_ = false;     // round_ is pushed and not folded
  at::Tensor gradient_;          // computed and not applied yet: [d] or undefined
  bool outer_step_due_ = false;  // after what was due before is folded
  std::int64_t skips_ = 0;       // consecutive exchanges that passed without it
  RoundPeers peers_;
  FrozenTensor z_;  // the parameters of the worker, where they are not x itself
};

}  // namespace grapevine
