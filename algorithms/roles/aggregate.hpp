// Aggregate: all ranks sum their gradients and take the same optimizer step on identical replicas.
//
// Papers: ring all-reduce: Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
//
//   step k:  g_i = gradient of batch (i, k) at x;  g = 1/P sum_i g_i by ring all-reduce;
//            x <- x - gamma u(g)
//
// Bytes per rank and step: 2 (P-1)/P * 4 d + 2 (P-1) headers.  Messages: 2 (P-1).
// Staleness: 0. The replicas stay bitwise identical: the ring fixes the order of every sum.
// A rank that dies stops the training: its contribution is part of every sum.
#pragma once
#include <memory>
#include <vector>

#include "algorithms/collectives/ring_all_reduce.hpp"
#include "algorithms/registry.hpp"
#include "algorithms/role.hpp"

namespace grapevine {

class Aggregate final : public Role {
 public:
  // REQUIRES: `model` outlives this.
  Aggregate(std::shared_ptr<const SharedParts> parts, Rank rank, std::int32_t ranks,
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
  enum class Phase : std::int64_t { ready, computing, reducing, finished };

  void begin_step(Env& env);
  void reduce(Env& env, at::Tensor gradient);
  void send(Env& env, std::vector<OutgoingChunk> messages);
  void apply_if_reduced(Env& env);
  RingAllReduce ring() const;
  Stamp stamp() const;

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const Rank rank_;
  const std::vector<Rank> ranks_;
  ModelState& model_;

  std::unique_ptr<Optimizer> optimizer_;
  Phase phase_ = Phase::ready;
  RingAllReduce ring_;     // of the present step: operation == step
  CollectiveInbox early_;  // a neighbour may be one step ahead
};

}  // namespace grapevine
