// SlowSteps: what the ranks did in the slowest steps of a run.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "messages/ids.hpp"
#include "messages/trace/trace_record.hpp"

namespace grapevine {

// Part of a step. The worker computes and waits for data, the peer beside it waits for messages:
// with overlap they do so at the same time.
struct StepSegment {
  enum class Kind { compute, data, wait };
  Kind kind = Kind::compute;
  std::int64_t begin_ns = 0, end_ns = 0;
  Rank peer = -1;  // whose message ended the wait; -1: not known
};

// A step of one rank: from the end of the step before it to its own. Where the trace lacks the step
// before it (--trace-sample, a resumption) it begins with its first record.
struct StepLane {
  Rank rank = 0;
  Step step = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
  bool finished = true;               // false: the trace ends inside it, or its rank was lost
  std::vector<StepSegment> segments;  // in the order of their ends
  std::uint64_t left_out = 0;         // segments beyond kMostSegments

  std::int64_t duration_ns() const { return end_ns - begin_ns; }
};

// Takes the records of all ranks in the order of their times. Keeps a step of each rank and the
// slowest. Not thread-safe.
class SlowSteps {
 public:
  static constexpr std::size_t kMostSegments = 64;

  // REQUIRES: ranks > 0.
  SlowSteps(std::int32_t ranks, std::size_t keep);

  void add(const TraceRecord& record);
  // The trace ends at this time. Steps that it cuts off count where something happened in them.
  void finish(std::int64_t time_ns);

  const std::vector<StepLane>& slowest() const { return slowest_; }  // the slowest first

 private:
  struct OfRank {
    bool begun = false;          // a record of this rank has come
    std::int64_t first_ns = -1;  // begin of the first thing in this step; -1: nothing yet
    StepLane lane;
    Step last_done = -1, asked = -1;
    bool waits = false;
    std::int64_t wait_began_ns = 0;
    Rank waits_for = -1;
  };
  void add_segment(OfRank& rank, StepSegment segment);
  void begin_again(OfRank& rank, std::int64_t time_ns);
  void end_step(OfRank& rank, std::int64_t time_ns);
  void cut_off(OfRank& rank, std::int64_t time_ns);
  void keep(const StepLane& lane);

  const std::size_t keep_;
  std::vector<OfRank> ranks_;
  std::vector<StepLane> slowest_;
};

}  // namespace grapevine
