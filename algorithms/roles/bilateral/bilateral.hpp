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
//   compressed:            s and x are the replicas that the pair keeps (replicas.hpp);
//                          request and answer carry differences, which the replicas follow;
//                          h = eta (s - x_passive)/2, eta the consensus step, on both ends alike
//
// With pack = difference a rank takes an outer step along the way from its anchor to x after each H
//   steps (LocalUpdate::step_to_mixed), before it asks.
// Bytes per exchange: two models, or compressed differences, one each way. Messages: 2; compressed
//   4, two of them with counts only.
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
#include <map>
#include <optional>
#include <vector>

#include "algorithms/compressors/replicas.hpp"
#include "algorithms/roles/bilateral/step_counts.hpp"
#include "algorithms/roles/training_role.hpp"

namespace grapevine {

// By rank (or node): whether it asks, or answers.
struct BilateralSides final : RoleData {
  std::vector<bool> active;
};

const RoleType& bilateral_role();

class Bilateral final : public TrainingRole {
 public:
  // REQUIRES: context.parts->graph.
  explicit Bilateral(RoleContext context);

  void on_start(Env& env) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  void fields(Archive& a) override;

  std::int64_t close(Env& env) override;
  std::vector<std::int64_t> counts() const override { return {steps_.total(), of_lost_}; }
  void own_fields(Archive& a) override;
  void joiner_fields(Archive& a) override;
  void take_over(const at::Tensor& optimizer) override;

 private:
  void next_step(Env& env);
  void start_exchange(Env& env);
  std::optional<Rank> next_partner();
  void on_swap(Env& env, const Envelope& envelope, const Swap& swap);
  void on_difference(Env& env, const Envelope& envelope, const PackedChunk& chunk);
  void send_difference(Env& env, Rank to, std::int64_t exchange, bool reply);
  void move_along(const FrozenTensor& half, bool towards);
  void record_average(Env& env, const Envelope& envelope) const;
  void send_progress_update(Env& env) const;
  void exchange_over(Rank passive, std::int64_t exchange);

  bool compressed() const { return replicas_.has_value(); }
  void learn(const FrozenTensor& counts);
  void update_clock();
  // Of the present members together.
  std::int64_t goal() const {
    return (parts_->horizon.steps - parts_->horizon.first_step) * ranks_;
  }
  Stamp stamp() const override { return stamp_of(rank_, model_.step - 1, model_.step); }

  const bool is_active_;  // it asks; else it answers

  Step first_step_ = 0;        // of this rank among the present members
  StepCounts steps_;           // gradients of each rank since then, as far as known here
  std::int64_t of_lost_ = 0;   // of these, of ranks that had ended at close()
  std::int64_t exchange_ = 0;  // the next one that this rank starts
  Rank asked_ = -1;            // the partner whose answer is outstanding; -1: none
  std::int64_t round_ = 0;     // of the graph, the next to take partners from
  std::deque<Rank> partners_;  // left of the present round
  std::optional<Replicas> replicas_;
};

}  // namespace grapevine
