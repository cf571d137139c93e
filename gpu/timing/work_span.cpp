#include "gpu/timing/work_span.hpp"

#include <spdlog/spdlog.h>

#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <utility>

#include "gpu/timing/busy_intervals.hpp"
#include "gpu/torch_error.hpp"

namespace grapevine {

// Guarded by its meter's mutex.
struct TimedSpan {
  EventHandle begin;
  EventHandle end;       // null: work is still enqueued
  bool dropped = false;  // there is no end
};

namespace {

// A point in the device's time.
struct TimedPoint {
  EventHandle event;  // reached
  double seconds = 0;
};

// The spans of one stream, which end in the order in which they began.
struct TimedStream {
  std::deque<std::shared_ptr<TimedSpan>> open;
  TimedPoint last;  // no span in `open` begins before it
};

using StreamOfRuntime = std::pair<const DeviceRuntime*, Stream>;

// Of one device. Thread-safe. A span is read by the next call, of any thread, once its events have
// been reached: no call waits for the device.
class WorkMeter {
 public:
  void begin(StreamOfRuntime stream, std::shared_ptr<TimedSpan> span) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!zero_.event) zero_ = latest_ = {span->begin, 0};
    const auto [found, fresh] = streams_.try_emplace(stream);
    if (fresh) found->second.last = latest_;
    found->second.open.push_back(std::move(span));
  }

  // `end` is null where the device has failed.
  void end(TimedSpan& span, EventHandle end) {
    const std::lock_guard<std::mutex> lock(mutex_);
    span.dropped = !end;
    span.end = std::move(end);
    collect();
  }

  std::optional<double> seconds() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!zero_.event) return std::nullopt;
    collect();
    return busy_.total();
  }

 private:
  void collect() {
    if (!zero_.event || !zero_.event->reached()) return;
    for (auto& [key, stream] : streams_) collect(stream);
    // What ends from now on has begun after the last end of its own stream.
    TimedPoint first = latest_;
    for (auto each = streams_.begin(); each != streams_.end();) {
      if (each->second.open.empty()) {
        each = streams_.erase(each);
        continue;
      }
      if (each->second.last.seconds < first.seconds) first = each->second.last;
      ++each;
    }
    busy_.forget_before(first.seconds);
    zero_ = std::move(first);  // near to what follows: CUDA gives differences as floats
  }

  void collect(TimedStream& stream) {
    const auto seconds_at = [this](const EventHandle& event) {
      return zero_.seconds + event->seconds_since(*zero_.event);
    };
    while (!stream.open.empty()) {
      const TimedSpan& span = *stream.open.front();
      if (!span.dropped) {
        if (!span.end || !span.end->reached()) return;
        const double begin = seconds_at(span.begin), end = seconds_at(span.end);
        busy_.add(begin, end);
        if (end > stream.last.seconds) stream.last = {span.end, end};
        if (end > latest_.seconds) latest_ = {span.end, end};
      }
      stream.open.pop_front();
    }
  }

  std::mutex mutex_;
  std::map<StreamOfRuntime, TimedStream> streams_;  // those with open spans
  // From which times are taken: no span in `streams_` begins before it. Time counts from the first
  // begin.
  TimedPoint zero_;
  TimedPoint latest_;  // the last end that has been read
  BusyIntervals busy_;
};

// They live to the end of the process: spans may end on any thread until then.
WorkMeter& meter_of(at::Device device) {
  struct Meters {
    std::mutex mutex;
    std::map<std::pair<at::DeviceType, at::DeviceIndex>, WorkMeter> by_device;
  };
  static Meters* const all = new Meters;
  const std::lock_guard<std::mutex> lock(all->mutex);
  return all->by_device[{device.type(), device.index()}];
}

}  // namespace

WorkSpan::WorkSpan(DeviceRuntime& runtime, Stream stream) : runtime_(runtime), stream_(stream) {
  EventHandle begin = runtime.record_timed(stream);
  if (!begin) return;
  span_ = std::make_shared<TimedSpan>();
  span_->begin = std::move(begin);
  meter_of(runtime.device()).begin({&runtime, stream}, span_);
}

void WorkSpan::end() noexcept {
  const auto span = std::exchange(span_, nullptr);
  if (!span) return;
  EventHandle end;
  try {
    end = runtime_.record_timed(stream_);
  } catch (const std::exception& e) {
    spdlog::debug("{}: the end of a span of work: {}", runtime_.device().str(), one_line(e));
  }
  meter_of(runtime_.device()).end(*span, std::move(end));
}

std::optional<double> worked_seconds(at::Device device) { return meter_of(device).seconds(); }

}  // namespace grapevine
