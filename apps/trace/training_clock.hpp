// TrainingClock: the time of training in a trace whose run was resumed; and where ranks begin anew.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "messages/trace/trace_record.hpp"

namespace grapevine {

// The rank of the record takes part again, after its loss.
inline bool is_return(const TraceRecord& record) {
  return record.kind == EventKind::view && record.peer == record.rank;
}

// The rank resumes from a checkpoint, or returns: a step or wait that was open has ended before.
inline bool begins_anew(const TraceRecord& record) {
  return record.kind == EventKind::resumed || is_return(record);
}

// Takes all records of a trace in its order. Without what lies between the last record before a
// resumption and the resumed run.
class TrainingClock {
 public:
  // The time of the record.
  std::int64_t of(const TraceRecord& record) {
    const bool resumed = record.kind == EventKind::resumed;
    // Each rank records it.
    if (resumed && !was_resumed_) {
      gaps_.push_back({last_ns_, record.time_ns});
      paused_ns_ += record.time_ns - last_ns_;
    }
    was_resumed_ = resumed;
    last_ns_ = record.time_ns;
    return record.time_ns - paused_ns_;
  }
  // Of a time, once all records are there.
  std::int64_t at(std::int64_t time_ns) const {
    std::int64_t trained_ns = time_ns;
    for (const Gap& gap : gaps_)
      if (time_ns > gap.begin_ns) trained_ns -= std::min(time_ns, gap.end_ns) - gap.begin_ns;
    return trained_ns;
  }
  // Between the run and its resumptions so far, all together.
  std::int64_t paused_ns() const { return paused_ns_; }

 private:
  struct Gap {
    std::int64_t begin_ns, end_ns;
  };
  std::vector<Gap> gaps_;
  std::int64_t last_ns_ = 0, paused_ns_ = 0;
  bool was_resumed_ = false;
};

}  // namespace grapevine
