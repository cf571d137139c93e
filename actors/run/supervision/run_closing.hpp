// RunClosing: the trace and the processes for which the end of a run waits.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "messages/time.hpp"

namespace grapevine {

// Sends nothing. `now`: of the caller's clock. Not thread-safe.
class RunClosing {
 public:
  // `processes`: that are to announce their end.
  void begin(Timestamp now, bool trace, const std::vector<std::int32_t>& processes);
  void close_trace() { trace_open_ = false; }
  // Whether the run waited for that process. An announced end, or a loss.
  bool close_process(std::int32_t process) { return open_processes_.erase(process) > 0; }

  bool done() const { return !trace_open_ && open_processes_.empty(); }
  // Whether answers have been missing for so long that the run ends without them.
  bool overdue(Timestamp now) const;
  // The warning for that.
  std::string unclosed() const;

 private:
  bool trace_open_ = false;
  std::set<std::int32_t> open_processes_;
  Timestamp since_{0};
};

}  // namespace grapevine
