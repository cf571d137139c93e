// Whether this process may start the threads that a run needs.
#pragma once
#include "messages/expected.hpp"

namespace grapevine {

// Starts that many threads at the same time and ends them again: `others` first, then `each` for
// every one of `workers`. The wait for an actor without its thread would never end.
// Errors (failed): which worker has no thread left, and why. Limits that others use up afterwards
// are not seen.
Expected<void> check_thread_headroom(int others, int workers, int each);

}  // namespace grapevine
