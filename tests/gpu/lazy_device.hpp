// LazyDevice: a device in the host's memory that puts off every copy for as long as it may.
#pragma once
#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gpu/device.hpp"

namespace grapevine {

// A queue runs only when somebody who is allowed to needs what is in it: ATen calls in the compute
// scope (they run at once, so what compute waits for runs before them), a host that waits for a
// mark, or a queue that waits for one. So whoever forgets to wait reads the poison that memory
// begins with, and whoever reuses memory too early has something else copied. With a seed, queues
// also run on at random, so that no order but that of waits and marks can be relied on. Memory on
// the device is ATen's on the host, which is not its own to reuse: share() is only logged.
class LazyDevice final : public DeviceRuntime {
 public:
  explicit LazyDevice(std::uint64_t seed = 0) : random_(seed), eager_(seed != 0) {}

  at::Device device() const override { return at::kCPU; }
  bool in_host_memory() const override { return false; }

  std::unique_ptr<QueueScope> enter(Queue queue) override {
    say("enter " + name(queue));
    // ATen runs on the CPU here and now: everything that compute waits for comes first.
    if (queue == Queue::compute) run(queue, end_of(queue));
    return std::make_unique<QueueScope>();
  }

  void copy(Queue queue, const at::Tensor& to, const at::Tensor& from) override {
    say("copy " + name(queue));
    const bool pageable = !locked(queue == Queue::download ? to : from);
    if (pageable && line(queue).done < end_of(queue)) say("host blocks for " + name(queue));
    put(queue, [to = borrowed(to), from = borrowed(from)] { to.copy_(from); });
    if (pageable) run(queue, end_of(queue));
  }

  MarkHandle mark(Queue queue) override {
    return std::make_shared<LazyMark>(state_, queue, end_of(queue));
  }

  void wait(Queue queue, const MarkHandle& mark) override {
    const auto lazy = std::static_pointer_cast<const LazyMark>(mark);
    say(name(queue) + " waits for " + name(lazy->queue));
    put(queue, [this, lazy] { run(lazy->queue, lazy->place); });
  }

  Expected<void> host_wait(const MarkHandle& mark, Duration) override {
    const auto lazy = std::static_pointer_cast<const LazyMark>(mark);
    say("host waits for " + name(lazy->queue));
    if (dead) return Error{Errc::timeout, "the device does not answer"};
    run(lazy->queue, lazy->place);
    return {};
  }

  void share(const at::Tensor&, Queue queue) override { say("share with " + name(queue)); }

  std::shared_ptr<void> host_memory(std::size_t bytes) override {
    if (!pages) return nullptr;
    ++allocations;
    memory_.push_back(std::make_shared<std::vector<unsigned char>>(bytes, 0xff));  // NaN as floats
    return {memory_.back(), memory_.back()->data()};
  }

  // Runs everything, as a device does that is left alone.
  void settle() {
    for (std::size_t i = 0; i < kQueues; ++i)
      run(static_cast<Queue>(i), end_of(static_cast<Queue>(i)));
  }

  std::vector<std::string> log;  // what was asked for, in order
  int allocations = 0;
  bool dead = false;
  bool pages = true;  // false: there is no page-locked memory

 private:
  struct Line {
    std::deque<std::function<void()>> work;
    std::size_t done = 0;  // of all work that was ever in it
  };
  using State = std::array<Line, kQueues>;
  struct LazyMark : Mark {
    LazyMark(std::shared_ptr<State> s, Queue q, std::size_t p)
        : state(std::move(s)), queue(q), place(p) {}
    bool reached() const override { return (*state)[index(queue)].done >= place; }
    std::shared_ptr<State> state;
    Queue queue;
    std::size_t place;
  };

  static std::size_t index(Queue queue) { return static_cast<std::size_t>(queue); }
  static std::string name(Queue queue) {
    return std::array<const char*, kQueues>{"upload", "compute", "download"}[index(queue)];
  }
  Line& line(Queue queue) { return (*state_)[index(queue)]; }
  std::size_t end_of(Queue queue) { return line(queue).done + line(queue).work.size(); }

  void run(Queue queue, std::size_t place) {
    while (line(queue).done < place) {
      const std::function<void()> next = std::move(line(queue).work.front());
      line(queue).work.pop_front();
      next();
      ++line(queue).done;
    }
  }

  void put(Queue queue, std::function<void()> work) {
    line(queue).work.push_back(std::move(work));
    if (!eager_) return;
    const auto any = static_cast<Queue>(random_() % kQueues);
    if (!line(any).work.empty()) run(any, line(any).done + 1 + random_() % line(any).work.size());
  }

  // A copy keeps no host memory from being reused: that is for hold() to do.
  at::Tensor borrowed(const at::Tensor& t) const {
    return locked(t) ? at::from_blob(t.data_ptr(), t.sizes(), t.options()) : t;
  }

  bool locked(const at::Tensor& t) const {
    const auto* data = static_cast<const unsigned char*>(t.data_ptr());
    return std::any_of(memory_.begin(), memory_.end(), [data](const auto& block) {
      return data >= block->data() && data < block->data() + block->size();
    });
  }

  void say(std::string what) { log.push_back(std::move(what)); }

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::vector<std::shared_ptr<std::vector<unsigned char>>> memory_;  // all that was given out
  std::mt19937_64 random_;
  const bool eager_;
};

}  // namespace grapevine
