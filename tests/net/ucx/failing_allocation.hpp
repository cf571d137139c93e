// Memory that runs out where UCX calls this program back, or where a message is sent.
#pragma once
#include <atomic>
#include <cstddef>

namespace grapevine {

// The allocation of that number from here on, counted inside UCX alone, throws; 0: none does.
extern std::atomic<int> failing_allocation;
// The next allocation of exactly so many bytes, anywhere, throws, and this is 0 again; 0: none
// does.
extern std::atomic<std::size_t> failing_size;

}  // namespace grapevine
