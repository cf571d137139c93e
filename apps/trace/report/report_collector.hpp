// ReportCollector: what the page of a run shows of its trace, gathered in one pass.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "apps/trace/report/heat_map.hpp"
#include "apps/trace/report/slow_steps.hpp"
#include "apps/trace/training_clock.hpp"
#include "apps/trace/wait_tracker.hpp"
#include "messages/trace/trace_record.hpp"

namespace grapevine {

// Sums of one rank.
struct RankTimes {
  std::uint64_t steps = 0;    // finished ones, of those that are in the trace
  std::uint64_t applied = 0;  // updates
  double staleness = 0;       // sum over them
  std::int64_t computed_ns = 0;
  std::int64_t waited_ns = 0;       // for messages
  std::int64_t data_waited_ns = 0;  // for batches
};

// About 10 KB of memory for each of the first 256 ranks and 3 KB for each rank, whatever the length
// of the run. Not thread-safe.
class ReportCollector {
 public:
  static constexpr std::size_t kSlowSteps = 16;

  // `ranks`: workers and servers. REQUIRES: ranks > 0.
  explicit ReportCollector(std::int32_t ranks);

  // In the order of MergedTrace: that of the times. All times here are those of training: without
  // the pauses between a run and its resumptions.
  void add(const TraceRecord& record);
  // REQUIRES: no add() after it.
  void finish();

  std::uint64_t records() const { return records_; }
  std::int64_t last_ns() const { return last_ns_; }
  const TrainingClock& clock() const { return clock_; }
  const std::vector<RankTimes>& ranks() const { return ranks_; }
  const HeatMap& heat_map() const { return heat_map_; }
  const std::vector<StepLane>& slowest_steps() const { return slow_steps_.slowest(); }

 private:
  bool has(Rank rank) const;
  void add_wait(const std::optional<TracedWait>& wait);

  TrainingClock clock_;
  HeatMap heat_map_;
  SlowSteps slow_steps_;
  std::vector<RankTimes> ranks_;
  WaitTracker waits_;
  std::uint64_t records_ = 0;
  std::int64_t last_ns_ = 0;
};

}  // namespace grapevine
