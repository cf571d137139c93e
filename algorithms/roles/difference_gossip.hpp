// DifferenceGossip: gossip in which peers send compressed differences to replicas that both ends
// keep.
//
// Paper: CHOCO-SGD: Koloskova, Stich, Jaggi: "Decentralized Stochastic Optimization and Gossip
//   Algorithms with Compressed Communication", ICML 2019, Algorithm 2.
// Symbols: x_i model, y_ij the replica of x_i that i and its neighbour j both keep, C the
//   compressor, W_k the symmetric mixing matrix of round k, gamma the lr, u the optimizer's
//   direction, eta the consensus step (gamma in the paper).
//
//   exchange of round k: to each neighbour j:  q = C(x_i - y_ij);  y_ij <- y_ij + q;  send q
//                        from each neighbour:  y_ji <- y_ji + q
//                        x_i <- x_i + eta sum_j W_k[i][j] (y_ji - y_ij)
//   update before, step k:  x <- x - gamma u(g at x);  exchange
//   update after, step k:   send the differences;  gradient at x meanwhile;  wait, mix;
//                           x <- x - gamma u(g)
//   overlap, step k:        wait for the differences of the round before, mix;  send the next;
//                           gradient at x while they fly;  x <- x - gamma u(g)
//   error_feedback = false: y_ij <- C(x_i), not added up: plain compressed models, the comparison
//                           that does not reach consensus.
//
// With H local steps a rank exchanges at every H-th step only, as in gossip.hpp; where the update
//   comes after the exchange, or gossip overlaps, the H steps hide it (SPARQ-SGD, Singh et al.
//   2020, without its trigger).
// Bytes per rank and round: links * (bytes of C + header). Messages: links.
// Memory: a replica of each neighbour, and one of this rank; where the graph changes from round to
//   round, one of this rank for each neighbour.
// Staleness: 0, or H - 1 where the update comes after the exchange, H where gossip overlaps.
// Conservation: both ends of an edge move by opposite amounts, bit for bit: a round changes the sum
//   of all x by rounding alone.
// Deviations: the paper's graph is the same in every round, and one replica y_i serves all
//   neighbours; here each edge may have its own, so that any sequence of graphs works. Replicas
//   start at 0, as in the paper, and not at the x_0 that ranks usually share: nothing here checks
//   that x_0 is shared, and an edge may appear late in a run. The first rounds, 1/density of them
//   for top-k, therefore carry the parameters themselves.
//   A peer that is down is left out of the sums: its model is lost with it.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "algorithms/compressors/compressor.hpp"
#include "algorithms/parts/buffer_pool.hpp"
#include "algorithms/role.hpp"
#include "algorithms/roles/gossip_settings.hpp"
#include "algorithms/wiring/plan.hpp"

namespace grapevine {

class DifferenceGossip final : public Role {
 public:
  // REQUIRES: parts->graph; `model` outlives this.
  DifferenceGossip(std::shared_ptr<const SharedParts> parts, Rank rank, ModelState& model,
                   std::unique_ptr<Optimizer> optimizer);

  void on_start(Env& env) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  void on_timer(Env& env, TimerId id) override;
  void on_peer_down(Env& env, Rank peer) override;
  void on_peer_up(Env& env, Rank peer) override;
  FrozenTensor debiased() const override { return model_.x; }
  StateDict save() const override;
  Expected<void> load(const StateDict& state) override;

 private:
  enum class Phase : std::int64_t { ready, computing, waiting, finished };

  struct Difference {
    Stamp stamp;
    Packed packed;
  };

  // Training.
  void advance(Env& env);
  void apply(Env& env);
  void push(Env& env);
  void mix(Env& env);
  void compute(Env& env);
  void wait(Env& env);
  void resume_if_complete(Env& env);

  void begin_round(const Env& env);
  bool has_arrived(Rank peer) const { return arrived_.count({round_, peer}) > 0; }
  // The key of own_replica_ for a neighbour.
  Rank replica_key(Rank peer) const { return static_graph_ ? -1 : peer; }
  at::Tensor& copy(std::map<Rank, at::Tensor>& copies, Rank key) const;
  void take_in(at::Tensor& copy, const Packed& packed) const;
  Expected<void> load_difference(const StateDict& state);
  Stamp stamp() const;

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const GossipSettings& settings_;
  const Rank rank_;
  const bool static_graph_;  // all rounds have the same graph: one own replica for all
  const std::unique_ptr<const Compressor> compressor_;
  ModelState& model_;

  LocalUpdate local_;
  Phase phase_ = Phase::ready;
  std::int64_t round_ = -1;          // newest round pushed
  bool outstanding_ = false;         // round_ is pushed and not mixed
  std::vector<Shares::Link> links_;  // of round_, while it is outstanding; dead peers included
  std::set<Rank> awaited_;           // peers whose difference of round_ is missing
  at::Tensor gradient_;              // computed and not applied yet: [d] or undefined
  std::map<Rank, at::Tensor> own_replica_;                       // y_ij by replica_key(j)
  std::map<Rank, at::Tensor> peer_replica_;                      // y_ji by j
  std::map<std::pair<std::int64_t, Rank>, Difference> arrived_;  // by round and sender
  BufferPool pool_;
};

}  // namespace grapevine
