// TrainingProgress: how far each rank of a run is.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/protocol/record.hpp"
#include "actors/run/supervision/run_members.hpp"

namespace grapevine {

// From the reports of the ranks' steps, and from their figures. Not thread-safe.
class TrainingProgress {
 public:
  void add(const StepReport& report);
  void add(const RankFigures& figures) { ledgers_[figures.rank] = figures.ledger; }
  // The rank has taken its last step.
  void finish(Rank rank) { finished_.insert(rank); }
  // Ranks that had taken their last step, and are not lost, say so again.
  void continue_all() { finished_ = lost_; }
  // The rank takes no further step; its steps so far remain.
  void lose(Rank rank);
  // A lost rank trains again: what it reports from now on is of its new life. `joins`: it takes a
  // place that was vacant from the start of this run.
  void bring_back(Rank rank, bool joins);
  // Those of the checkpoint that this run continues.
  void add_former(const std::vector<FormerLife>& earlier) { former_lives_ = earlier; }

  bool has_steps() const { return !steps_.empty(); }
  bool all_finished(const RunMembers& members) const {
    return static_cast<std::int32_t>(finished_.size()) == members.ranks();
  }
  // Those that have taken their last step, and lost ones.
  const std::set<Rank>& finished() const { return finished_; }
  // The newest step reported, by rank.
  const std::map<Rank, Step>& steps() const { return steps_; }
  // Samples of the rank's steps.
  std::int64_t samples_of(Rank rank) const;
  // Of the rank's newest figures; empty: none has come.
  Ledger ledger_of(Rank rank) const;
  // How many lost ranks have begun to train again.
  std::int64_t returned() const { return returned_; }
  // How many ranks have taken vacant places.
  std::int64_t joined() const { return joined_; }
  // The former lives of the lost ranks of `members`, of ranks that have returned, of the checkpoint
  // before, and of servers that the present wiring does not have.
  std::vector<FormerLife> former_lives(const RunMembers& members) const;
  // The same without the lost ranks and the servers.
  const std::vector<FormerLife>& ended_lives() const { return former_lives_; }
  // The epochs of the slowest remaining worker. None until each of them has reported a step.
  std::optional<double> slowest_epochs(const RunMembers& members) const;
  // "last steps by rank: 0:7, 1:none", or that there is none.
  std::string last_steps(std::int32_t workers) const;

 private:
  // Whether anything is known of the rank's life, or lives of it before this run.
  bool has_lived(Rank rank) const { return ledgers_.count(rank) + samples_.count(rank) > 0; }

  std::map<Rank, Step> steps_;
  std::map<Rank, double> epochs_;  // done after that step
  std::map<Rank, std::int64_t> samples_;
  std::map<Rank, Ledger> ledgers_;
  std::set<Rank> finished_;  // or lost
  std::set<Rank> lost_;
  std::vector<FormerLife> former_lives_;  // without those that are lost at present
  std::int64_t returned_ = 0, joined_ = 0;
};

}  // namespace grapevine
