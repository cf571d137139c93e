// Aggregate: all ranks take the mean of their results, and continue from the same model.
//
// Papers: ring all-reduce: Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009.
//   Compressed: Top-k, gTop-k: Shi et al., IJCAI and ICDCS 2019; momentum correction, masking,
//   warm-up of the density, local clipping: Lin et al., "Deep Gradient Compression", ICLR 2018.
//   Local SGD: Stich, ICLR 2019; DiLoCo: Douillard et al. 2023, Algorithm 1.
//
//   gradient:    g = 1/P reduce(g_1 ... g_P) at the same x;  x <- x - gamma u(g)
//   model:       H times x_i <- x_i - gamma u(g_i);  x = 1/P reduce(x_1 ... x_P)
//   difference:  H such steps from the anchor a;  D = 1/P reduce(a - x_1 ... a - x_P);  a <- a - D,
//                or by the outer optimizer (Nesterov's momentum) along D;  x_i = a
//
//   reduce: the sum by ring all-reduce, or, compressed: e_i <- e_i + g_i; the sum, or the largest
//   entries of the sum, of all C(e_i); the rest stays in the e_i.
//
// The last steps of a run are exchanged, too, where H does not divide them.
// Bytes per rank and exchange: ring 2 (P-1)/P * 4 d in 2 (P-1) messages; compressed: see the
//   collective in algorithms/collectives, e.g. 8 k log2 P for gTop-k; a header for each message.
// Staleness: 0; values in a residual enter later, and are not counted as staleness.
// After an exchange the replicas stay bitwise identical: every sum has a fixed order.
// A rank that dies stops the training: its contribution is part of every sum.
// Deviations: those of the collectives; clipping ignores layers.
#pragma once
#include <memory>
#include <vector>

#include "algorithms/collectives/reduction.hpp"
#include "algorithms/parts/buffer_pool.hpp"
#include "algorithms/role.hpp"
#include "algorithms/wiring/role_type.hpp"

namespace grapevine {

const RoleType& aggregate_role();

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
  void reduce(Env& env, at::Tensor packed);
  void step_done(Env& env);
  void send(Env& env, std::vector<OutgoingMessage> messages);
  void apply_if_reduced(Env& env);
  Stamp stamp() const;

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const Rank rank_;
  const std::int32_t ranks_;
  ModelState& model_;

  LocalUpdate local_;
  Phase phase_ = Phase::ready;
  std::int64_t held_ = 0;  // gradients since then, this step's not included
  BufferPool pool_;
  const std::unique_ptr<Reduction> reduction_;  // operation == step; others may be one ahead
};

}  // namespace grapevine
