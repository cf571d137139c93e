// The process of every rank, and the host of every process.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "messages/ids.hpp"

namespace grapevine {

struct Placement {
  std::vector<std::int32_t> process_of;  // by rank, each in 0..processes()-1
  std::vector<std::string> host_of;      // by process; equal names: the same machine
  std::int32_t own_process = 0;

  std::int32_t world_size() const { return static_cast<std::int32_t>(process_of.size()); }
  std::int32_t processes() const { return static_cast<std::int32_t>(host_of.size()); }
  bool is_local(Rank rank) const {
    return process_of[static_cast<std::size_t>(rank)] == own_process;
  }
  // False also for a number that is no rank.
  bool lives_in(Rank rank, std::int32_t process) const {
    return rank >= 0 && rank < world_size() &&
           process_of[static_cast<std::size_t>(rank)] == process;
  }
};

}  // namespace grapevine
