#include <ATen/ATen.h>

#include <array>
#include <atomic>
#include <cstring>
#include <exception>
#include <utility>

#include "gpu/memory/model_memory.hpp"
#include "messages/check.hpp"
#include "tests/gpu/fake_device/fake_device.hpp"
#include "tests/gpu/fake_device/graph.hpp"
#include "tests/gpu/fake_device/streams.hpp"

namespace grapevine::fake {
namespace {

constexpr int kPolls = 3;  // after which an event that nobody waits for is reached

class FakeEvent final : public DeviceEvent {
 public:
  FakeEvent(Clock clock, Stream stream, double at)
      : clock_(std::move(clock)), stream_(stream), at_(at) {}
  bool reached() const override {
    if (order().host_knows(clock_)) return true;
    if (++polls_ < kPolls) return false;
    order().host_waits(clock_, at_);
    open_pinned();
    return true;
  }
  const Clock& clock() const { return clock_; }
  Stream stream() const { return stream_; }
  double at() const { return at_; }

 private:
  const Clock clock_;
  const Stream stream_;
  const double at_;  // the time when its stream reaches it
  mutable std::atomic<int> polls_{0};
};

// That it is reached says nothing about what the host has waited for.
class FakeTimedEvent final : public DeviceEvent {
 public:
  explicit FakeTimedEvent(double at) : at_(at) {}
  bool reached() const override { return order().host_time() >= at_; }
  double seconds_since(const DeviceEvent& earlier) const override {
    return at_ - static_cast<const FakeTimedEvent&>(earlier).at_;
  }

 private:
  const double at_;
};

class FakeScope final : public StreamScope {
 public:
  FakeScope(int device, std::int64_t stream)
      : device_(device), before_(exchange_stream_id(device, stream)) {}
  ~FakeScope() override { exchange_stream_id(device_, before_); }

 private:
  const int device_;
  const std::int64_t before_;
};

class FakeGraph final : public DeviceGraph {
 public:
  FakeGraph(Recording& recording, std::array<std::size_t, kStreams> streams)
      : memory_(recording.memory()), work_(recording.work()), streams_(streams) {}
  void replay(Stream stream) override {
    fake::replay(work_, *memory_, streams_[static_cast<std::size_t>(stream)]);
  }

 private:
  const std::shared_ptr<GraphMemory> memory_;
  const std::vector<GraphWork> work_;
  const std::array<std::size_t, kStreams> streams_;  // by Stream, as Order has them
};

// In a capture of this thread.
void refuse_in_capture(const char* call) {
  if (Recording* const capture = recording_of_thread()) capture->refuse(call);
}

Block* block_of(const at::Tensor& t) {
  return static_cast<Block*>(t.storage().data_ptr().get_context());
}

// REQUIRES: contiguous.
Access access_to(const at::Tensor& t) {
  const auto begin = static_cast<std::uint64_t>(t.storage_offset()) * t.element_size();
  return {&block_of(t)->history, begin, begin + t.nbytes()};
}

class FakeRuntime final : public DeviceRuntime {
 public:
  FakeRuntime(int index, const std::string& name) : index_(index) {
    constexpr std::array<const char*, kStreams> kNames = {"upload", "compute", "download",
                                                          "exchange"};
    for (std::size_t i = 0; i < kStreams; ++i) {
      ids_[i] = new_stream_id();
      order().name({index_, ids_[i]}, name + "'s " + kNames[i]);
    }
  }

  at::Device device() const override { return fake::device(index_); }
  bool in_host_memory() const override { return false; }
  std::unique_ptr<StreamScope> enter(Stream stream) override {
    return std::make_unique<FakeScope>(index_, id(stream));
  }

  void copy(Stream stream, const at::Tensor& to, const at::Tensor& from) override {
    GRAPEVINE_CHECK(to.is_contiguous() && from.is_contiguous() &&
                        to.scalar_type() == from.scalar_type() && to.numel() == from.numel(),
                    "a copy between unlike tensors");
    if (from.nbytes() == 0) return;
    refuse_in_capture("a copy of the runtime");
    const bool up = from.is_cpu(), down = to.is_cpu();
    GRAPEVINE_CHECK(!(up && down), "a copy from host to host");
    const std::string name = up ? "upload" : down ? "download" : "copy between devices";
    std::vector<Access> reads, writes;
    if (!up) reads.push_back(access_to(from));
    if (!down) writes.push_back(access_to(to));
    const std::uint64_t time = order().run(name, order_of(stream), reads, writes);
    std::memcpy(place(to), place(from), from.nbytes());
    const at::Tensor& host = up ? from : to;
    if (up || down) {
      if (is_pinned(host.data_ptr()))
        use_pinned(host.data_ptr(), name + "' in '" + fake::device(index_).str(), down,
                   order_of(stream), time);
      else
        synchronize(order_of(stream));
    }
    order().count({up ? from.nbytes() : 0, down ? from.nbytes() : 0, up || down ? 0 : from.nbytes(),
                   up && is_pinned_model(from) ? from.nbytes() : 0});
  }

