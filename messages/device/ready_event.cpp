#include "messages/device/ready_event.hpp"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <exception>

namespace grapevine {

std::shared_ptr<const ReadyEvent> ReadyEvent::record(c10::Device device) {
  return device.is_cpu() ? nullptr : record(current_stream(device));
}

std::shared_ptr<const ReadyEvent> ReadyEvent::record(c10::Stream stream) {
  return std::make_shared<const ReadyEvent>(stream);
}

// Each call of c10's events is under a guard of the device. For CUDA they set that device and then
// the one that was current before, which creates a context on it: without the guards every process
// would have one on GPU 0, with half a gigabyte of its memory. A guard sets the former device again
// only where the process has a context on it.
ReadyEvent::ReadyEvent(c10::Stream stream)
    : stream_(stream), event_(std::make_unique<c10::Event>(stream.device_type())) {
  const c10::DeviceGuard guard(stream_.device());
  event_->record(stream_);
}

ReadyEvent::~ReadyEvent() {
  try {
    const c10::DeviceGuard guard(stream_.device());
    event_.reset();
  } catch (const std::exception&) {
    // The device has failed. Before LibTorch 2.15 the end of an event would now end the process.
    static_cast<void>(event_.release());
  }
}

void ReadyEvent::wait_in(c10::Stream stream) const {
  if (stream == stream_) return;
  const c10::DeviceGuard guard(stream.device());
  event_->block(stream);
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::getDeviceGuardImpl(device.type())->getStream(device);
}

}  // namespace grapevine
