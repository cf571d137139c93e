// TrainingClock: the time of training in a trace whose run was resumed; and where ranks begin anew.
#pragma once
#include <cstdint>

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
    if (resumed && !was_resumed_) gap_ns_ += record.time_ns - last_ns_;
    was_resumed_ = resumed;
    last_ns_ = record.time_ns;
    return record.time_ns - gap_ns_;
  }

 private:
  std::int64_t last_ns_ = 0, gap_ns_ = 0;
  bool was_resumed_ = false;
};

}  // namespace grapevine
