// read_records: one pass over a trace.
#pragma once
#include <functional>

#include "apps/console/command.hpp"
#include "messages/trace/merged_trace.hpp"

namespace grapevine {

// Calls `take` with each record of the trace, from the first. Where err is a terminal and the pass
// takes longer than a second, it shows progress there.
void read_records(MergedTrace& trace, Console& console,
                  const std::function<void(const TraceRecord&)>& take);

}  // namespace grapevine
