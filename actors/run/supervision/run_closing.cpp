#include "actors/run/supervision/run_closing.hpp"

#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

constexpr Duration kCloseTimeout = std::chrono::seconds(10);  // for traces to be written

}  // namespace

void RunClosing::begin(Timestamp now, bool trace, const std::vector<std::int32_t>& processes) {
  since_ = now;
  trace_open_ = trace;
  open_processes_.insert(processes.begin(), processes.end());
}

bool RunClosing::overdue(Timestamp now) const { return now - since_ >= kCloseTimeout; }

std::string RunClosing::unclosed() const {
  std::string open = trace_open_ ? "the trace" : "";
  for (const std::int32_t process : open_processes_)
    open += (open.empty() ? "process " : ", process ") + std::to_string(process);
  return "after " + seconds_text(kCloseTimeout) + " still not closed: " + open +
         "; its last trace records may be missing";
}

}  // namespace grapevine
