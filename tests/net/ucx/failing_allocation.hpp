// Memory that runs out where UCX calls this program back.
#pragma once
#include <atomic>

namespace grapevine {

// The allocation of that number from here on, counted inside UCX alone, throws; 0: none does.
extern std::atomic<int> failing_allocation;

}  // namespace grapevine
