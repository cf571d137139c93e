#include "tests/gpu/fake_device/streams.hpp"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/fake_device/graph.hpp"

namespace grapevine::fake {
namespace {

struct ThreadState {
  int device = 0;
  std::array<std::int64_t, kDevices> streams = {};
  bool of_engine = false;
  std::optional<std::size_t> backward;  // the stream of the last backward operation
};

ThreadState& this_thread() {
  thread_local ThreadState state;
  return state;
}

c10::Device device_at(int index) { return {at::kXPU, static_cast<c10::DeviceIndex>(index)}; }

StreamKey key_of(const c10::Stream& stream) { return {stream.device_index(), stream.id()}; }

// An event of c10, which one device's stream records and any other's waits for.
struct RecordedEvent {
  int device = 0;
  Clock clock;
  double at = 0;
};

// As CUDA's does: after the call it sets the device that was current before, and CUDA opens a
// context on that one. The threads of the autograd engine are LibTorch's own concern.
void check_current(const char* call, c10::DeviceIndex device) {
  const ThreadState& thread = this_thread();
  if (thread.of_engine || thread.device == device) return;
  order().violation("an event " + std::string(call) + " " + device_at(device).str() + " while " +
                    device_at(thread.device).str() + " is the current device");
}

struct GuardImpl final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return at::kXPU; }
  c10::Device exchangeDevice(c10::Device d) const override {
    const c10::Device old = getDevice();
    uncheckedSetDevice(d);
    return old;
  }
  c10::Device getDevice() const override { return device_at(this_thread().device); }
  // Only the threads of the autograd engine call this, when they begin.
  void setDevice(c10::Device d) const override {
    this_thread().of_engine = true;
    uncheckedSetDevice(d);
  }
  void uncheckedSetDevice(c10::Device d) const noexcept override {
    if (d.has_index()) this_thread().device = d.index();
  }
  c10::Stream getStream(c10::Device d) const noexcept override {
    const int index = d.has_index() ? d.index() : this_thread().device;
    return c10::Stream(c10::Stream::UNSAFE, device_at(index), current_stream_id(index));
  }
  c10::Stream getDefaultStream(c10::Device d) const override {
    return c10::Stream(c10::Stream::UNSAFE, d, 0);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const auto old = exchange_stream_id(stream.device_index(), stream.id());
    return c10::Stream(c10::Stream::UNSAFE, stream.device(), old);
  }
  c10::DeviceIndex deviceCount() const noexcept override { return kDevices; }

  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex,
              const c10::EventFlag) const override {
    check_current("is recorded on", stream.device_index());
    auto* recorded = static_cast<RecordedEvent*>(*event);
    if (recorded == nullptr) *event = recorded = new RecordedEvent;
    recorded->device = stream.device_index();
    const std::size_t of = order().stream(key_of(stream));
    const bool empty = order().fault() == Fault::ready_events_are_empty;
    recorded->clock = empty ? Clock() : order().now(of);
    recorded->at = empty ? 0 : order().time_of(of);
  }
  void block(void* event, const c10::Stream& stream) const override {
    const auto* recorded = static_cast<const RecordedEvent*>(event);
    if (recorded == nullptr) return;
    check_current("is awaited on", stream.device_index());
    const bool foreign = recorded->device != stream.device_index();
    if (foreign && order().fault() == Fault::foreign_is_not_awaited) return;
    order().wait(order().stream(key_of(stream)), recorded->clock, recorded->at);
  }
  bool queryEvent(void* event) const override {
    const auto* recorded = static_cast<const RecordedEvent*>(event);
    return recorded == nullptr || order().host_knows(recorded->clock);
  }
  void destroyEvent(void* event, const c10::DeviceIndex device) const noexcept override {
    check_current("ends on", device);
    delete static_cast<RecordedEvent*>(event);
  }
  bool queryStream(const c10::Stream& stream) const override {
    return order().host_knows(order().now(order().stream(key_of(stream))));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    synchronize(order().stream(key_of(stream)));
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    if (auto* block = static_cast<Block*>(data.get_context()))
      order().record_stream(block->history, order().stream(key_of(stream)));
  }
};

C10_REGISTER_GUARD_IMPL(XPU, GuardImpl);

}  // namespace

bool is_engine_thread() { return this_thread().of_engine; }

std::size_t stream_of_operation(int device, const Block* written) {
  ThreadState& thread = this_thread();
  const std::int64_t current = current_stream_id(device);
  if (!thread.of_engine || current != 0) return order().stream({device, current});
  if (written != nullptr) thread.backward = written->history.write.stream;
  return thread.backward ? *thread.backward : order().stream({device, 0});
}

std::int64_t current_stream_id(int device) {
  return this_thread().streams[static_cast<std::size_t>(device)];
}

std::int64_t exchange_stream_id(int device, std::int64_t id) {
  return std::exchange(this_thread().streams[static_cast<std::size_t>(device)], id);
}

std::int64_t new_stream_id() {
  static std::atomic<std::int64_t> next{1};
  return next++;
}

void synchronize(std::size_t stream) {
  if (Recording* const capture = recording_in(stream)) capture->refuse("a wait of the host");
  order().host_waits(order().now(stream), order().time_of(stream));
  open_pinned();
}

}  // namespace grapevine::fake
