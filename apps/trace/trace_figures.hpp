// TraceFigures: what a trace says of its whole run.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "apps/trace/log_histogram.hpp"
#include "apps/trace/message_table.hpp"
#include "apps/trace/training_clock.hpp"
#include "apps/trace/wait_tracker.hpp"
#include "messages/trace/trace_record.hpp"

namespace grapevine {

// Staleness of applied updates -> how many; and its figures as summary.json has them.
using StalenessCounts = std::map<std::int64_t, std::int64_t>;
struct StalenessFigures {
  double mean = 0;
  std::int64_t p50 = 0, p99 = 0, max = 0;  // exact, by nearest rank
};
// All 0 where nothing was counted.
StalenessFigures figures_of(const StalenessCounts& counts);

// produced = applied + pending + dropped + destroyed.
struct ContributionFigures {
  std::int64_t produced = 0;
  std::int64_t applied = 0;
  std::int64_t pending = 0;
  std::int64_t dropped = 0;
  std::int64_t destroyed = 0;  // neither applied nor dropped, and their rank is lost

  // Produced, and nothing else yet. Where the beginning of a trace is missing, gradients of it are
  // applied later.
  std::int64_t open() const {
    return std::max<std::int64_t>(0, produced - applied - dropped - destroyed);
  }
};

// The messages of one rank to another.
struct EdgeFigures {
  Rank from = 0, to = 0;
  std::int64_t messages = 0;
  std::uint64_t bytes = 0;
  std::int64_t applied = 0;  // updates that the receiver has applied from them
  double staleness_sum = 0;
  LogHistogram latency_ns;  // from the sending to the receipt
};

struct KindFigures {
  std::int64_t messages = 0;
  std::uint64_t bytes = 0;
};

struct TracedRank {
  std::int64_t steps = 0, messages = 0;
  std::int64_t waited_ns = 0;
  StalenessCounts staleness;
  ContributionFigures contributions;  // pending and destroyed: once all records are there
};

// Takes the records of a trace in its order. Memory: for ranks, links and distinct values, not for
// records.
class TraceFigures {
 public:
  explicit TraceFigures(std::int32_t ranks);

  void add(const TraceRecord& record);

  std::int64_t messages() const;  // handed to a transport
  std::uint64_t bytes() const;
  std::int64_t applied() const;
  // From the first record to the last one, without paused_ns().
  std::int64_t trained_ns() const { return trained_ns_; }
  // Between the run and its resumptions, all together.
  std::int64_t paused_ns() const { return clock_.paused_ns(); }
  StalenessCounts staleness() const;          // of all ranks
  ContributionFigures contributions() const;  // of all ranks
  std::vector<TracedRank> ranks() const;
  std::vector<EdgeFigures> edges() const;  // by sender, then receiver
  // By kind; those that occur.
  std::vector<std::pair<PayloadKind, KindFigures>> kinds() const;
  const std::set<Rank>& lost() const { return lost_; }

 private:
  void add_sent(const TraceRecord& record);
  void add_view(const TraceRecord& record);
  void add_receipt(const TraceRecord& record);
  EdgeFigures& edge(Rank from, Rank to);

  std::vector<TracedRank> ranks_;
  std::unordered_map<std::uint64_t, EdgeFigures> edges_;
  std::array<KindFigures, kLastPayloadKind + 1> kinds_;
  std::set<Rank> lost_;
  MessageTable table_{0};
  WaitTracker waits_;
  TrainingClock clock_;
  std::int64_t trained_ns_ = 0;
};

}  // namespace grapevine
