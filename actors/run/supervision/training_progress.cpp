#include "actors/run/supervision/training_progress.hpp"

#include <algorithm>
#include <limits>

namespace grapevine {

void TrainingProgress::add(const StepReport& report) {
  steps_[report.rank] = report.step;
  epochs_[report.rank] = report.epochs_done;
  samples_[report.rank] += report.samples;
}

void TrainingProgress::lose(Rank rank) {
  finished_.insert(rank);
  lost_.insert(rank);
  epochs_.erase(rank);
}

void TrainingProgress::bring_back(Rank rank, bool joins) {
  if (has_lived(rank)) former_lives_.push_back({rank, ledger_of(rank), samples_of(rank)});
  ++(joins ? joined_ : returned_);
  ledgers_.erase(rank);
  samples_.erase(rank);
  finished_.erase(rank);
  lost_.erase(rank);
}

std::vector<FormerLife> TrainingProgress::former_lives(const RunMembers& members) const {
  std::vector<FormerLife> lives = former_lives_;
  for (const Rank rank : members.lost())
    if (has_lived(rank)) lives.push_back({rank, ledger_of(rank), samples_of(rank)});
  for (auto at = ledgers_.lower_bound(members.ranks()); at != ledgers_.end(); ++at)
    lives.push_back({at->first, at->second, 0});
  return lives;
}

// The ledger counts those before the checkpoint, too, and is older.
std::int64_t TrainingProgress::samples_of(Rank rank) const {
  const auto found = samples_.find(rank);
  const std::int64_t reported = found == samples_.end() ? 0 : found->second;
  return std::max(reported, ledger_of(rank).samples);
}

Ledger TrainingProgress::ledger_of(Rank rank) const {
  const auto found = ledgers_.find(rank);
  return found == ledgers_.end() ? Ledger() : found->second;
}

std::optional<double> TrainingProgress::slowest_epochs(const RunMembers& members) const {
  double slowest = std::numeric_limits<double>::infinity();
  for (Rank rank = 0; rank < members.workers(); ++rank) {
    if (members.is_lost(rank)) continue;
    const auto found = epochs_.find(rank);
    if (found == epochs_.end()) return std::nullopt;
    slowest = std::min(slowest, found->second);
  }
  if (slowest == std::numeric_limits<double>::infinity()) return std::nullopt;
  return slowest;
}

std::string TrainingProgress::last_steps(std::int32_t workers) const {
  if (steps_.empty()) return "none has finished a step";
  std::string list = "last steps by rank: ";
  for (Rank rank = 0; rank < workers; ++rank) {
    const auto step = steps_.find(rank);
    list += (rank == 0 ? "" : ", ") + std::to_string(rank) + ":" +
            (step == steps_.end() ? "none" : std::to_string(step->second));
  }
  return list;
}

}  // namespace grapevine
