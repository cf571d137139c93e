// Bilateral: workers never wait; meanwhile pairs of ranks move both models to their mean.
//
// Papers: AD-PSGD: Lian, Zhang, Zhang, Liu: "Asynchronous Decentralized Parallel Stochastic
//   Gradient Descent", ICML 2018, Algorithm 1; atomic pairs on a bipartite graph: section 4.
// Symbols: x model, s the active rank's model when it asked, gamma lr, u the optimizer's direction.
//
//   worker, always:        g = gradient at x (perhaps older by now);  x <- x - gamma u(g)
//   active, after H steps: ask the next partner with s = x, unless an answer is outstanding
//   passive, when asked:   h = (s - x)/2;  x <- x + h;  answer h
//   active, when answered: x <- x - h, that is x + (x_passive - s)/2
//
// Bytes per exchange: two models, one each way. Messages: 2.
// Staleness of an average: by how many of its own steps the receiver is ahead of its partner's
//   model, 0 where it is behind; unbounded in theory, roughly the ratio of speeds in practice.
// Conservation: both ends move by the same h, so the sum of all x, less h in answers on their way,
//   changes only by gradients; updates between request and answer are never overwritten.
// Waits: none for workers. Passive ranks answer at once, also while their workers compute. They
//   never ask, so that no cycle of waits can form: the graph must be bipartite. An active rank
//   takes its next partner only once an exchange is complete.
// Clock: the number of gradients of all ranks. Each rank keeps a count per rank, sends the counts
//   with its messages and takes the larger ones; the learning rate follows the sum, and training
//   ends when it reaches ranks * steps. So fast ranks take over the steps that slow ones leave, and
//   a rank's data counts in proportion to its speed. A rank learns of the end from the next
//   message: the total may exceed ranks * steps by a few gradients per rank.
// Deviations: the paper averages once per gradient and worker; here an active rank starts at most
//   one exchange per own gradient, and a passive one answers as often as it is asked.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "algorithms/parts/buffer_pool.hpp"
#include "algorithms/role.hpp"
#include "algorithms/wiring/role_type.hpp"

namespace grapevine {

// By rank (or node): whether it asks, or answers.
struct BilateralSides final : RoleData {
  std::vector<bool> active;
};

const RoleType& bilateral_role();

class Bilateral final : public Role {
 public:
  // REQUIRES: parts->graph; `model` outlives this.
  Bilateral(std::shared_ptr<const SharedParts> parts, Rank rank, std::int32_t ranks,
            ModelState& model, std::unique_ptr<Optimizer> optimizer);

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
  enum class Phase : std::int64_t { idle, computing, finished };

  void next_step(Env& env);
  void finish(Env& env);
  void start_exchange(Env& env);
  std::optional<Rank> next_partner(const Env& env);
  void answer(Env& env, Rank active, const Stamp& stamp, const Swap& request);
  void take_answer(Env& env, Rank passive, const Stamp& stamp, const Swap& reply);
  void record_average(Env& env, Rank partner, const Stamp& stamp) const;
  void send_progress_update(Env& env) const;

  void learn(const FrozenTensor& steps);
  void update_clock();
  std::int64_t total() const;
  std::int64_t goal() const;
  Stamp stamp() const;

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const Rank rank_;
  const std::int32_t ranks_;
  const bool is_active_;  // it asks; else it answers
  ModelState& model_;

  LocalUpdate local_;
  Phase phase_ = Phase::idle;
  at::Tensor steps_;           // [ranks] int64: gradients of each rank, as far as known here
  std::int64_t exchange_ = 0;  // the next one that this rank starts
  Rank asked_ = -1;            // the partner whose answer is outstanding; -1: none
  std::int64_t round_ = 0;     // of the graph, the next to take partners from
  std::deque<Rank> partners_;  // left of the present round
  BufferPool pool_;
};

}  // namespace grapevine
