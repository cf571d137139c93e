// RunMembers: the ranks and processes of a run, those of them that are lost, and places that nobody
// has had.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "messages/ids.hpp"

namespace grapevine {

// The workers are the first ranks and lie evenly on the processes; the servers are the last ranks
// and belong to process 0, so that a run needs that one alone. Not thread-safe.
class RunMembers {
 public:
  // REQUIRES: 0 <= servers < ranks.
  explicit RunMembers(std::int32_t ranks = 1, std::int32_t servers = 0)
      : ranks_(ranks), servers_(servers) {}

  // The wiring now has so many servers: the last ranks.
  void set_servers(std::int32_t servers) {
    ranks_ += servers - servers_;
    servers_ = servers;
  }
  // All processes have joined. REQUIRES: processes >= 1.
  void set_processes(std::int32_t processes) { processes_ = processes; }

  std::int32_t ranks() const { return ranks_; }
  std::int32_t servers() const { return servers_; }
  std::int32_t workers() const { return ranks_ - servers_; }
  std::int32_t processes() const { return processes_; }
  std::int32_t process_of(Rank rank) const;

  // Whether the rank, or the process, is lost by this call only.
  bool lose(Rank rank) { return lost_.insert(rank).second; }
  bool lose_process(std::int32_t process) { return lost_processes_.insert(process).second; }
  // Nobody has had the place of the rank yet. It counts as lost, as does its process. REQUIRES: no
  // rank of that process trains, or it is process 0.
  void leave_vacant(Rank rank);
  bool is_vacant(Rank rank) const { return vacant_.count(rank) > 0; }
  // REQUIRES: a process other than the coordinator's.
  bool has_vacant(std::int32_t process) const;
  // A lost process has returned, or one takes a vacant place, with all its ranks, which are
  // returned.
  std::vector<Rank> bring_back(std::int32_t process);
  // A lost rank of a process that lives.
  std::vector<Rank> bring_back_rank(Rank rank) {
    lost_.erase(rank);
    vacant_.erase(rank);
    return {rank};
  }
  // How often the process has returned, or come.
  std::int64_t incarnation(std::int32_t process) const {
    const auto found = incarnations_.find(process);
    return found == incarnations_.end() ? 0 : found->second;
  }

  bool is_lost(Rank rank) const { return lost_.count(rank) > 0; }
  bool is_process_lost(std::int32_t process) const { return lost_processes_.count(process) > 0; }
  const std::set<std::int32_t>& lost_processes() const { return lost_processes_; }
  const std::set<Rank>& lost() const { return lost_; }
  const std::set<Rank>& vacant() const { return vacant_; }
  std::vector<Rank> remaining_ranks_of(std::int32_t process) const;
  std::vector<Rank> remaining_ranks() const;
  std::vector<Rank> remaining_ranks_that_train() const;
  std::vector<Rank> server_ranks() const;
  std::int32_t remaining_workers() const;  // without servers
  // The remaining processes other than the coordinator's.
  std::vector<std::int32_t> remaining_processes() const;

  // `answers`: a map by rank, without lost ranks.
  // Whether all remaining ranks are in it.
  template <class Answers>
  bool all_in(const Answers& answers) const {
    return static_cast<std::int32_t>(answers.size() + lost_.size()) >= ranks_;
  }
  // The remaining ranks that are not in it: "rank 1, 3".
  template <class Answers>
  std::string missing_in(const Answers& answers) const {
    std::string list;
    for (Rank rank = 0; rank < ranks_; ++rank)
      if (answers.count(rank) == 0 && !is_lost(rank))
        list += (list.empty() ? "rank " : ", ") + std::to_string(rank);
    return list;
  }

 private:
  std::int32_t ranks_, servers_;
  std::int32_t processes_ = 1;
  std::set<Rank> lost_, vacant_;  // vacant ones are among the lost ones
  std::set<std::int32_t> lost_processes_;
  std::map<std::int32_t, std::int64_t> incarnations_;  // by process
};

}  // namespace grapevine
