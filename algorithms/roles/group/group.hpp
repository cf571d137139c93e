// Group: ranks average their models in small groups that change at each exchange.
//
// Paper: WAGMA-SGD: Li, Ben-Nun, Nadiradze, Di Girolamo, Dryden, Alistarh, Hoefler: "Breaking
//   (Global) Barriers in Parallel Stochastic Optimization with Wait-Avoiding Group Averaging", TPDS
//   2021, Algorithm 2.
// Symbols: x the model of a rank, S the size of its group at step t, tau the period.
//
//   step t:  x' = x - gamma u(gradient at x);  post operation t of the group
//            where t + 1 is a multiple of tau:  x <- 1/P sum of all x', all ranks wait
//            where x' is in the sum s:          x <- s / S
//            where the operation began without: x <- (s + x') / (S + 1)
//   With H local steps the average follows every H-th step, and the last; exchanges, not steps, are
//   then numbered, grouped and counted by tau.
//   An operation begins when its trigger fires (activation.hpp), by default when the first rank of
//   its group posts. A rank that has not reached step t contributes its present model at once, and
//   continues.
//   With pack = difference each rank then takes an outer step along the way from its anchor to the
//   average (LocalUpdate::step_to_mixed).
//
// Groups: see GroupSchedule; lines of a grid are Moshpit's (Ryabinin et al. 2021). No rank can be
//   asked for a step beyond the next global average, so at most tau results wait for a rank that is
//   behind.
// Bytes per rank and exchange: 2 (S-1)/S * 4 d, at a global average 2 (P-1)/P * 4 d, or the
//   compressor's bytes for 4; headers; log2 S activations.
// Staleness of a contributed model: own gradients that it lacks, < H tau; 0 for a fresh one.
// The average of all models changes by more than gradients: a late model counts twice. This is
//   the algorithm's own error, bounded by the global averages.
// Where members change, an exchange that is open is one of this rank alone, and so are those that
//   any rank has behind it.
// Compressed models have no residual: groups change, and each average is of models by itself.
// Deviation: the paper's release asks for powers of two; other numbers get drawn groups.
#pragma once
#include <map>
#include <utility>
#include <vector>

#include "algorithms/collectives/partial_all_reduce.hpp"
#include "algorithms/graphs/groups.hpp"
#include "algorithms/parts/recycled_memory.hpp"
#include "algorithms/roles/training_role.hpp"

namespace grapevine {

struct GroupSettings final : RoleData {
  ActivationSettings activation;
  // tau: exchanges from one global average to the next; where it changes, at most both
  CountSchedule staleness = CountSchedule::constant(10);
  std::int32_t group_size = 0;  // at most; 0: about sqrt(P)
  Grouping grouping = Grouping::drawn;
};

struct Groups final : RoleData {
  explicit Groups(GroupSchedule of_ranks) : schedule(of_ranks) {}
  const GroupSchedule schedule;
};

const RoleType& group_role();

class Group final : public TrainingRole {
 public:
  explicit Group(RoleContext context);

  void on_start(Env& env) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  void on_timer(Env& env, TimerId exchange) override;
  void fields(Archive& a) override;

  std::int64_t close(Env& env) override;
  void take_back(Env& env, std::int64_t operations) override;
  void own_fields(Archive& a) override;
  void joiner_fields(Archive& a) override { own_fields(a); }

 private:
  // The average of one exchange, as this rank takes part in it.
  struct Average {
    PartialAllReduce reduce;
    std::vector<Rank> members;  // in the sum
    bool fresh = false;         // this rank's model of that exchange is in the sum
  };

  void begin_step(Env& env);
  void contribute_if_begun(Env& env, std::int64_t exchange);
  void give_grace(Env& env, const PartialAllReduce& reduce) const;
  void step_done(Env& env, bool averaged);
  void count_done(Env& env, bool averaged);
  void apply_if_done(Env& env);
  void mix(Average& average);

  std::vector<Awaited> awaited() const override;
  bool is_global(std::int64_t exchange) const;
  // The one that this rank's next step leads to.
  std::int64_t exchange_now() const { return exchanges().index_of(model_.step); }
  Average& average_of(std::int64_t exchange);

  // Constant after construction.
  const GroupSettings& settings_;
  const GroupSchedule& groups_;
  const std::vector<Rank> everybody_;

  std::map<std::int64_t, Average> averages_;  // of this exchange and later ones
  const RecycledMemory sums_;                 // that are sent, of all averages
  std::int64_t first_ = 0;                    // of the present members together
  Step first_step_ = 0;  // when members changed: the most that one of them had taken
};

}  // namespace grapevine
