// CommonModel: between two wirings all ranks take the mean of their models.
//
// Symbols: x the model of a rank, w its push-sum weight, 1 in other wirings; o the state of its
//   optimizer; P the number of ranks.
//
//   s = sum of (x, w, o) of all ranks, exact all-reduce;  x <- s_x / s_w;  w <- 1;  o <- s_o / P
//
// Every role has put into x what it kept for later exchanges (Role::flush), and nothing is on its
// way: the weighted mean is that of all gradients. Ranks then agree bit for bit, so that any wiring
// may follow.
// Bytes per rank: 2 (P-1)/P * 4 (d + k + 1), k of the optimizer; 2 (P-1) messages.
// Where a rank is lost, the others do it again, or take the model of one that has the mean.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/collectives/reduction.hpp"
#include "algorithms/role.hpp"

namespace grapevine {

// Takes no steps: Env::finished() says that the model is the mean.
class CommonModel final : public Role {
 public:
  // Among `ranks`. `optimizer`: of the role before, or undefined. `model` outlives this.
  CommonModel(std::int32_t ranks, Rank rank, ModelState& model, at::Tensor optimizer);

  void on_start(Env& env) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  FrozenTensor debiased() const override;
  void fields(Archive& a) override;
  std::vector<Awaited> waits() const override;

  std::int64_t close(Env& env) override;
  void take_back(Env& env, std::int64_t operations) override;
  void count_as_done(Env& env) override;
  void shared_fields(Archive& a) override;

  at::Tensor optimizer_state() const override { return optimizer_; }

 private:
  void finish_if_done(Env& env);
  void take_mean();

  const Rank rank_;
  const std::int32_t ranks_;
  ModelState& model_;
  at::Tensor optimizer_;  // [k]
  const std::unique_ptr<Reduction> reduction_;
  bool done_ = false;
};

}  // namespace grapevine
