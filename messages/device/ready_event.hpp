// ReadyEvent: a point in a device's stream that work in other streams waits for.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>

namespace grapevine {

// Through c10's interface of devices, so that no kind of GPU is named here. Only the CPU has no
// streams: its events are null. Thread-safe once recorded.
class ReadyEvent {
 public:
  // After all work that this thread's current stream of `device` holds. Null on the CPU.
  static std::shared_ptr<const ReadyEvent> record(c10::Device device);
  static std::shared_ptr<const ReadyEvent> record(c10::Stream stream);
  explicit ReadyEvent(c10::Stream stream);
  // On any thread, whatever its current device is.
  ~ReadyEvent();
  ReadyEvent(const ReadyEvent&) = delete;
  ReadyEvent& operator=(const ReadyEvent&) = delete;

  // Work that is enqueued in `stream` from now on runs after the event. The host does not wait.
  void wait_in(c10::Stream stream) const;

  c10::Stream stream() const { return stream_; }

 private:
  const c10::Stream stream_;
  std::unique_ptr<c10::Event> event_;
};

// This thread's current stream of `device`. REQUIRES: not the CPU.
c10::Stream current_stream(c10::Device device);

}  // namespace grapevine
