// How whoever owns a trace has it closed.
#pragma once
#include <chrono>
#include <vector>

#include "actors/protocol.hpp"

namespace grapevine {

// From a failure to the end of the trace: for what ranks have done since their last step.
inline constexpr Duration kLastWords = std::chrono::milliseconds(200);

// The tracer answers with TraceClosed. After a failure the peers hand over what they still have,
// which they do where they are asked for a report.
template <class Self>
void close_trace(Self self, const TracerActor& tracer, const std::vector<PeerActor>& peers,
                 bool failed) {
  if (!failed) return self->send(tracer, CloseTrace{});
  for (const PeerActor& peer : peers) self->send(peer, Collect{false});
  self->delayed_send(tracer, kLastWords, CloseTrace{});
}

}  // namespace grapevine
