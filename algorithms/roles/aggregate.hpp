// Aggregate: all ranks take the mean of what they came to, and go on from the same replica.
//
// Papers: ring all-reduce: Patarasuk & Yuan, "Bandwidth optimal all-reduce algorithms", JPDC 2009;
//   local SGD: Stich, ICLR 2019; DiLoCo: Douillard et al. 2023, Algorithm 1.
//
//   gradient:    g = 1/P sum_i g_i at the same x;  x <- x - gamma u(g)
//   model:       H times x_i <- x_i - gamma u(g_i);  x = 1/P sum_i x_i
//   difference:  H such steps from the anchor a;  D = 1/P sum_i (a - x_i);  a <- a - D, or by the
//                outer optimizer (Nesterov's momentum) along D;  x_i = a
//
// The last steps of a run are exchanged, too, where H does not divide them.
// Bytes per rank and exchange: 2 (P-1)/P * 4 d + 2 (P-1) headers.  Messages: 2 (P-1).
// Staleness: 0. After an exchange the replicas stay bitwise identical: the ring fixes the order of
// every sum. A rank that dies stops the training: its contribution is part of every sum.
#pragma once
#include <memory>
#include <vector>

#include "algorithms/buffer_pool.hpp"
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
  void take_local_step(Env& env, at::Tensor gradient);
  at::Tensor packed() const;
  void reduce(Env& env, at::Tensor packed);
  void apply(Env& env, at::Tensor mean);
  void step_done(Env& env);
  bool exchanges_now() const;
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
  std::unique_ptr<Optimizer> outer_;  // of differences, where the plan has one
  Phase phase_ = Phase::ready;
  FrozenTensor anchor_;    // differences: x after the last exchange; empty before the first step
  std::int64_t held_ = 0;  // gradients since then, this step's not included
  BufferPool pool_;
  RingAllReduce ring_;     // of the present step: operation == step
  CollectiveInbox early_;  // a neighbour may be one step ahead
};

}  // namespace grapevine
