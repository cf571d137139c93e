// Aggregate: all ranks sum their gradients and take the same optimizer step on identical replicas.
//
// Papers: ring all-reduce: Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
//   Compressed: Top-k, gTop-k: Shi et al., IJCAI and ICDCS 2019; momentum correction, masking,
//   warm-up of the density, local clipping: Lin et al., "Deep Gradient Compression", ICLR 2018.
//
//   step k:  g_i = gradient of batch (i, k) at x;  g = 1/P reduce(g_1 ... g_P);
//            x <- x - gamma u(g)
//
//   reduce: the sum by ring all-reduce, or, compressed: e_i <- e_i + g_i; the sum, or the largest
//   entries of the sum, of all C(e_i); what did not get into it stays in the e_i.
//
// Bytes per rank and step: ring 2 (P-1)/P * 4 d in 2 (P-1) messages; compressed: see the collective
//   in algorithms/collectives, e.g. 8 k log2 P for gTop-k, and a header for each message.
// Staleness: 0; what a residual holds back enters later, and is not counted as staleness.
// The replicas stay bitwise identical: every sum has a fixed order.
// A rank that dies stops the training: its contribution is part of every sum.
// Deviations: those of the collectives; clipping knows no layers.
#pragma once
#include <memory>
#include <vector>

#include "algorithms/collectives/reduction.hpp"
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
  void send(Env& env, std::vector<OutgoingPayload> messages);
  void apply_if_reduced(Env& env);
  Stamp stamp() const;

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const Rank rank_;
  const std::int32_t ranks_;
  ModelState& model_;

  std::unique_ptr<Optimizer> optimizer_;
  Phase phase_ = Phase::ready;
  const std::unique_ptr<Reduction> reduction_;  // operation == step; others may be one ahead
};

}  // namespace grapevine
