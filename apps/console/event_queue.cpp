#include "apps/console/event_queue.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

namespace grapevine {

EventQueue::EventQueue() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

void EventQueue::post(Event event) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    events_.push_back(std::move(event));
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(descriptor_.get(), &one, sizeof one);
}

void EventQueue::run_ready() {
  std::uint64_t count = 0;
  [[maybe_unused]] const ssize_t taken = ::read(descriptor_.get(), &count, sizeof count);
  std::vector<Event> ready;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ready.swap(events_);
  }
  for (const Event& event : ready) event();
}

}  // namespace grapevine
