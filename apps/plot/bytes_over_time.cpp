#include "apps/plot/bytes_over_time.hpp"

#include <cstdint>
#include <system_error>

#include "messages/time.hpp"
#include "messages/trace/merged_trace.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kResolutionNs = 10'000'000;  // between two points

// The time of training: without what lies between a checkpoint and the run that resumed from it.
class TrainingClock {
 public:
  std::int64_t of(const TraceRecord& record) {
    const bool resumed = record.kind == EventKind::resumed;
    if (resumed && !was_resumed_) gap_ns_ += record.time_ns - last_ns_;
    was_resumed_ = resumed;
    last_ns_ = record.time_ns;
    return record.time_ns - gap_ns_;
  }

 private:
  std::int64_t last_ns_ = 0, gap_ns_ = 0;
  bool was_resumed_ = false;
};

}  // namespace

Expected<std::vector<BytesAt>> bytes_over_time(const std::filesystem::path& run_folder) {
  std::error_code none;
  if (!std::filesystem::is_directory(run_folder / "trace", none))
    return bad_input(run_folder.string() +
                     ": has no trace; use --x time, or repeat the run with --trace on");
  auto trace = MergedTrace::open(run_folder.string());
  if (!trace) return trace.error();
  std::vector<BytesAt> points = {{0, 0}};
  TrainingClock clock;
  std::uint64_t bytes = 0;
  std::int64_t shown_ns = 0;
  while (const TraceRecord* record = trace->next()) {
    const std::int64_t now_ns = clock.of(*record);
    if (record->kind != EventKind::sent) continue;
    bytes += record->bytes;
    const BytesAt point{to_seconds(Duration(now_ns)), static_cast<double>(bytes)};
    if (points.size() > 1 && now_ns - shown_ns < kResolutionNs) {
      points.back() = point;
      continue;
    }
    points.push_back(point);
    shown_ns = now_ns;
  }
  return points;
}

}  // namespace grapevine
