#include "messages/device/ready_event.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>

namespace grapevine {

std::shared_ptr<const ReadyEvent> ReadyEvent::record(c10::Device device) {
  return device.is_cpu() ? nullptr : record(current_stream(device));
}

std::shared_ptr<const ReadyEvent> ReadyEvent::record(c10::Stream stream) {
  return std::make_shared<const ReadyEvent>(stream);
}

ReadyEvent::ReadyEvent(c10::Stream stream) : event_(stream.device_type()), stream_(stream) {
  event_.record(stream_);
}

void ReadyEvent::wait_in(c10::Stream stream) const {
  if (stream != stream_) event_.block(stream);
}

c10::Stream current_stream(c10::Device device) {
  return c10::impl::getDeviceGuardImpl(device.type())->getStream(device);
}

}  // namespace grapevine
