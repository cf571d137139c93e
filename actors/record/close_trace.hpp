// How the owner of a trace closes it.
#pragma once
#include <chrono>
#include <string>
#include <vector>

#include "actors/protocol.hpp"

namespace grapevine {

// The time between a failure and the end of the trace, for records since the last step of each
// rank.
inline constexpr Duration kLastRecordsGrace = std::chrono::milliseconds(200);

// Why a trace is not whole, for a warning: a run is not worth less for it. Empty: it is.
inline std::string trace_problem(const TraceClosed& closed) {
  if (!closed.error.empty()) return "the trace is not whole: " + closed.error;
  if (closed.dropped == 0) return "";
  return "the trace is not whole: " + std::to_string(closed.dropped) +
         " records were left out, which the disk did not take fast enough; use --trace off, or a "
         "faster disk";
}

// The same while the run goes on.
inline std::string trace_problem(const TraceRefused& refused) {
  return "the trace is not whole: " + refused.error + "; what follows is recorded once that works";
}

// The tracer answers with TraceClosed. After a failure the peers first send their remaining
// records, as they do when they are asked for a report.
template <class Self>
void close_trace(Self self, const TracerActor& tracer, const std::vector<PeerActor>& peers,
                 bool failed) {
  if (!failed) return self->send(tracer, CloseTrace{});
  for (const PeerActor& peer : peers) self->send(peer, Collect{false});
  self->delayed_send(tracer, kLastRecordsGrace, CloseTrace{});
}

}  // namespace grapevine
