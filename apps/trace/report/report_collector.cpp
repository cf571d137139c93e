#include "apps/trace/report/report_collector.hpp"

#include <algorithm>

namespace grapevine {

ReportCollector::ReportCollector(std::int32_t ranks)
    : heat_map_(ranks),
      slow_steps_(ranks, kSlowSteps),
      ranks_(static_cast<std::size_t>(ranks)),
      waits_(ranks) {}

bool ReportCollector::has(Rank rank) const {
  return rank >= 0 && static_cast<std::size_t>(rank) < ranks_.size();
}

void ReportCollector::add(const TraceRecord& recorded) {
  if (!has(recorded.rank)) return;
  TraceRecord record = recorded;
  record.time_ns = clock_.of(recorded);
  const auto index = static_cast<std::size_t>(record.rank);
  ++records_;
  last_ns_ = std::max(last_ns_, record.time_ns);
  slow_steps_.add(record);
  add_wait(waits_.add(record));
  RankTimes& rank = ranks_[index];
  switch (record.kind) {
    case EventKind::produced:
      rank.computed_ns += record.duration_ns;
      break;
    case EventKind::data_wait:
      rank.data_waited_ns += record.duration_ns;
      break;
    case EventKind::applied:
      ++rank.applied;
      rank.staleness += static_cast<double>(record.staleness);
      heat_map_.add_applied(record.rank, record.time_ns, record.staleness);
      break;
    case EventKind::step_done:
      ++rank.steps;
      break;
    default:
      break;
  }
}

void ReportCollector::add_wait(const std::optional<TracedWait>& wait) {
  if (!wait) return;
  const std::int64_t begin_ns = std::max<std::int64_t>(0, wait->begin_ns);
  if (wait->end_ns <= begin_ns) return;
  ranks_[static_cast<std::size_t>(wait->rank)].waited_ns += wait->end_ns - begin_ns;
  heat_map_.add_wait(wait->rank, begin_ns, wait->end_ns);
}

void ReportCollector::finish() {
  // A rank that the trace leaves waiting is what one looks for in a run that was killed.
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    add_wait(waits_.cut_off(static_cast<Rank>(i), last_ns_));
  slow_steps_.finish(last_ns_);
}

}  // namespace grapevine
