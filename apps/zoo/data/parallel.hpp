// Fork and join inside one call: no thread outlives it.
#pragma once
#include <cstdint>
#include <functional>

namespace grapevine {

// Calls work(i) once for each i in [0, count), on the calling thread and up to `threads` - 1
// others, in no fixed order; returns when all are done. Rethrows an exception of `work`. REQUIRES:
// work may run on several threads at a time.
void parallel_for(int threads, std::int64_t count, const std::function<void(std::int64_t)>& work);

}  // namespace grapevine
