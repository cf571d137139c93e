// TraceRecord: one event in the message trace of a run, and what the trace says of its process.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "messages/ids.hpp"
#include "messages/payload_kind.hpp"

namespace grapevine {

// Part of the file format: numbers are never given to another kind.
enum class EventKind : std::uint8_t {
  produced = 1,  // the worker returned a gradient, after `duration_ns` of computing
  sent,          // a message was handed to the transport
  received,      // a message reached the peer
  applied,       // an update entered the model of this rank; `staleness` is set
  committed,     // this rank's own contribution counts: it is in the model or common result
  dropped,       // this rank's own contribution was given up
  wait_begin,    // the role waits for a message of `peer` (-1: any)
  wait_end,      // the message (`peer`, `sequence`) ended the wait; peer -1: a timer or a gradient
  step_done,     // the model of this rank finished a step
  contributed,   // a partial sum began; `staleness`: age of the newest own contribution, -1: none
  asked,         // the role asked the worker for the gradient of `step` at `version`
  data_wait,     // the worker had waited `duration_ns` for the batch of `step`
  reduced,       // the result of `operation` is in the model; `members` have contributed to it
  cut,           // the state of this rank for checkpoint `operation` of run `sequence` was taken
  resumed,       // training continues from that checkpoint of that run
  view           // `peer` takes part no more, or this rank itself again; `view`: number of changes
};
inline constexpr std::uint8_t kLastEventKind = static_cast<std::uint8_t>(EventKind::view);

// The kind in words, as in "wait_end".
const char* name_of(EventKind kind);

struct TraceRecord {
  std::int64_t time_ns = 0;  // by the clock of the process, since its zero (TraceHeader)
  EventKind kind = EventKind::applied;
  Rank rank = 0;    // of the event
  Rank peer = -1;   // the other end; -1: none
  Step step = 0;    // of `rank`
  Rank origin = 0;  // of the update or message: the rank of its newest gradient
  Step origin_step = 0;
  Version version = 0;         // the model version that this gradient was computed from
  std::uint64_t sequence = 0;  // with its sender: names a message; 0: none
  std::int64_t staleness = 0;
  std::uint64_t bytes = 0;
  std::int64_t duration_ns = 0;
  PayloadKind payload = PayloadKind::none;
  std::int64_t operation = -1;  // collective, round of gossip or exchange; -1: none
  std::int32_t round = -1;      // inside the operation
  std::int32_t index = -1;      // of the slice, or of the sender among the participants
  std::uint16_t hop = 0;        // ranks that have passed the message on
  std::uint32_t view = 0;       // changes of the membership that this rank has seen
  std::vector<Rank> members;    // increasing
};

// A comparison of two clocks: the coordinator asked `process` at `sent_ns` and had the answer at
// `received_ns`, both by the coordinator's clock; the process read its own as `remote_ns` in
// between.
struct ClockSample {
  std::int32_t process = 0;
  std::int64_t sent_ns = 0;
  std::int64_t remote_ns = 0;
  std::int64_t received_ns = 0;
  // The header's zero_monotonic_ns of the process: one that returns has another. Nothing: in traces
  // of earlier versions.
  std::optional<std::int64_t> zero_ns = std::nullopt;
};

// Settings of the job took the place of others while it ran, at this time of the coordinator's
// clock.
struct SettingsChange {
  std::int64_t time_ns = 0;
  std::map<std::string, std::string> settings;  // by name; those that changed
};
inline bool operator==(const SettingsChange& a, const SettingsChange& b) {
  return a.time_ns == b.time_ns && a.settings == b.settings;
}

// The first thing in each file.
struct TraceHeader {
  std::uint64_t run = 0;  // random: the same in all processes of one run, another one once resumed
  std::int32_t process = 0;
  std::int32_t processes = 1;
  std::vector<Rank> ranks;   // of this process
  std::int32_t workers = 0;  // ranks 0.. train,
  std::int32_t servers = 0;  // those after them serve at the start,
  std::int32_t spare = 0;    // and so many more may, once the wiring changes
  std::string host;          // name of the machine
  std::string boot;          // of the machine: equal ones share a monotonic clock; may be empty
  std::int64_t pid = 0;
  std::int64_t zero_monotonic_ns = 0;  // the zero of the records' times, by the monotonic clock
  std::int64_t zero_realtime_ns = 0;   // and by the real-time clock
  std::int32_t part = 0;     // its --resume and returns before this, that have left a file
  std::int32_t segment = 0;  // of this part, where --trace-limit has begun another file
  std::int64_t sampled = 1;  // only every so many-th step is recorded
  std::string version;       // of the program
  std::map<std::string, std::string> wiring;  // its keys

  // That records may name.
  std::int32_t most_ranks() const { return workers + servers + spare; }
};

}  // namespace grapevine
