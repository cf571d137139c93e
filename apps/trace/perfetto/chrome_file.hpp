// ChromeFile: a timeline in Chrome's trace event format (JSON), for chrome://tracing and viewers
// that read no other.
#pragma once
#include <memory>
#include <string>

#include "apps/trace/perfetto/timeline_sink.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// For small runs: viewers hold the whole text. Times are microseconds with three decimals. An arrow
// needs a slice at each end, so an instant is a slice of no length (B, then E). The file appears
// under its name at finish(). Errors (io): the file cannot be made.
Expected<std::unique_ptr<TimelineSink>> make_chrome_file(const std::string& path);

}  // namespace grapevine
