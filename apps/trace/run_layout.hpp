// RunLayout: the ranks of a traced run, and their places.
#pragma once
#include <cstdint>
#include <vector>

#include "messages/trace/merged_trace.hpp"

namespace grapevine {

struct RunLayout {
  std::int32_t workers = 0;                       // ranks 0.. train,
  std::int32_t servers = 0;                       // the ranks after them serve
  std::vector<std::int32_t> process_of, host_of;  // by rank; -1: not known. Hosts have numbers
  std::vector<ProcessPause> pauses;               // by the clock of the records
  std::int64_t sampled = 1;                       // only every so many-th step is recorded
  std::int64_t grace_ns = 0;                      // of a quorum, the longest of the wiring; 0: none

  std::int32_t ranks() const { return workers + servers; }
  bool is_rank(Rank rank) const { return rank >= 0 && rank < ranks(); }
  bool is_server(Rank rank) const { return rank >= workers; }
};

RunLayout layout_of(const MergedTrace& trace);

}  // namespace grapevine
