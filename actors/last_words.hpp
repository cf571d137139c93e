// How long a failed run waits for the last records of its ranks.
#pragma once
#include <chrono>

#include "messages/time.hpp"

namespace grapevine {

// From a failure to the end of the traces: what ranks have done since their last step comes first.
inline constexpr Duration kLastWords = std::chrono::milliseconds(200);

}  // namespace grapevine