  EventHandle record(Stream stream) override {
    const std::size_t of = order_of(stream);
    return std::make_shared<FakeEvent>(order().now(of), stream, order().time_of(of));
  }

  EventHandle record_timed(Stream stream) override {
    refuse_in_capture("a timed event");
    return std::make_shared<FakeTimedEvent>(order().time_of(order_of(stream)));
  }

  void wait(Stream stream, const EventHandle& event) override {
    const Fault fault = order().fault();
    if (!event || (stream == Stream::compute && fault == Fault::upload_is_not_awaited) ||
        (stream == Stream::exchange && fault == Fault::exchange_does_not_wait))
      return;
    const auto& fake = static_cast<const FakeEvent&>(*event);
    if (fake.stream() == Stream::exchange &&
        ((stream == Stream::compute && fault == Fault::exchange_is_not_awaited) ||
         (stream == Stream::download && fault == Fault::download_does_not_wait)))
      return;
    order().wait(order_of(stream), fake.clock(), fake.at());
  }

  Expected<void> host_wait(const EventHandle& event, Duration) override {
    try {
      refuse_in_capture("a wait of the host");
    } catch (const std::exception& e) {
      return Error{Errc::failed, e.what()};
    }
    if (!event || order().fault() == Fault::host_does_not_wait) return {};
    const auto& fake = static_cast<const FakeEvent&>(*event);
    order().host_waits(fake.clock(), fake.at());
    open_pinned();
    return {};
  }

  void record_stream(const at::Tensor& t, Stream stream) override {
    if (t.device().type() == at::kXPU && t.storage().nbytes() > 0)
      order().record_stream(block_of(t)->history, order_of(stream));
  }

  std::shared_ptr<void> pinned_memory(std::size_t bytes) override {
    refuse_in_capture("page locking");
    return pinned(bytes);
  }

  std::string why_no_graphs() const override { return ""; }

  // In a stream of its own. What it reads was written before, and nothing runs that anything would
  // have to wait for; Order does not know that.
  std::unique_ptr<DeviceGraph> capture(const std::function<void()>& work) override {
    const std::size_t compute = order_of(Stream::compute);
    const std::int64_t id = new_stream_id();
    const std::size_t stream = order().stream({index_, id});
    order().wait(stream, order().now(compute), order().time_of(compute));
    Recording recording(stream);
    {
      const FakeScope scope(index_, id);
      work();
    }
    recording.end();
    order().wait(compute, order().now(stream), order().time_of(stream));
    std::array<std::size_t, kStreams> streams = {};
    for (std::size_t i = 0; i < kStreams; ++i) streams[i] = order_of(static_cast<Stream>(i));
    return std::make_unique<FakeGraph>(recording, streams);
  }

 private:
  std::int64_t id(Stream stream) const { return ids_[static_cast<std::size_t>(stream)]; }
  std::size_t order_of(Stream stream) const { return order().stream({index_, id(stream)}); }
  // The device's own pointer.
  static char* place(const at::Tensor& t) {
    void* const shown = t.data_ptr();
    if (!t.is_cpu()) return alias_of(shown);
    return is_pinned(shown) ? pinned_alias(shown) : static_cast<char*>(shown);
  }

  const int index_;
  std::array<std::int64_t, kStreams> ids_ = {};
};

}  // namespace

std::shared_ptr<DeviceRuntime> open_device(int index, const std::string& name) {
  return std::make_shared<FakeRuntime>(index, name);
}

void copy_outside(const at::Tensor& to, const at::Tensor& from) {
  GRAPEVINE_CHECK(to.is_contiguous() && from.is_contiguous() && to.nbytes() == from.nbytes(),
                  "a copy between unlike tensors");
  const auto history = [](const at::Tensor& t) {
    return t.is_cpu() ? nullptr : &block_of(t)->history;
  };
  const auto memory = [](const at::Tensor& t) {
    return t.is_cpu() ? static_cast<char*>(t.data_ptr()) : alias_of(t.data_ptr());
  };
  order().run_outside("copy by a network device", history(from), history(to));
  std::memcpy(memory(to), memory(from), from.nbytes());
}

std::vector<std::string> violations() { return order().violations(); }
Traffic traffic() { return order().traffic(); }
std::uint64_t calls(const std::string& operation) { return order().calls(operation); }
void set_fault(Fault fault) { order().set_fault(fault); }
void set_duration(const std::string& operation, double seconds) {
  order().set_duration(operation, seconds);
}
void host_works(double seconds) { order().host_works(seconds); }
double host_time() { return order().host_time(); }
void reset() { order().reset(); }

}  // namespace grapevine::fake
