#include "actors/run/supervision/checkpoint_rounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "actors/run/whole_epochs.hpp"

namespace grapevine {
namespace {

// A checkpoint is as far as its slowest worker.
std::string step_name(const std::map<Rank, RankSnapshot>& snapshots, std::int32_t workers) {
  Step slowest = std::numeric_limits<Step>::max();
  for (const auto& [rank, snapshot] : snapshots)
    if (rank < workers) slowest = std::min(slowest, snapshot.step);
  return fmt::format("step-{:08d}", slowest);
}

// Whether a multiple of `every` that is a whole number of epochs is behind `epochs`, after the
// first `done` multiples. The number of epochs then names the checkpoint.
bool ends_epoch(double every, std::int64_t done, double epochs) {
  constexpr double kRounding = 1e-9;
  for (std::int64_t whole = whole_epochs(epochs); whole > 0; --whole) {
    const auto epoch = static_cast<double>(whole);
    const double multiple = std::round(epoch / every);
    if (multiple <= static_cast<double>(done)) return false;
    if (std::abs(multiple * every - epoch) <= kRounding * epoch) return true;
  }
  return false;
}

}  // namespace

CheckpointRounds::CheckpointRounds(const CheckpointPlan& plan) : plan_(plan) {
  if (plan_.every_epochs > 0) done_ = whole_epochs(plan_.resumed_least / plan_.every_epochs);
}

void CheckpointRounds::disable() {
  plan_.enabled = false;
  postponed_.reset();
  cancel();
}

void CheckpointRounds::cancel() {
  final_lost_ = final_lost_ || (cutting_ && final_begun_);
  cutting_ = false;
  snapshots_.clear();
}

void CheckpointRounds::interrupt() {
  if (cutting_) postponed_ = name_;
  cancel();
}

std::optional<std::string> CheckpointRounds::due(double epochs) {
  if (!may_be_due()) return std::nullopt;
  const std::int64_t multiples = whole_epochs(epochs / plan_.every_epochs);
  if (multiples <= done_ || whole_epochs(epochs) >= plan_.total_epochs) return std::nullopt;
  const std::int64_t before = std::exchange(done_, multiples);
  if (!ends_epoch(plan_.every_epochs, before, epochs)) return "";
  return fmt::format("epoch-{:04d}", whole_epochs(epochs));
}

std::int64_t CheckpointRounds::begin(std::string name, Timestamp now) {
  cutting_ = true;
  final_lost_ = false;
  name_ = std::move(name);
  begun_ = news_ = now;
  snapshots_.clear();
  return ++id_;
}

std::int64_t CheckpointRounds::begin_final(std::string name, Timestamp now) {
  final_begun_ = true;
  return begin(std::move(name), now);
}

std::optional<WriteCheckpoint> CheckpointRounds::add(RankSnapshot& snapshot,
                                                     const RunMembers& members, Timestamp now) {
  if (!awaits(snapshot.id)) return std::nullopt;
  news_ = now;
  const Rank rank = snapshot.rank;
  snapshots_.emplace(rank, std::move(snapshot));
  if (!members.all_in(snapshots_)) return std::nullopt;
  cutting_ = false;
  longest_cut_ = std::max(now - begun_, longest_cut_.value_or(Duration::zero()));
  writing_ = true;
  if (name_.empty()) name_ = step_name(snapshots_, members.workers());
  WriteCheckpoint write{id_, name_, {}, {members.lost().begin(), members.lost().end()}, {}};
  for (auto& [by, one] : std::exchange(snapshots_, {})) write.ranks.push_back(std::move(one));
  return write;
}

}  // namespace grapevine
