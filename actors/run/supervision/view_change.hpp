// ViewChange: the steps of a change of members. Decides, and sends nothing.
//
//   hold     no timer reaches a role, and no gradient but, where nobody is lost, the one that its
//            worker computes; messages still do
//   drain    until no message is on its way: all members together have received what they have
//            sent, in two rounds of questions without a message in between (Mattern 1987)
//   close    every role ends what it can (Role::close)
//   install  every role is replaced by one among the members
//
// Ranks that join take part in all steps, and have nothing to send and to close. Servers take part,
// too, and are no members: they serve those.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "actors/protocol/view.hpp"
#include "actors/run/supervision/batch_account.hpp"
#include "algorithms/wiring/nodes.hpp"
#include "algorithms/wiring/plan.hpp"

namespace grapevine {

// Not thread-safe.
class ViewChange {
 public:
  // What RoleType says of the models of the ranks.
  struct Models {
    bool replicates = false;
    bool keeps_mass = false;
    std::int32_t node_size = 1;  // ranks of a node, before any is lost: see NodeChange
    bool plans_each_rank = true;
    bool changes_by_mean = false;
    bool trains = true;

    static Models of(const Plan& plan);
    // Of CommonModel.
    static Models common();
  };
  // ask_again: nothing is on its way, as far as one round can say.
  enum class Next { wait, ask_later, ask_again, close, install };

  ViewChange() = default;
  // `ranks`: of the start, with its servers. `number`, `first_batch`: of their view; 0: the first.
  // `ahead`: of the views before, see BatchesOfLost. `planned`: see BatchAccount.
  explicit ViewChange(TrainingRanks ranks, std::int64_t number = 0, std::int64_t first_batch = 0,
                      std::vector<BatchRun> ahead = {},
                      std::optional<std::int64_t> planned = std::nullopt)
      : number_(number),
        installed_number_(number),
        installed_(std::move(ranks)),
        servers_(installed_.servers),
        first_batch_(first_batch),
        batches_(planned, std::move(ahead), first_batch) {}

  // Begins, or begins anew where a member is lost meanwhile. `servers`: that come, ascending.
  void begin(std::vector<Rank> members, const std::vector<Rank>& servers = {});
  // The servers of the view that was concluded, and the heads of its nodes, where they are others
  // than before.
  void set_servers(std::vector<Rank> servers);
  void set_heads(std::vector<Rank> heads) { installed_.heads = std::move(heads); }
  bool in_progress() const { return stage_ != Stage::none; }
  bool draining() const { return stage_ == Stage::draining; }
  // Of the view to come, else the present one; 0: that of the start.
  std::int64_t number() const { return number_; }
  // Of the view to come, else of the present one, ascending.
  const std::vector<Rank>& members() const { return in_progress() ? members_ : installed_.members; }
  // How many were installed.
  std::int64_t installed() const { return count_; }
  // The ranks of that view, ascending, and the servers of it and of the one before.
  std::vector<Rank> participants() const;

  // Whether a member of the view before is none of the view in progress.
  bool loses_members() const;
  // Whether the rank is a member of the view in progress, and was none of the one before; and all
  // of these, with servers, ascending.
  bool is_arriving(Rank rank) const;
  std::vector<Rank> arriving() const;
  // Whether the rank joins, and is not known to have received its state.
  bool lacks_state(Rank rank) const { return is_arriving(rank) || without_state_.count(rank) > 0; }

  // Answers to earlier questions are ignored.
  std::int64_t begin_round();
  // Rounds of questions in this change.
  std::int64_t rounds() const { return round_ - first_round_; }
  Next add(const Traffic& traffic);
  Next add(const ViewClosed& closed);
  // The participants that have answered nothing yet in this change, or in its stage of closing,
  // ascending.
  std::vector<Rank> unanswered() const;

