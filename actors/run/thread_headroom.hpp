// Whether this process may start the threads that a run needs.
#pragma once
#include "messages/expected.hpp"

namespace grapevine {

// Starts that many threads at the same time and ends them again: `others` first, then `each` for
// every one of `workers`. An actor whose thread cannot be started would be waited for without end.
// Errors (failed): which worker has no thread left, and why. Limits that others use up afterwards
// are not seen.
Expected<void> check_thread_headroom(int others, int workers, int each);

}  // namespace grapevine
