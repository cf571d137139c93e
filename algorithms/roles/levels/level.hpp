// Level: the ranks of a group exchange among themselves, and the group exchanges with others as one
// rank does.
//
// Papers: hierarchical local SGD: Lin, Stich, Patel, Jaggi: "Don't Use Large Mini-Batches, Use
// Local
//   SGD", ICLR 2020, section 5; several levels: Castiglia, Das, Patterson: "Multi-Level Local SGD",
//   ICLR 2021.
// Symbols: R ranks of a group, the first of them its head; H gradients of each rank from one
//   exchange of groups to the next, a period; z the model of a group.
//
//   inside:   x_i <- z;  H gradients by the role inside, among the R ranks, with the run's
//   optimizer outside:  the role of the heads, among groups; where it asks for a gradient, it
//   receives
//             z - mean, mean = 1/R sum_i x_i, and its rate is 1: its own step leads to the mean
//             (push-sum: x moves by as much, as by any gradient)
//
// Groups may be nested: the role inside may be a level. The role outside may be any; the one inside
// must be synchronous, so that the ranks of a group end a period with the same exchange.
//
// Bytes per rank and period: those of the role inside; 2 (R-1)/R * 4 d for the mean, by ring
//   all-reduce, where ranks differ after an exchange; of the head (R-1) * 4 d for z and the
//   messages of its role.
// Staleness: that of the role outside, in periods; the trace has it in gradients of a rank.
// Conservation: the mean of all models changes by the gradients and by what the role outside does:
//   mean is taken of the x of push-sum, whose weights add up to R.
// Memory: the head has two models, its own and the group's, and the state of two roles.
// A rank that dies stops its group, and with it the run: its model is part of every mean.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "algorithms/role.hpp"
#include "algorithms/roles/levels/group_mean.hpp"
#include "algorithms/roles/levels/nested_env.hpp"
#include "algorithms/wiring/role_type.hpp"

namespace grapevine {

// Messages of a level within its group have a tag: its depth modulo this.
inline constexpr std::int64_t kLevelTags = 16;

struct LevelSettings final : RoleData {
  Plan inside;
  Plan outside;
  std::int64_t depth = 0;  // levels inside
};

// What the levels of a plan share.
struct LevelParts final : RoleData {
  std::shared_ptr<const SharedParts> inside;
  std::shared_ptr<const SharedParts> outside;  // its steps are periods
  ExchangeSteps periods;                       // in gradients of each rank

  LevelParts(std::shared_ptr<const SharedParts> of_inside,
             std::shared_ptr<const SharedParts> of_outside, ExchangeSteps of_level)
      : inside(std::move(of_inside)),
        outside(std::move(of_outside)),
        periods(std::move(of_level)) {}
};

class Level final : public Role {
 public:
  // context.rank is one of the run.
  explicit Level(RoleContext context);
  ~Level() override;

  void on_start(Env& env) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  void on_timer(Env& env, TimerId id) override;
  void on_peer_down(Env& env, Rank peer) override;
  void on_peer_up(Env& env, Rank peer) override;
  void restart(FrozenTensor z) override;
  FrozenTensor debiased() const override;
  FrozenTensor numerator() const override;
  void fields(Archive& a) override;
  StateDict measures() const override;

 private:
  enum class Phase : std::int64_t { waiting, running, reducing, finished };
  class InsideEnv;
  class OutsideEnv;

  bool is_head() const { return outside_ != nullptr; }
  void begin_period(Env& env, std::int64_t period, FrozenTensor z);
  void end_period_if_due(Env& env);
  void take_mean(Env& env);
  void give_difference(Env& env, const FrozenTensor& mean);
  void finish(Env& env);
  void publish_last(Env& env);
  void publish(Env& env, std::int64_t period, const FrozenTensor& z, bool last);
  void follow(Env& env, Parameters parameters);
  void wait_for_head(Env& env);
  void on_own_message(Env& env, Envelope envelope);
  void on_outside_message(Env& env, Envelope envelope);
  void send(Env& env, std::vector<OutgoingChunk> chunks);
  std::int64_t tag(std::int64_t period) const;
  std::int64_t operation() const;  // of the ring of this period
  bool is_own(const Payload& payload) const;
  Stamp stamp() const;

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const LevelParts& levels_;
  const Rank rank_;
  const std::int64_t depth_;            // levels inside this one
  const bool ranks_agree_;              // at the end of a period, without a mean
  const std::vector<Rank> members_;     // of this group, the head first
  const std::vector<Rank> exchangers_;  // the heads of all groups, then the servers
  const std::int32_t world_size_;       // ranks of the run
  ModelState& model_;                   // of this rank

  GroupMean mean_;  // of the models of a period
  std::unique_ptr<Role> inside_;
  ModelState group_;               // of the head: the model of the role outside
  std::unique_ptr<Role> outside_;  // of the head; null elsewhere
  FrozenTensor z_;                 // of the head: where the period began
  Phase phase_ = Phase::waiting;
  std::int64_t period_ = 0;
  bool period_over_ = false;              // the role inside asks for a gradient of the next one
  std::vector<Envelope> early_messages_;  // for the role inside, from those in the next period
  std::optional<Parameters> next_;  // the newest that arrived before this rank ended its period
};

}  // namespace grapevine
