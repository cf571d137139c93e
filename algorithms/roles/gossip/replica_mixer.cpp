// Replicas: compressed differences to replicas that both ends of an edge keep (replicas.hpp).
//
// Papers: CHOCO-SGD: Koloskova, Stich, Jaggi: "Decentralized Stochastic Optimization and Gossip
//   Algorithms with Compressed Communication", ICML 2019, Algorithm 2. On directed graphs with
//   push-sum: Taheri, Mokhtari, Hassani, Pedarsani: "Quantized Decentralized Stochastic Learning
//   over Directed Graphs", ICML 2020.
//   Gradient tracking, whose estimate is mixed beside the model, compressed by itself: Zhao, Li,
//   Li, Richtárik, Chi: "BEER", NeurIPS 2022; Liao, Li, Huang, Pu, IEEE TCNS 2022 (C-GT).
// Symbols: y_ij the replica of x_i at its neighbour j, eta the consensus step (gamma in the paper).
//
//   symmetric:  x_i <- x_i + eta sum_j W_k[i][j] (y_ji - y_ij)
//   push-sum, y_ij the replica of z_i = x_i / w_i:
//               x_i <- x_i + eta (sum over sources j of W_k[i][j] w_j y_ji
//                                 - sum over destinations j of W_k[j][i] w_i y_ij)
//               w_i the same without y
//
// Conservation: what one end of an edge adds the other subtracts, bit for bit: a round changes the
//   sum of all x, and of all w, by rounding alone.
// Ranks may skip exchanges (tau > 0): a skipped one is no round. The rounds of an edge are folded
//   in their order, so every difference meets the replica that it was taken from. Symmetric: a rank
//   that has pushed its last round moves no more, nor does any peer towards it, but the replicas
//   that it keeps follow the later differences: a longer run continues with the same bits at both
//   ends.
// Memory: a replica of each source, and one of this rank; where the graph changes from round to
//   round, or peers with push-sum end in different rounds, one of this rank for each destination.
// Deviations: the paper's graph is the same in every round, and one replica y_i serves all
//   neighbours; here each edge may have its own, so that any sequence of graphs works. A peer that
//   is down is left out of the sums: its model is lost with it. With push-sum the paper's replica
//   is of x. A rank whose sources have ended or died gives and gets nothing: its x and w shrink
//   alike, a replica of x lags behind, and x / w leaves the others' for good. z stays where it is.
//   Where all w are 1 both are the same. Such a rank stops giving below w = 1/8, as with running
//   sums: a gradient moves z by gamma / w.
#include <ATen/ATen.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "algorithms/compressors/replicas.hpp"
#include "algorithms/kernels/kernels.hpp"
#include "algorithms/parts/debiased_model.hpp"
#include "algorithms/roles/gossip/difference_inbox.hpp"
#include "algorithms/roles/gossip/mixer.hpp"
#include "algorithms/roles/gossip/round_peers.hpp"

namespace grapevine {
namespace {

class ReplicaMixer final : public Mixer {
 public:
  ReplicaMixer(std::shared_ptr<const SharedParts> parts, MixingRule rule, Rank rank,
               ModelState& model, BufferPool& pool, const ReplicaUse& use)
      : parts_(std::move(parts)),
        directed_(rule != MixingRule::symmetric),
        rank_(rank),
        one_replica_(parts_->plan.graph.peers.values().size() == 1 &&
                     parts_->graph->period(0) == 1 &&
                     (!directed_ || (parts_->began_together() && !use.rounds_differ))),
        model_(model),
        pool_(pool),
        replicas_(parts_->plan.compression, model.x.numel() / use.vectors, model.x.device(),
                  use.vectors),
        inbox_(directed_, use.vectors) {}

  std::vector<Rank> sources(std::int64_t round) const override {
    return directed_ ? parts_->graph->in(round, rank_) : parts_->graph->neighbors(round, rank_);
  }

  // A difference that a dead peer has sent still counts, at both ends of its edge. A peer that
  // takes no part any more gets no weight.
  void push(const Round& round, bool) override {
    pushed_ = {round.number, model_.w, {}};
    const FrozenTensor z = directed_ ? debiased_model(model_) : model_.x;
    std::map<Rank, std::vector<Packed>> packed;  // by replica
    for (const Shares::Link& link : links_of(round.number, rank_)) {
      if (directed_ && !round.peers.expects(link.peer, round.number)) continue;
      const bool lives = round.env.membership().is_alive(link.peer);
      if (!lives && !(has(round.number, link.peer) && !directed_)) continue;
      const Rank key = replica_of(link.peer);
      auto [entry, fresh] = packed.try_emplace(key);
      if (fresh)
        entry->second = replicas_.differences(z.read(), key, model_.epoch, round.env.rng());
      pushed_.to.push_back(link.peer);
      if (!lives) continue;
      send(round, link.peer, entry->second);
    }
  }

  void fold(Env& env, std::int64_t round) override {
    if (pushed_.round >= 0 && pushed_.round <= round) {
      directed_ ? fold_directed(env) : fold_symmetric(env);
      pushed_ = {};
    }
    if (round == kAllRounds) directed_ ? fold_others(env) : follow_others();
  }

  void close(Env& env, const RoundPeers&) override { fold(env, kAllRounds); }

  void take(Envelope envelope) override { inbox_.put(std::move(envelope)); }

