// WaitTracker: the waits of ranks, from the records of their begin and end.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "messages/trace/trace_record.hpp"

namespace grapevine {

struct TracedWait {
  Rank rank = 0;
  Step step = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
  Rank awaited = -1;      // -1: any
  Rank released_by = -1;  // sender of the message that ended the wait; -1: a timer or a gradient
  std::uint64_t sequence = 0;               // of that message; 0: not recorded
  PayloadKind payload = PayloadKind::none;  // of that message

  std::int64_t duration_ns() const { return end_ns - begin_ns; }
};

// Takes all records of a trace in its order. A wait that lasts over a resumption counts from there:
// the time between the two runs is no wait. That of a rank that is lost lasts until its last
// record.
class WaitTracker {
 public:
  explicit WaitTracker(std::int32_t ranks) : ranks_(static_cast<std::size_t>(ranks)) {}

  // The wait that this record ends.
  std::optional<TracedWait> add(const TraceRecord& record);
  // The wait of a rank that no record ends: the trace is at its end.
  std::optional<TracedWait> cut_off(Rank rank, std::int64_t time_ns);

 private:
  std::optional<TracedWait> on_view(const TraceRecord& record);

  struct OfRank {
    std::optional<TracedWait> open;
    Rank sender = -1;  // of the newest receipt
    std::uint64_t sequence = 0;
    PayloadKind payload = PayloadKind::none;
    std::int64_t last_ns = 0;  // its last record
  };
  std::vector<OfRank> ranks_;
};

}  // namespace grapevine