  // The clock of the server that is furthest on, in epochs, and the servers that have no slice yet,
  // ascending. REQUIRES: Next::install.
  double servers_epoch() const { return servers_epoch_; }
  const std::vector<Rank>& new_servers() const { return new_servers_; }
  // The rank has taken a step in the present view.
  void on_step(Rank rank) { without_state_.erase(rank); }
  // In the view `view` the rank has taken so many batches, as far as it has reported steps; of the
  // present view alone that counts.
  void on_taken(Rank rank, std::int64_t view, std::int64_t batches);
  // Whether a member, none of `but`, has a state that others can take: at Next::install; before, as
  // far as is known. A rank that receives one has it by its first step, or once it has closed.
  bool has_donor(const std::vector<Rank>& but = {}) const;
  // Role::counts() of the members, where a view changes by the mean. REQUIRES: Next::install.
  ClosedCounts closed_counts(const Models& models) const;
  // `horizon`: of the view before; `least_epoch`: that the view begins at; `reported`: the last
  // step of each rank that has reported one. REQUIRES: has_donor().
  InstallView conclude(const Models& models, const Horizon& horizon, double least_epoch = 0,
                       const std::map<Rank, Step>& reported = {});
  // Of the view that was concluded: the epochs behind all of its members together.
  double epochs_done() const { return epochs_done_; }

  // Training has ended in the present view: see BatchAccount.
  void end_training();
  const BatchAccount& batches() const { return batches_at_end_ ? *batches_at_end_ : batches_; }
  // For a checkpoint of the present view, which has no state of the members `lost`; also where
  // training has ended: it may be continued.
  BatchesOfLost batches_of(const std::set<Rank>& lost) const;

 private:
  enum class Stage { none, draining, closing };
  using Closed = std::vector<const ViewClosed*>;  // of closed_, by rank
  // Where a view begins: `step` on a line through (mean_step, epoch).
  struct Clock {
    Step step = 0;
    double mean_step = 0;
    double epoch = 0;
  };
  friend struct ViewFingerprint;  // of a test that visits all states

  bool takes_part(Rank rank) const;
  bool has_state(Rank rank) const;
  std::size_t count_participants() const { return members_.size() + servers_.size(); }
  NodeChange changed_nodes(const Models& models) const;
  Closed add_closed(InstallView& view) const;
  double scale_of(const Closed& exchanging, const Models& models, const NodeChange& nodes) const;
  Closed split_ahead(InstallView& view, const Closed& exchanging, const Models& models) const;
  std::vector<BatchAccount::Share> batch_shares() const;
  Horizon horizon_among(const Horizon& horizon, const Clock& clock) const;
  Clock clock_of(const Closed& ahead, const Models& models, const Horizon& horizon,
                 const std::map<Rank, Step>& reported) const;
  double epoch_of_all(const Closed& ahead, const Horizon& horizon) const;

  Stage stage_ = Stage::none;
  std::int64_t number_ = 0;
  std::int64_t installed_number_ = 0;  // of the view before
  std::int64_t round_ = 0, count_ = 0;
  std::vector<Rank> members_;
  TrainingRanks installed_;    // of the view before
  std::vector<Rank> servers_;  // its servers, and those that come
  double servers_epoch_ = 0;
  std::vector<Rank> new_servers_;  // of those that have closed
  double epochs_done_ = 0;
  std::int64_t first_batch_ = 0;                // of it, at the first step of its horizon
  std::map<Rank, std::int64_t> taken_;          // batches in it, as far as steps were reported
  BatchAccount batches_;                        // of the views before the present one
  std::optional<BatchAccount> batches_at_end_;  // with that one, once training has ended
  std::map<Rank, Traffic> traffic_;             // of this round
  std::set<Rank> answered_;                     // a round of this change
  std::int64_t first_round_ = 0;                // the one before this change
  std::int64_t last_sent_ = -1;                 // in the round before, where it balanced
  std::map<Rank, ViewClosed> closed_;
  std::set<Rank> without_state_;  // of the present view's members, that were to receive one
};

}  // namespace grapevine