  bool has(std::int64_t round, Rank peer) const override { return inbox_.has(round, peer); }

  void fields(Archive& a) override {
    a.count("pushed.round", pushed_.round, -1);
    a.number("pushed.w", pushed_.w);
    a.list("pushed.to", pushed_.to, 0, std::numeric_limits<Rank>::max());
    a.part("replicas", replicas_);
    inbox_.fields(a, [this](const Packed& packed) { return replicas_.check(packed); });
  }

 private:
  void send(const Round& round, Rank to, const std::vector<Packed>& difference) {
    if (directed_) round.env.send(to, round.stamp, Share{round.number, model_.w, {}});
    std::int32_t vector = 0;
    for (const Packed& packed : difference)
      round.env.send(to, round.stamp, PackedChunk{round.number, vector++, rank_, packed});
  }

  // The round whose differences were sent and not folded; round < 0: none.
  struct Pushed {
    std::int64_t round = -1;
    double w = 1;
    std::vector<Rank> to;
  };

  // Of all peers, so that both ends of an edge know the same weight.
  std::vector<Shares::Link> links_of(std::int64_t round, Rank rank) const {
    const auto all = [](Rank) { return true; };
    return directed_ ? parts_->graph->even_shares(round, rank, all).links
                     : parts_->graph->symmetric_shares(round, rank, all).links;
  }
  double step_along(double weight) const {
    return exact_weight(parts_->plan.compression.consensus_step * weight);
  }
  // The mass that a rank of weight w gives along an edge: both its ends know w.
  double given(double weight, double w) const {
    return w < kLeastWeight ? 0 : step_along(weight) * w;
  }
  Rank replica_of(Rank peer) const { return one_replica_ ? -1 : peer; }
  bool pushed_to(Rank peer) const {
    return std::find(pushed_.to.begin(), pushed_.to.end(), peer) != pushed_.to.end();
  }

  // The difference of the replicas is computed first: it has the bits of the other end's, with the
  // opposite sign.
  void fold_symmetric(Env& env) {
    for (const Shares::Link& link : links_of(pushed_.round, rank_)) {
      if (!pushed_to(link.peer) || !take_in(env, link.peer)) continue;
      at::Tensor apart = pool_.take(model_.x);
      kernels::subtract_into(apart, replicas_.of_peer(link.peer),
                             replicas_.own(replica_of(link.peer)));
      move_by(std::move(apart), step_along(link.weight));
    }
  }

  void fold_directed(Env& env) {
    for (const Shares::Link& link : links_of(pushed_.round, rank_)) {
      if (!pushed_to(link.peer)) continue;
      give(replicas_.own(replica_of(link.peer)), -given(link.weight, pushed_.w));
    }
    for (const Rank source : sources(pushed_.round)) fold_source(env, source);
  }

  // An edge counts where both its ends have pushed; with a weight each end's part by itself, also
  // of rounds that this rank has not pushed.
  void fold_others(Env& env) {
    for (const auto& [round, source] : inbox_.keys()) {
      pushed_.round = round;
      fold_source(env, source);
    }
    pushed_ = {};
  }

  // Where only one end of an edge has pushed, neither moves; the replica is that of the other end.
  void follow_others() {
    for (const auto& [round, source] : inbox_.keys())
      replicas_.take_in(source, inbox_.take(round, source)->vectors);
  }

  void fold_source(Env& env, Rank source) {
    const auto weight = take_in(env, source);
    if (!weight) return;
    for (const Shares::Link& link : links_of(pushed_.round, source)) {
      if (link.peer != rank_) continue;
      give(replicas_.of_peer(source), given(link.weight, *weight));
    }
  }

  // (x, w) <- (x, w) + mass * (z, 1).
  void give(const at::Tensor& z, double mass) {
    if (mass == 0) return;
    move_by(pool_.copy_of(z, model_.x), mass);
    model_.w += mass;
  }

  // The peer's difference of the pushed round enters its replica. Returns the weight of its model;
  // none: there is no difference.
  std::optional<double> take_in(Env& env, Rank peer) {
    const auto arrived = inbox_.take(pushed_.round, peer);
    if (!arrived) return std::nullopt;
    replicas_.take_in(peer, arrived->vectors);
    record_applied(env, peer, arrived->stamp, model_, replicas_.bytes(model_.epoch));
    return arrived->w;
  }

  // x <- x + factor * way.
  void move_by(at::Tensor way, double factor) {
    way.mul_(factor);
    update_frozen(model_.x, pool_, [&way](at::Tensor& out, const at::Tensor& x) {
      kernels::fold_into(out, x, way);
    });
    pool_.give(FrozenTensor::freeze(std::move(way)));
  }

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const bool directed_;
  const Rank rank_;
  // All rounds have the same graph, and peers that take no part any more return together: one own
  // replica for all peers.
  const bool one_replica_;
  ModelState& model_;
  BufferPool& pool_;

  Replicas replicas_;
  Pushed pushed_;
  DifferenceInbox inbox_;
};

}  // namespace

std::unique_ptr<Mixer> make_replica_mixer(std::shared_ptr<const SharedParts> parts, MixingRule rule,
                                          Rank rank, ModelState& model, BufferPool& pool,
                                          const ReplicaUse& use) {
  return std::make_unique<ReplicaMixer>(std::move(parts), rule, rank, model, pool, use);
}

}  // namespace grapevine
