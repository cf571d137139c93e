// EventQueue: tasks of other threads for the main thread, beside its poll().
#pragma once
#include <functional>
#include <mutex>
#include <vector>

#include "net/file_descriptor.hpp"

namespace grapevine {

// post() is thread-safe; the rest belongs to one thread.
class EventQueue {
 public:
  using Event = std::function<void()>;
  EventQueue();

  void post(Event event);
  // Readable while events wait. Negative where the system had no descriptor left.
  int descriptor() const { return descriptor_.get(); }
  // Those that have been posted, in order. Does not wait.
  void run_ready();

 private:
  const FileDescriptor descriptor_;
  std::mutex mutex_;  // guards events_
  std::vector<Event> events_;
};

}  // namespace grapevine
