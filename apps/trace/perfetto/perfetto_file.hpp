// PerfettoFile: a timeline as Perfetto's protobuf trace (TrackEvent), for https://ui.perfetto.dev.
#pragma once
#include <memory>
#include <string>

#include "apps/trace/perfetto/timeline_sink.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// Written packet by packet, as one sequence. Perfetto sorts events by time, and those of one time
// by their place in the file. Names that recur are written once and named by numbers from then on.
// Memory: a buffer, and those names. The file appears under its name at finish(). Errors (io): the
// file cannot be made.
Expected<std::unique_ptr<TimelineSink>> make_perfetto_file(const std::string& path);

}  // namespace grapevine
