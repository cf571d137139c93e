// Level: the ranks of a group exchange among themselves, and the group exchanges with others as one
// rank does.
//
// Papers: hierarchical local SGD: Lin, Stich, Patel, Jaggi, ICLR 2020, section 5; several levels:
//   Castiglia, Das, Patterson: "Multi-Level Local SGD", ICLR 2021.
// Symbols: R ranks of a group, the first of them its head; H gradients of each rank from one
//   exchange of groups to the next, a period; z the model of a group.
//
//   inside:   x_i <- z;  H gradients by the role inside, with the run's optimizer
//             mean = 1/R sum_i x_i, left out where the ranks agree after their exchange
//   outside:  the role of the heads, among groups, asks for a gradient at z and gets z - mean;
//             its rate is 1, so that its step leads to the mean (push-sum: x moves by as much)
//
// Groups may be nested: the role inside may be a level. It must be synchronous, so that the ranks
// of a group end a period with the same exchange. The role outside may be any that plans the steps
// of each rank and drops no gradient: a period has a set number of gradients, which are committed
// inside.
//
// Bytes per rank and period: those of the role inside; 2 (R-1)/R * 4 d for the mean, unless
//   d is short; of the head (R-1) * 4 d for z, and the messages of its role.
// Staleness: that of the role outside, in periods; its events have it in gradients of a rank, its
//   messages carry the number of the period.
// Conservation: the mean of all models changes by the gradients and by what the role outside does:
//   the mean is taken of the x of push-sum, whose weights add up to R.
// Memory: every rank keeps the z of its period, one vector for the mean, unless the ranks agree,
//   and, where they come before its mean is complete, the next z and messages for the role inside;
//   the head has two models, its own and the group's, the state of two roles, the differences that
//   the role outside has not committed, and a vector for the next one.
// Lost ranks: the period is given up. Its gradients enter the mean of all models, which all ranks
//   take, as where the wiring changes; then groups begin anew, each of its ranks that remain:
//
//   head:    x_g + 1/N (x_i - w_i z)  with the weight w_g, of the role outside
//   others:        1/N (x_i - w_i z)  with the weight 0; N ranks have a part of the period
//
//   Ranks whose part the head has had already give nothing but the shares of push-sum that they
//   have of the next period. Nor do those whose last exchange others have completed: these have its
//   result, with the local steps that they have taken since. Where the head is lost, the ranks with
//   the newest z give that, too, with the weight 1 together. Where the heads agree, it is the
//   result of their operation before that period, and counts if no head has a later one.
#pragma once
#include <memory>
#include <optional>
#include <vector>

#include "algorithms/parts/buffer_pool.hpp"
#include "algorithms/role.hpp"
#include "algorithms/roles/levels/group_exchange.hpp"
#include "algorithms/roles/levels/group_head.hpp"
#include "algorithms/roles/levels/level_parts.hpp"
#include "algorithms/roles/levels/nested_role.hpp"
#include "algorithms/roles/messages_of.hpp"

namespace grapevine {

class Level final : public Role, private GroupHead::Group, private NestedRole::Around {
 public:
  // context.rank is one of the run.
  explicit Level(RoleContext context);

  void on_start(Env& env) override;
  void on_gradient(Env& env, Gradient gradient) override;
  void on_message(Env& env, Envelope envelope) override;
  void on_timer(Env& env, TimerId id) override;
  void restart(FrozenTensor z) override;
  FrozenTensor debiased() const override {
    return phase_ == Phase::finished ? model_.x : inside_.role().debiased();
  }
  FrozenTensor numerator() const override;
  void fields(Archive& a) override;
  StateDict measures() const override { return head_ ? head_->measures() : StateDict{}; }
  std::vector<Awaited> waits() const override;

  std::int64_t close(Env& env) override;
  std::vector<std::int64_t> counts() const override;
  void resolve_open(Env& env, const ClosedCounts& counts) override;
  void flush(Env& env) override;
  double mean_weight() const override { return mean_weight_; }
  at::Tensor optimizer_state() const override { return inside_.role().optimizer_state(); }
  void take_over(const at::Tensor& optimizer) override;

 private:
  enum class Phase : std::int64_t { waiting, running, reducing, finished };

  // Of the head.
  bool runs() const override { return phase_ == Phase::running || phase_ == Phase::reducing; }
  void begin(Env& env, std::int64_t period, const FrozenTensor& z) override;
  void end(Env& env) override;
  Step step() const override { return model_.step; }

  // Of the role inside.
  void compute(Env& env, Step step, FrozenTensor z) override;
  void finished(Env&) override { period_over_ = true; }
  TimerId timer_of_run(TimerId id) const override { return 2 * id + 1; }

  void begin_period(Env& env, std::int64_t period, FrozenTensor z);
  void end_period_if_due(Env& env);
  void take_mean(Env& env);
  void on_mean(Env& env, const FrozenTensor& mean);
  void publish_last(Env& env);
  void follow(Env& env, Parameters parameters);
  void on_own_message(Env& env, Envelope envelope);
  void on_outside_message(Env& env, Envelope envelope);

  // A change of members.
  // What the heads that remain agree on.
  struct Agreed {
    std::int64_t operations = 0;  // the most of any head's role
    double share = 1;             // in the mean, of the model of each that has their result
  };
  void begin_with_early_shares(Env& env);
  std::int64_t period_mark() const;
  Agreed agreed_outside(const std::map<Rank, ClosedCounts>& groups) const;
  void resolve_inside(Env& env, const ClosedCounts& group);
  void resolve_period(const ClosedCounts& group, const Agreed& agreed);
  bool is_behind(const std::vector<std::int64_t>& counts) const;
  GroupHead::Given share_inside(Env& env, bool amid_period);
  GroupHead::Given part_of_period(Env& env);
  Stamp stamp() const { return stamp_of(rank_, model_.step, model_.step); }

  // Constant after construction.
  const std::shared_ptr<const SharedParts> parts_;
  const LevelParts& levels_;
  const Rank rank_;
  const LevelGroup& own_group_;
  const LevelTag tag_;
  const bool ranks_agree_;         // at the end of a period, without a mean
  const std::int32_t world_size_;  // ranks of the run
  ModelState& model_;              // of this rank

  GroupExchange group_;  // its means are of the models of a period
  NestedRole inside_;
  std::optional<GroupHead> head_;  // on the first rank of the group
  Phase phase_ = Phase::waiting;
  std::int64_t period_ = 0;
  bool period_over_ = false;              // the role inside asks for a gradient of the next one
  FrozenTensor z_;                        // where the period began; undefined before the first
  std::vector<Envelope> early_messages_;  // for the role inside, from those in the next period
  BufferPool pool_;                       // of models that are averaged

  // While members change.
  std::int64_t operations_ = 0;       // of the role inside,
  std::int64_t most_operations_ = 0;  // and the most of them in the group
  bool has_part_ = false;             // of the newest period, which the head has not had
  bool gives_model_ = false;          // the z of the period, which no head has
  double share_ = 1;                  // in the mean, of that z
  double remaining_ = 1;              // ranks of the group,
  double givers_ = 1;                 // of them those with that z,
  double exact_ = 1;                  // and of these, those that are not behind
  double mean_weight_ = 1;
};

}  // namespace grapevine
