// RunState: the supervisor's part of the status of a run.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "actors/protocol/run.hpp"
#include "actors/run/control/live_settings.hpp"
#include "algorithms/horizon.hpp"

namespace grapevine {

// Its answer to AskRunState (actors/protocol/run.hpp).
struct RunState {
  std::string stage = "joining";
  bool stopping = false;
  std::int64_t view = 1;
  bool changes_members = false;
  std::int32_t workers = 1;
  std::vector<std::int32_t> process_of;  // by rank, servers included
  std::set<Rank> lost, vacant;           // places that nobody has had are among the lost ranks
  std::vector<FormerLife> former;  // of ranks that have returned, and of the checkpoint before
  std::set<Rank> finished;
  std::vector<PeerActor> peers;  // by rank; empty: no rank trains yet
  Horizon horizon;
  std::string checkpoint;  // the newest one written, or empty
  bool writes_checkpoint = false;
  LiveSettings settings;  // that have changed
};

}  // namespace grapevine
