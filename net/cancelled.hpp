// Giving up a wait.
#pragma once
#include <cstdint>
#include <functional>

#include "messages/time.hpp"

namespace grapevine {

// Polled about ten times a second by the thread that waits. Null: never.
using Cancelled = std::function<bool()>;

inline constexpr Duration kCancelPoll = std::chrono::milliseconds(100);

// Whether the run has lost that process, for one that joins it and is connecting. Polled in the
// same way. Null: no process is lost meanwhile.
using LostMeanwhile = std::function<bool(std::int32_t process)>;

// After which a process that joins gives up where a link of it is broken, and the run does not
// report the loss of that process.
inline constexpr Duration kLossIsReported = std::chrono::seconds(10);

}  // namespace grapevine
