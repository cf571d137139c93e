// The tracks of one rank. Each takes the records of its rank in their order.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "apps/trace/perfetto/timeline_track.hpp"
#include "apps/trace/perfetto/trace_survey.hpp"
#include "messages/trace/trace_record.hpp"

namespace grapevine {

// The peer: slices of steps, from one step_done to the next, in them slices of waits, and an
// instant for each other record. A wait that lasts longer than its step is cut in two there.
class PeerTrack {
 public:
  // `steps`: those to come, see TraceSurvey. `sampled`: only every so many-th step has records, and
  // a step then begins with its first record.
  PeerTrack(TimelineTrack track, NumberRuns& steps, bool sampled);
  void add(const TraceRecord& record, FlowRole flow);
  void finish(std::int64_t time_ns) { track_.end_all(time_ns); }
  std::int64_t last_ns() const { return track_.last_ns(); }

 private:
  void begin_step(const TraceRecord& record);
  void begin_wait(const TraceRecord& record);
  void end_wait(std::int64_t time_ns);
  void end_step(const TraceRecord& record);
  void instant(const TraceRecord& record, FlowRole flow);

  TimelineTrack track_;
  NumberRuns& steps_;
  const bool sampled_;
  bool in_step_ = false;
  std::optional<std::int64_t> step_ended_ns_;  // the newest
  std::optional<TraceRecord> wait_;            // that is open
};

// The worker: a slice for each gradient, in it one of the wait for its data.
class WorkerTrack {
 public:
  explicit WorkerTrack(TimelineTrack track);
  // Any record of the rank: `produced` and `data_wait` of one gradient may come in any order.
  void add(const TraceRecord& record);
  void finish(std::int64_t time_ns);

 private:
  struct Gradient {
    TraceRecord record;
    std::int64_t computed_ns = 0, waited_ns = 0;
  };
  bool belongs(const TraceRecord& record) const;
  void take(const TraceRecord& record);
  void flush();
  void give_up(std::int64_t time_ns);

  TimelineTrack track_;
  std::optional<TraceRecord> asked_;  // not answered yet
  std::optional<Gradient> gradient_;  // not written yet
  std::int64_t newest_ns_ = 0;        // of any record of the rank
};

// The exchange: a slice for each operation whose result the model takes, from the first message
// that the rank has sent for it on. Beside the steps, because an exchange may overlap them.
class ExchangeTrack {
 public:
  ExchangeTrack(TimelineTrack track, NumberRuns& operations);
  void add(const TraceRecord& record);
  void finish(std::int64_t time_ns) { track_.end_all(time_ns); }

 private:
  TimelineTrack track_;
  NumberRuns& operations_;
};

}  // namespace grapevine
