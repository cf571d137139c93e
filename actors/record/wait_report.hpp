// WaitReport: what one rank does and waits for at the moment.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "algorithms/awaited.hpp"
#include "messages/ids.hpp"

namespace grapevine {

// What the worker of a rank does.
enum class WorkerActivity : std::uint8_t {
  idle,       // no gradient is asked for
  computing,  // one is
  reading,    // its batch has not arrived
  delayed     // it is computed, and held back by an injected delay
};
inline constexpr auto kLastWorkerActivity = static_cast<std::uint8_t>(WorkerActivity::delayed);

// Set by a worker, read by its Peer. Thread-safe.
using SharedWorkerActivity = std::atomic<WorkerActivity>;

// Lengths of time are by the clock of the rank's process, in ns.
struct WaitReport {
  std::int64_t question = 0;  // that it answers
  Rank rank = 0;
  Step step = 0;  // gradients of this rank in its model
  WorkerActivity worker = WorkerActivity::idle;
  Step computing = 0;              // the step of the gradient that was asked for
  std::int64_t computing_ns = -1;  // since then; -1: none was
  std::int64_t waiting_ns = -1;    // since the rank waits for `waits`; -1: not known, or for none
  // Messages without which the rank does not continue. With `view`, where it joins: the next part
  // of the state that another rank gives to it, and `waiting_ns` is since the part before.
  std::vector<Awaited> waits;
  std::int64_t view = 0;             // of the members that it helps to change; 0: none
  bool holds_messages_back = false;  // by an injected stall of messages
  std::int64_t queued_bytes = 0;     // of its process: Transport::queued_bytes()
};

}  // namespace grapevine
