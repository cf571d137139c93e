#include "actors/run/supervision/run_members.hpp"

#include <algorithm>
#include <numeric>

namespace grapevine {

std::int32_t RunMembers::process_of(Rank rank) const {
  if (rank >= workers()) return 0;
  return std::min(rank / std::max(1, workers() / processes_), processes_ - 1);
}

void RunMembers::leave_vacant(Rank rank) {
  lost_.insert(rank);
  vacant_.insert(rank);
  if (const std::int32_t process = process_of(rank); process > 0) lost_processes_.insert(process);
}

bool RunMembers::has_vacant(std::int32_t process) const {
  return std::any_of(vacant_.begin(), vacant_.end(),
                     [&](Rank rank) { return process_of(rank) == process; });
}

std::vector<Rank> RunMembers::bring_back(std::int32_t process) {
  lost_processes_.erase(process);
  ++incarnations_[process];
  for (Rank rank = 0; rank < ranks_; ++rank)
    if (process_of(rank) == process) bring_back_rank(rank);
  return remaining_ranks_of(process);
}

std::vector<Rank> RunMembers::remaining_ranks_of(std::int32_t process) const {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < ranks_; ++rank)
    if (process_of(rank) == process && !is_lost(rank)) ranks.push_back(rank);
  return ranks;
}

std::vector<Rank> RunMembers::remaining_ranks() const {
  std::vector<Rank> ranks;
  for (Rank rank = 0; rank < ranks_; ++rank)
    if (!is_lost(rank)) ranks.push_back(rank);
  return ranks;
}

std::vector<Rank> RunMembers::remaining_ranks_that_train() const {
  std::vector<Rank> ranks = remaining_ranks();
  ranks.erase(std::lower_bound(ranks.begin(), ranks.end(), workers()), ranks.end());
  return ranks;
}

std::vector<Rank> RunMembers::server_ranks() const {
  std::vector<Rank> ranks(static_cast<std::size_t>(servers_));
  std::iota(ranks.begin(), ranks.end(), workers());
  return ranks;
}

std::int32_t RunMembers::remaining_workers() const {
  const auto lost =
      std::count_if(lost_.begin(), lost_.end(), [this](Rank rank) { return rank < workers(); });
  return workers() - static_cast<std::int32_t>(lost);
}

std::vector<std::int32_t> RunMembers::remaining_processes() const {
  std::vector<std::int32_t> processes;
  for (std::int32_t process = 1; process < processes_; ++process)
    if (!is_process_lost(process)) processes.push_back(process);
  return processes;
}

}  // namespace grapevine
