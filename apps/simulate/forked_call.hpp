// ForkedCalls: functions that run in processes of their own, several at a time.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "messages/expected.hpp"
#include "messages/time.hpp"

namespace grapevine {

// The end of a call: the text that it returned, or the way its process ended.
struct ForkedEnd {
  Expected<std::string> text;
};

// Calls call(i) for each i of 0 .. count - 1, at most `processes` at a time, each in a fork of this
// process: a crash or a hang ends that call alone. `ended` gets the ends in the order in which they
// come, and returns whether further calls are to be started. `timeout`: of each call, real time.
// REQUIRES: this process has one thread.
// Errors (failed): no process can be started.
Expected<void> run_forked(std::int64_t count, std::int64_t processes, Duration timeout,
                          const std::function<std::string(std::int64_t)>& call,
                          const std::function<bool(std::int64_t, const ForkedEnd&)>& ended);

}  // namespace grapevine
