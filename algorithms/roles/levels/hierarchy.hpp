// Hierarchy: the ranks of a node act as one, and one of them, the head, exchanges with other nodes.
//
// Papers: Assran et al. 2019, section 5 (32 nodes of 8 GPUs); two-level all-reduce: Goyal et al.
//   2017, section 4.
// Symbols: R ranks per node; rank r is in node r / R and its head where r mod R == 0.
//
//   head:   the role of the wiring, among heads only. When it requests the gradient at z, all
//           ranks of the node receive z; the gradient that it receives is the node's mean.
//   others: x <- z from the head;  gradient at x;  the clock is the head's
//   all:    g = 1/R sum_i g_i by all-reduce inside the node (exact_reduction.hpp: automatic)
//
// Bytes per rank and step: 2 (R-1)/R * 4 d inside the node unless d is short, the head (R-1) * 4 d
//   more (nothing is copied inside a process), and the messages of its role.
// Staleness: that of the role; inside a node 0.
// Conservation: that of the role, over heads. A gradient counts once the head asks for a later one.
// Lost ranks: a node continues with its other ranks, and its mean is over these; a gradient whose
//   mean the head did not have is computed again. A node that loses its head joins the others anew.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "algorithms/role.hpp"
#include "algorithms/roles/levels/group_exchange.hpp"
#include "algorithms/roles/levels/nested_role.hpp"
#include "algorithms/roles/messages_of.hpp"
#include "algorithms/wiring/nodes.hpp"
#include "algorithms/wiring/role_type.hpp"

namespace grapevine {

class Hierarchy final : public Role, private NestedRole::Around {
 public:
  // `ranks`: with the heads; after the members the plan's servers follow. `rank`: one of them.
  // `model` outlives this.
  Hierarchy(std::shared_ptr<const SharedParts> parts, const TrainingRanks& ranks, Rank rank,
            ModelState& model);

  void on_start(Env& env) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  void on_timer(Env& env, TimerId id) override;
  void on_peer_down(Env& env, Rank peer) override;
  FrozenTensor debiased() const override;
  void fields(Archive& a) override;
  StateDict measures() const override { return head_ ? head_->role().measures() : StateDict{}; }
  std::vector<Awaited> waits() const override;

  std::int64_t close(Env& env) override;
  void take_back(Env& env, std::int64_t operations) override;
  void count_as_done(Env& env) override;
  // Of the head's role. A rank that follows takes from another one what its model has besides.
  void shared_fields(Archive& a) override;
  void own_fields(Archive& a) override;
  void joiner_fields(Archive& a) override;
  void forget(Env& env) override;
  // Only heads have a model and an optimizer of their own. REQUIRES of flush(): the heads have
  // asked for a gradient since the last close().
  void flush(Env& env) override;
  double mean_weight() const override { return head_ ? head_->role().mean_weight() : 0; }
  at::Tensor optimizer_state() const override;
  void take_over(const at::Tensor& optimizer) override;

 private:
  enum class Phase : std::int64_t { waiting, computing, reducing, finished };

  // Of the head's role: compute() and finished() concern the whole node.
  void compute(Env& env, Step step, FrozenTensor z) override;
  void finished(Env& env) override;

  void publish_last(Env& env);
  void resolve_given(Env& env, Step next);
  void give_up_mean(Env& env);
  void follow(Env& env, Parameters parameters);
  void use_if_reduced(Env& env);
  void step_done(Env& env);
  Stamp stamp() const { return stamp_of(rank_, step_, step_); }

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const Rank rank_;
  ModelState& model_;

  GroupExchange node_;              // its means are of the gradients of step_
  std::optional<NestedRole> head_;  // among the heads of all nodes, then the servers
  Phase phase_ = Phase::waiting;
  Step step_ = 0;        // the step of the gradient that is computed or reduced
  Step published_ = -1;  // the newest step whose parameters were sent to the node
  Gradient gradient_;    // of this rank and step, without its tensor
  Step given_ = -1;      // the step of this rank's gradient that the head may have used
};

}  // namespace grapevine
