// WorkSpan: how long a device works, by timed events around what its streams get to do.
#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <optional>

#include "gpu/device.hpp"

namespace grapevine {

struct TimedSpan;

// What is enqueued in `stream` of `runtime` while it lives counts as work of the runtime's device:
// from the moment at which the stream reaches the span's begin until it reaches the end, pauses of
// the stream in between included. So a span is made behind the stream's waits for others, where
// they are known. Nothing is measured, at no cost, where the runtime has no timed events (the CPU).
//
// REQUIRES: the spans of one stream do not overlap; the runtime outlives its spans.
class WorkSpan {
 public:
  WorkSpan(DeviceRuntime& runtime, Stream stream);
  ~WorkSpan() { end(); }
  WorkSpan(const WorkSpan&) = delete;
  WorkSpan& operator=(const WorkSpan&) = delete;

  // The span ends here, and not with the object. A span that a failed device cannot end counts
  // as no work.
  void end() noexcept;

 private:
  DeviceRuntime& runtime_;
  const Stream stream_;
  std::shared_ptr<TimedSpan> span_;  // null: nothing is measured, or it has ended
};

// Seconds in which `device` has worked for this process: the spans of all its streams that have
// ended on the device by now, those that overlap counted once. It only grows. Nothing: no span was
// measured there yet. Never waits for the device. Thread-safe.
std::optional<double> worked_seconds(at::Device device);

}  // namespace grapevine
