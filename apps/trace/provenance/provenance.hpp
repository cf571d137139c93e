// Provenance: which gradients entered the model of a rank in one step, and how each came there.
#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "messages/expected.hpp"
#include "messages/trace/trace_record.hpp"

namespace grapevine {

// "RANK:STEP". Errors (bad_input).
struct StepName {
  Rank rank = 0;
  Step step = 0;
};
Expected<StepName> parse_step_name(const std::string& text);

// Times are nanoseconds since the first record; nothing: the trace does not have it.
using TraceTime = std::optional<std::int64_t>;

// A gradient: of its worker's batch of that step.
struct TracedGradient {
  Rank worker = 0;
  Step step = 0;
  Version version = 0;    // of the model that it was computed at
  TraceTime asked_ns;     // its computation was requested
  TraceTime data_ns;      // how long the worker waited for the batch
  TraceTime compute_ns;   // how long it computed
  TraceTime produced_ns;  // the peer had it
};

struct MessageHop {
  Rank from = 0, to = 0;
  std::uint64_t sequence = 0;
  PayloadKind payload = PayloadKind::none;
  std::int64_t operation = -1;  // round, exchange
  Version version = 0;
  std::uint64_t bytes = 0;
  TraceTime sent_ns, received_ns;
  bool of_checkpoint = false;  // it arrived in the resumed run
};

// One collective operation, as one of its members saw it.
struct TracedOperation {
  std::int64_t number = 0;
  std::vector<Rank> members;  // empty: not known
  std::int64_t time_ns = 0;   // its result entered the model
  std::int64_t staleness = 0;
  std::int64_t messages = 0;  // that this rank received for it, and their bytes
  std::uint64_t bytes = 0;
  std::optional<MessageHop> last;  // of them
};

enum class PathKind { own, message, operation };

struct TracedUpdate {
  std::int64_t time_ns = 0;
  Rank at = 0;  // whose model it entered: the rank that was asked for, or its server
  Step at_step = 0;
  TracedGradient gradient;                // the newest in it
  std::optional<std::int64_t> staleness;  // nothing: the rank's own gradient
  std::uint64_t bytes = 0;
  PathKind path = PathKind::own;
  std::vector<MessageHop> hops;  // of a message, in the order of time: a server's pull is the first
  std::size_t operation = 0;     // index among the operations
};

struct Provenance {
  StepName step;
  // The trace has its gradient or its end; without, it was begun or messages arrived in it.
  bool taken = false;
  TraceTime done_ns;
  bool dropped = false;               // the worker gave the gradient of this step up
  std::vector<TracedUpdate> updates;  // by time, worker and step
  std::vector<TracedOperation> operations;
};

// Calls its argument with each record of a trace, from the first.
using TracePass = std::function<void(const std::function<void(const TraceRecord&)>&)>;

// In three passes: which updates there are; how they came; how their gradients were computed.
// Memory: for the updates of one step. `workers`: the ranks after them serve, and the steps of a
// server are the versions of its model. Of a worker with servers, the updates are those of the
// servers with the gradient of its step. Errors (bad_input): the trace has no such rank or step;
// which it has.
Expected<Provenance> find_provenance(StepName step, std::int32_t workers, std::int32_t ranks,
                                     const TracePass& pass);

}  // namespace grapevine
