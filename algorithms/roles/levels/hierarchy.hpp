// Hierarchy: the ranks of a node act as one, and one of them, the head, exchanges with other nodes.
//
// Papers: Assran et al. 2019, section 5 (32 nodes of 8 GPUs); two-level all-reduce: Goyal et al.
//   2017, section 4.
// Symbols: R ranks per node; rank r is in node r / R and its head where r mod R == 0.
//
//   head:   the role of the wiring, among heads only. When it requests the gradient at z, all
//           ranks of the node receive z; the gradient that it receives is the node's mean.
//   others: x <- z from the head;  gradient at x;  the clock is the head's
//   all:    g = 1/R sum_i g_i by ring all-reduce inside the node
//
// Bytes per rank and step: 2 (R-1)/R * 4 d inside the node, the head (R-1) * 4 d more (nothing is
//   copied inside a process), and the messages of its role.
// Staleness: that of the role; inside a node 0.
// Conservation: that of the role, over heads. A rank that dies stops its node, and with it the run:
//   its contribution is part of every sum.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "algorithms/role.hpp"
#include "algorithms/roles/levels/group_mean.hpp"
#include "algorithms/roles/levels/nested_env.hpp"
#include "algorithms/roles/messages_of.hpp"
#include "algorithms/wiring/role_type.hpp"

namespace grapevine {

class Hierarchy final : public Role {
 public:
  // `ranks`: servers included. REQUIRES: plan.hierarchy divides the others; `model` outlives this.
  Hierarchy(std::shared_ptr<const SharedParts> parts, Rank rank, std::int32_t ranks,
            ModelState& model);
  ~Hierarchy() override;

  void on_start(Env& env) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  void on_timer(Env& env, TimerId id) override;
  void on_peer_down(Env& env, Rank peer) override;
  void on_peer_up(Env& env, Rank peer) override;
  FrozenTensor debiased() const override;
  void fields(Archive& a) override;
  StateDict measures() const override { return is_head() ? role_->measures() : StateDict{}; }

 private:
  enum class Phase : std::int64_t { waiting, computing, reducing, finished };
  class HeadEnv;  // the environment of the head's role: a world of nodes

  bool is_head() const { return role_ != nullptr; }
  void publish(Env& env, Step step, const FrozenTensor& z, bool last);
  void wait_for_head(Env& env);
  void follow(Env& env, Parameters parameters);
  void begin(Step step);
  void on_ring_chunk(Env& env, Chunk chunk);
  void use_if_reduced(Env& env);
  void step_done(Env& env);
  Stamp stamp() const { return stamp_of(rank_, step_, step_); }

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const Rank rank_;
  const std::int32_t workers_;  // all ranks but servers
  const Rank node_;
  const std::vector<Rank> members_;  // of this node, the head first
  const std::vector<Rank> heads_;    // of all nodes, then the servers
  ModelState& model_;

  std::unique_ptr<Role> role_;  // of the head; null elsewhere
  Phase phase_ = Phase::waiting;
  Step step_ = 0;                   // the step of the gradient that is computed or reduced
  Step published_ = -1;             // the newest step whose parameters were sent to the node
  Gradient gradient_;               // of this rank and step, without its tensor
  GroupMean mean_;                  // of the gradients of step_
  std::optional<Parameters> next_;  // the newest that arrived before this rank finished step_
};

}  // namespace grapevine
