// Giving up a wait.
#pragma once
#include <functional>

#include "messages/time.hpp"

namespace grapevine {

// Polled about ten times a second by the thread that waits. Null: never.
using Cancelled = std::function<bool()>;

inline constexpr Duration kCancelPoll = std::chrono::milliseconds(100);

}  // namespace grapevine
