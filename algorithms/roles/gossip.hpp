// Gossip: every rank mixes its model with a few peers' per round.
//
// Papers: SGP, OSGP: Assran, Loizou, Ballas, Rabbat: "Stochastic Gradient Push for Distributed Deep
//   Learning", ICML 2019, Algorithms 1 and 2; push-sum: Kempe, Dobra, Gehrke 2003. D-PSGD: Lian et
//   al.: "Can Decentralized Algorithms Outperform Centralized Algorithms?", NeurIPS 2017, Alg. 1.
// Symbols: x numerator, w push-sum weight, z = x/w de-biased model, W_k the mixing matrix of round
//   k, gamma lr, u the optimizer's direction.
//
//   update before, step k:  x <- x - gamma u(z);  give shares W_k (x, w);  wait for in(k);  fold
//   (SGP)                   z = x/w
//   overlap (OSGP), step k: fold the outstanding round (or skip it, at most tau times running, or
//                           wait);  give shares W_k (x, w);  z = x/w;  gradient at z meanwhile;
//                           x <- x - gamma u(z)
//   update after, step k:   give shares W_k (x, w);  z = x/w;  gradient at z meanwhile;  wait for
//   (D-PSGD)                in(k);  fold;  x <- x - gamma u(z)
//
// u(z) includes weight decay, which acts at z with its whole strength.
//
// With H local steps a rank exchanges at every H-th step only and, where the update comes before
//   the exchange, at its last one. Where gossip overlaps, or the update comes after the exchange,
//   the H steps hide it (CoCoD-SGD: Shen et al. 2019; Overlap-Local-SGD: Wang et al. 2020). They
//   start from the whole (x, w). The given mass is subtracted when the round is folded, at the next
//   exchange:  x <- x - given + sum of shares.  tau counts exchanges that were skipped.
//
// Averaging: push-sum splits evenly among the destinations; symmetric takes Metropolis-Hastings
//   weights with every edge used both ways, which keeps w at 1; biased is push-sum that takes w for
//   1 once a round is folded, as the comparison in Assran et al. does: right on regular graphs
//   only.
// Bytes per rank and round: links * (4 d + header). Messages: links.
//   An averaging weight is a multiple of 2^-24, so that x and w are scaled by the same number and
//   the weights of a round add up to exactly 1 (w itself is rounded on irregular directed graphs);
//   where weights differ, a tensor of d and a pass for each.
// Staleness of a folded share: without overlap 0, or H - 1 where the update comes after the
//   exchange, which H local steps hide; with overlap H (1 + rounds skipped), so at most
//   H (1 + tau) against a peer of equal speed.
// Conservation: sum of x and of w over ranks and shares in flight changes only by gradients. Hence
//   w travels with every share and is kept, for symmetric weights too: the published code leaves it
//   out and corrupts parameters when the number of peers changes.
// Deviations: rounds are numbered by exchanges, not by steps, so that after skipped rounds sender
//   and receiver still agree on the graph; a round is folded when complete and in rank order, so
//   that results do not depend on arrival order. Momentum is never gossiped.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "algorithms/parts/buffer_pool.hpp"
#include "algorithms/role.hpp"
#include "algorithms/roles/gossip_settings.hpp"
#include "algorithms/wiring/role_type.hpp"

namespace grapevine {

const RoleType& gossip_role();

class Gossip final : public Role {
 public:
  // REQUIRES: parts->graph; `model` outlives this.
  Gossip(std::shared_ptr<const SharedParts> parts, Rank rank, ModelState& model,
         std::unique_ptr<Optimizer> optimizer);

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
  // The state of this rank between handlers.
  enum class Phase : std::int64_t { ready, computing, waiting, finished };

  // Training, in the order of the papers.
  void advance(Env& env);
  void push(Env& env, const Shares& shares);
  void send_shares(Env& env, const Shares& shares, double w,
                   const std::map<double, FrozenTensor>& scaled);
  void apply(Env& env, double kept);
  void compute(Env& env);
  void wait(Env& env);
  void finish(Env& env);
  void resume_if_complete(Env& env);
  void fold_arrived(Env& env, std::int64_t round);

  bool hides_exchanges() const;
  bool expects(Rank peer, std::int64_t round) const;
  void await_round();
  FrozenTensor scaled_copy(double weight);
  Expected<void> load_arrived(const StateDict& state);
  Shares next_shares(const Env& env) const;
  Stamp stamp() const;

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const GossipSettings& settings_;
  const Rank rank_;
  ModelState& model_;

  LocalUpdate local_;
  Phase phase_ = Phase::ready;
  std::int64_t round_ = -1;   // newest round pushed
  bool outstanding_ = false;  // round_ is pushed and not folded
  at::Tensor gradient_;       // computed and not applied yet: [d] or undefined
  std::int64_t skips_ = 0;    // consecutive exchanges that passed without it
  std::set<Rank> awaited_;    // peers whose share of round_ is missing
  // The mass (x, w) that round_ gave away and local steps still use; x undefined: none.
  struct Given {
    FrozenTensor x;
    double w = 0;
  } given_;
  std::map<std::int64_t, std::map<Rank, Envelope>> arrived_;  // by round, then sender
  std::map<Rank, std::int64_t> gone_;  // peers that left, with their last round
  FrozenTensor z_;                     // the parameters of the worker, where they are not x itself
  BufferPool pool_;
};

}  // namespace grapevine
