// TraceCsv: updates, waits and edges of a trace as tables for other programs.
#pragma once
#include <memory>
#include <string>

#include "actors/record/files.hpp"
#include "apps/trace/message_table.hpp"
#include "apps/trace/trace_figures.hpp"
#include "apps/trace/wait_tracker.hpp"

namespace grapevine {

// The header rows.
inline constexpr char kAppliedColumns[] =
    "time_s,rank,step,from,origin,origin_step,version,staleness,bytes,path,latency_s\n";
inline constexpr char kWaitColumns[] =
    "rank,step,begin_s,end_s,seconds,awaited,released_by,message\n";
inline constexpr char kEdgeColumns[] =
    "from,to,messages,bytes,mean_staleness,p50_latency_s,p99_latency_s\n";

// Three files, each with a header row. A cell is empty where the trace does not have it. Times are
// seconds since the first record, by the common clock.
//   applied.csv  time_s,rank,step,from,origin,origin_step,version,staleness,bytes,path,latency_s
//     A row for each update that a rank applied. from: the rank that sent it. origin, origin_step:
//     the newest gradient in it; version: of the model at which this gradient was computed. path:
//     the kind of the message, or "collective". latency_s: of that message, from sending to
//     receipt; none where it is of a checkpoint.
//   waits.csv    rank,step,begin_s,end_s,seconds,awaited,released_by,message
//     awaited: the rank whose message was waited for; empty: any. released_by, message: the sender
//     and the kind of the message that ended the wait; empty: a timer or a gradient.
//   edges.csv    from,to,messages,bytes,mean_staleness,p50_latency_s,p99_latency_s
class TraceCsv {
 public:
  // Makes the folder. Errors (bad_input, io) name the file.
  static Expected<TraceCsv> create(const std::string& folder, std::int32_t ranks);

  // In the order of the trace.
  void add(const TraceRecord& record);
  // The files appear under their names. Nothing may follow. Errors (io): a write failed.
  Expected<void> commit();

 private:
  TraceCsv(AtomicFile applied, AtomicFile waits, AtomicFile edges, std::int32_t ranks);
  void add_applied(const TraceRecord& record);
  void add_wait(const TracedWait& wait);
  void write_edges();

  AtomicFile applied_, waits_, edges_;
  // Updates may be applied long after their receipt.
  MessageTable messages_{256};
  WaitTracker tracker_;
  TraceFigures figures_;
};

}  // namespace grapevine
