// Timeline: the records of a run as processes, tracks, slices, flows and counters.
#pragma once
#include <cstdint>
#include <vector>

#include "apps/trace/perfetto/rank_tracks.hpp"
#include "apps/trace/perfetto/timeline_sink.hpp"
#include "apps/trace/perfetto/trace_survey.hpp"
#include "messages/trace/merged_trace.hpp"

namespace grapevine {

// Memory: the same for any number of records, but that of the survey. Not thread-safe.
class Timeline {
 public:
  // `survey` has learnt all records; it and `sink` outlive this object, `trace` need not.
  Timeline(const MergedTrace& trace, TraceSurvey& survey, TimelineSink& sink);

  // All records again, in the same order.
  void add(const TraceRecord& record);
  // What has no end in the trace lasts to its newest record. Nothing may follow.
  void finish();

 private:
  struct RankTimeline {
    PeerTrack peer;
    WorkerTrack worker;
    ExchangeTrack exchange;
    TimelineTrack staleness, bytes_sent, in_flight;
    std::int64_t sent = 0;      // bytes
    std::int64_t incoming = 0;  // messages sent to this rank that it has not received
  };
  void describe_processes(const MergedTrace& trace);
  void add_rank(const MergedTrace& trace, Rank rank);
  void add_process_events(const MergedTrace& trace);
  void count(const TraceRecord& record, FlowRole flow);
  RankTimeline& of(Rank rank) { return ranks_[static_cast<std::size_t>(rank)]; }

  TraceSurvey& survey_;
  TimelineSink& sink_;
  std::vector<RankTimeline> ranks_;
  std::int64_t last_ns_ = 0;  // of the newest record
};

}  // namespace grapevine
