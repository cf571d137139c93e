// Time as an argument: nothing in algorithms/ or actors/ reads a clock itself.
#pragma once
#include <chrono>

namespace grapevine {

using Duration = std::chrono::nanoseconds;
using Timestamp = std::chrono::nanoseconds;  // since the start of the run

inline double to_seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

// REQUIRES: |seconds| < 2^63 ns (292 years).
inline Duration from_seconds(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

}  // namespace grapevine
