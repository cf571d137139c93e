// LazyDevice: a device in the host's memory that puts off every copy for as long as it may.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device.hpp"

namespace grapevine {

// A stream runs only when its work is needed: by ATen calls in the compute or exchange scope (they
// run at once, so what that stream waits for runs before them), by a host that waits for an event,
// or by a stream that waits for one. So code without a wait that it needs reads the poison that
// memory begins with, and code that reuses memory too early has something else copied. With a seed,
// streams also run on at random, so that no order but that of waits and events can be relied on.
// Memory on the device is ATen's on the host, which is not its own to reuse: record_stream() is
// only logged.
class LazyDevice final : public DeviceRuntime {
 public:
  explicit LazyDevice(std::uint64_t seed = 0) : random_(seed), eager_(seed != 0) {}

  at::Device device() const override { return at::kCPU; }
  bool in_host_memory() const override { return false; }

  std::unique_ptr<StreamScope> enter(Stream stream) override {
    say("enter " + name(stream));
    // ATen runs on the CPU here and now: everything that its stream waits for comes first.
    if (stream == Stream::compute || stream == Stream::exchange) run(stream, end_of(stream));
    return std::make_unique<StreamScope>();
  }

  void copy(Stream stream, const at::Tensor& to, const at::Tensor& from) override {
    say("copy " + name(stream));
    if (stream == Stream::upload) uploaded_bytes += from.nbytes();
    if (stream == Stream::download) downloaded_bytes += from.nbytes();
    const bool pageable = !locked(stream == Stream::download ? to : from);
    if (pageable && line(stream).done < end_of(stream)) say("host blocks for " + name(stream));
    put(stream, [to = borrowed(to), from = borrowed(from)] { to.copy_(from); });
    if (pageable) run(stream, end_of(stream));
  }

  EventHandle record(Stream stream) override {
    return std::make_shared<LazyEvent>(state_, stream, end_of(stream));
  }

  void wait(Stream stream, const EventHandle& event) override {
    const auto lazy = std::static_pointer_cast<const LazyEvent>(event);
    say(name(stream) + " waits for " + name(lazy->stream));
    put(stream, [this, lazy] { run(lazy->stream, lazy->place); });
  }

  Expected<void> host_wait(const EventHandle& event, Duration) override {
    const auto lazy = std::static_pointer_cast<const LazyEvent>(event);
    say("host waits for " + name(lazy->stream));
    if (on_host_wait) on_host_wait();
    if (dead) return Error{Errc::timeout, "the device does not answer"};
    run(lazy->stream, lazy->place);
    return {};
  }

  void record_stream(const at::Tensor&, Stream stream) override {
    say("record on " + name(stream));
  }

  std::shared_ptr<void> pinned_memory(std::size_t bytes) override {
    if (!pages) return nullptr;
    ++allocations;
    pinned_bytes += bytes;
    const auto memory = std::make_shared<std::vector<unsigned char>>(bytes, 0xff);  // NaN as floats
    const std::lock_guard<std::mutex> lock(pinned_->mutex);
    pinned_->memory.push_back(memory);
    return {memory, memory->data()};
  }

  // What is pinned for one is pinned for both. Before anything is.
  void pin_with(const LazyDevice& other) { pinned_ = other.pinned_; }

  // Runs everything, as a device does that is left alone.
  void settle() {
    for (std::size_t i = 0; i < kStreams; ++i)
      run(static_cast<Stream>(i), end_of(static_cast<Stream>(i)));
  }

  std::vector<std::string> log;  // what was asked for, in order
  int allocations = 0;
  std::size_t pinned_bytes = 0;        // of all of them
  std::size_t uploaded_bytes = 0;      // across the link of the device
  std::size_t downloaded_bytes = 0;    // likewise
  std::function<void()> on_host_wait;  // where the host waits
  bool dead = false;
  bool pages = true;  // false: there is no pinned memory

 private:
  struct Line {
    std::deque<std::function<void()>> work;
    std::size_t done = 0;  // of all work that was ever in it
  };
  using State = std::array<Line, kStreams>;
  // Devices on threads of their own may share it.
  struct Pinned {
    std::mutex mutex;
    std::vector<std::shared_ptr<std::vector<unsigned char>>> memory;  // all that was given out
  };
  struct LazyEvent : DeviceEvent {
    LazyEvent(std::shared_ptr<State> s, Stream q, std::size_t p)
        : state(std::move(s)), stream(q), place(p) {}
    bool reached() const override { return (*state)[index(stream)].done >= place; }
    std::shared_ptr<State> state;
    Stream stream;
    std::size_t place;
  };

  static std::size_t index(Stream stream) { return static_cast<std::size_t>(stream); }
  static std::string name(Stream stream) {
    return std::array<const char*, kStreams>{"upload", "compute", "download",
                                             "exchange"}[index(stream)];
  }
  Line& line(Stream stream) { return (*state_)[index(stream)]; }
  std::size_t end_of(Stream stream) { return line(stream).done + line(stream).work.size(); }

  void run(Stream stream, std::size_t place) {
    while (line(stream).done < place) {
      const std::function<void()> next = std::move(line(stream).work.front());
      line(stream).work.pop_front();
      next();
      ++line(stream).done;
    }
  }

  void put(Stream stream, std::function<void()> work) {
    line(stream).work.push_back(std::move(work));
    if (!eager_) return;
    const auto any = static_cast<Stream>(random_() % kStreams);
    if (!line(any).work.empty()) run(any, line(any).done + 1 + random_() % line(any).work.size());
  }

  // A copy keeps no host memory from being reused: that is for hold() to do.
  at::Tensor borrowed(const at::Tensor& t) const {
    return locked(t) ? at::from_blob(t.data_ptr(), t.sizes(), t.options()) : t;
  }

  bool locked(const at::Tensor& t) const {
    const auto* data = static_cast<const unsigned char*>(t.data_ptr());
    const std::lock_guard<std::mutex> lock(pinned_->mutex);
    return std::any_of(pinned_->memory.begin(), pinned_->memory.end(), [data](const auto& block) {
      return data >= block->data() && data < block->data() + block->size();
    });
  }

  void say(std::string what) { log.push_back(std::move(what)); }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::shared_ptr<Pinned> pinned_ = std::make_shared<Pinned>();
  std::mt19937_64 random_;
  const bool eager_;
};

}  // namespace grapevine
