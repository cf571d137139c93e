// EventQueue: tasks of other threads for the main thread, beside its poll().
#pragma once
#include <functional>
#include <mutex>
#include <vector>

namespace grapevine {

// post() is thread-safe; the rest belongs to one thread.
class EventQueue {
 public:
  using Event = std::function<void()>;
  EventQueue();
  ~EventQueue();
  EventQueue(const EventQueue&) = delete;
  EventQueue& operator=(const EventQueue&) = delete;

  void post(Event event);
  // Readable while events wait. Negative where the system had no descriptor left.
  int descriptor() const { return descriptor_; }
  // Those that have been posted, in order. Does not wait.
  void run_ready();

 private:
  int descriptor_ = -1;
  std::mutex mutex_;  // guards events_
  std::vector<Event> events_;
};

}  // namespace grapevine
