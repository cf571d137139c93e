#include "apps/trace/trace_scan.hpp"

#include <unistd.h>

#include <chrono>
#include <optional>

#include "apps/console/text/progress_bar.hpp"
#include "apps/console/text/terminal.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kRecordsBetweenLooks = 1 << 16;
constexpr auto kLongScan = std::chrono::seconds(1);

Timestamp scan_time() {
  return std::chrono::duration_cast<Timestamp>(std::chrono::steady_clock::now().time_since_epoch());
}

}  // namespace

void read_records(MergedTrace& trace, Console& console,
                  const std::function<void(const TraceRecord&)>& take) {
  std::optional<ProgressBar> bar;
  const Timestamp begin = scan_time();
  std::int64_t done = 0;
  trace.rewind();
  while (const TraceRecord* record = trace.next()) {
    take(*record);
    if (++done % kRecordsBetweenLooks != 0 || !console.terminal) continue;
    if (!bar && scan_time() - begin > kLongScan)
      bar.emplace(console.err, ProgressOptions{"reading records", &scan_time,
                                               detect_terminal(STDERR_FILENO), RunProgress{}});
    RunProgress progress;
    progress.step = done;
    progress.steps = static_cast<std::int64_t>(trace.records());
    if (bar) bar->update(progress);
  }
}

}  // namespace grapevine
