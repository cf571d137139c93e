// CommonModel: between two wirings all ranks take the mean of their models.
//
// Symbols: x the model of a rank, w its push-sum weight, 1 in other wirings; a Role::mean_weight(),
//   1 without parameter servers; o the state of its optimizer; P the number of ranks.
//
//   s = sum of (x, a w, 1, o) of all ranks, exact all-reduce
//   x <- s_x / s_w;  w <- 1;  o <- s_o / s_1
//
// Servers give their slices, each in a vector of zeros; they keep them, and o is 0 in place of (1,
// o). A rank that joins gives zeros.
// Every role has put into x what it kept for later exchanges (Role::flush), and nothing is on its
// way: the weighted mean is that of all gradients. Ranks then agree bit for bit, so that any wiring
// may follow.
// Bytes per rank: 2 (P-1)/P * 4 (d + k + 2), k of the optimizer; 2 (P-1) messages.
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
  // Of a rank, of the role before it.
  struct Given {
    double mean_weight = 1;  // Role::mean_weight()
    at::Tensor optimizer;    // Role::optimizer_state(), or undefined
    bool trained = true;     // not so of a rank that joins
  };

  // Among `ranks`, of which the first `training` train and take the mean. model.x is all of [d].
  // `model` outlives this.
  CommonModel(std::int32_t ranks, std::int32_t training, Rank rank, ModelState& model, Given given);

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
  void own_fields(Archive& a) override;

  double mean_weight() const override { return mean_weight_; }
  at::Tensor optimizer_state() const override { return optimizer_; }

 private:
  void finish_if_done(Env& env);
  void take_mean();

  bool takes_mean() const { return rank_ < training_; }

  const Rank rank_;
  const std::int32_t training_;
  ModelState& model_;
  double mean_weight_;
  at::Tensor optimizer_;  // [k]
  bool trained_;
  const std::unique_ptr<Reduction> reduction_;
  bool done_ = false;
};

}  // namespace grapevine
