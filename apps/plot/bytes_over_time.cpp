#include "apps/plot/bytes_over_time.hpp"

#include <cstdint>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "apps/trace/training_clock.hpp"
#include "messages/time.hpp"
#include "messages/trace/merged_trace.hpp"

namespace grapevine {
namespace {

constexpr std::int64_t kResolutionNs = 10'000'000;  // between two points

}  // namespace

Expected<BytesOverTime> bytes_over_time(const std::filesystem::path& run_folder) {
  std::error_code none;
  if (!std::filesystem::is_directory(run_folder / "trace", none))
    return bad_input(run_folder.string() +
                     ": has no trace; use --x time, or repeat the run with --trace on");
  auto trace = MergedTrace::open(run_folder.string());
  if (!trace) return trace.error();
  if (trace->sampled() > 1)
    return bad_input(fmt::format(
        "{}: its trace has only every {}th step (--trace-sample): use --x time, or repeat the run "
        "without --trace-sample",
        run_folder.string(), trace->sampled()));
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
  return BytesOverTime{std::move(points), trace->missing()};
}

}  // namespace grapevine
