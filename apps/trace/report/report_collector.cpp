#include "apps/trace/report/report_collector.hpp"

#include <algorithm>

namespace grapevine {

ReportCollector::ReportCollector(std::int32_t ranks)
    : heat_map_(ranks),
      slow_steps_(ranks, kSlowSteps),
      ranks_(static_cast<std::size_t>(ranks)),
      wait_began_ns_(static_cast<std::size_t>(ranks), -1) {}

void ReportCollector::add(const TraceRecord& record) {
  if (record.rank < 0 || static_cast<std::size_t>(record.rank) >= ranks_.size()) return;
  const auto index = static_cast<std::size_t>(record.rank);
  ++records_;
  last_ns_ = std::max(last_ns_, record.time_ns);
  slow_steps_.add(record);
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
    case EventKind::wait_begin:
      if (wait_began_ns_[index] < 0)
        wait_began_ns_[index] = std::max<std::int64_t>(0, record.time_ns);
      break;
    case EventKind::wait_end:
      end_wait(record.rank, record.time_ns);
      break;
    case EventKind::step_done:
      ++rank.steps;
      break;
    default:
      break;
  }
}

void ReportCollector::end_wait(Rank rank, std::int64_t time_ns) {
  std::int64_t& began_ns = wait_began_ns_[static_cast<std::size_t>(rank)];
  if (began_ns >= 0 && time_ns > began_ns) {
    ranks_[static_cast<std::size_t>(rank)].waited_ns += time_ns - began_ns;
    heat_map_.add_wait(rank, began_ns, time_ns);
  }
  began_ns = -1;
}

void ReportCollector::finish() {
  // A rank that the trace leaves waiting is what one looks for in a run that was killed.
  for (std::size_t i = 0; i < ranks_.size(); ++i) end_wait(static_cast<Rank>(i), last_ns_);
  slow_steps_.finish(last_ns_);
}

}  // namespace grapevine
