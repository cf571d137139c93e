#include "actors/run/thread_headroom.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace {

// Threads that do nothing until the object goes.
class IdleThreads {
 public:
  ~IdleThreads() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  // Throws std::system_error or std::bad_alloc where it cannot.
  void start_one() {
    threads_.emplace_back([this] {
      std::unique_lock<std::mutex> lock(mutex_);
      changed_.wait(lock, [this] { return over_; });
    });
  }

 private:
  std::mutex mutex_;  // guards over_
  std::condition_variable changed_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace

Expected<void> check_thread_headroom(int others, int workers, int each) {
  IdleThreads threads;
  int started = 0;
  try {
    for (; started < others + workers * each; ++started) threads.start_one();
  } catch (...) {
    const std::string why = exception_line(std::current_exception());
    if (started < others)
      return Error{Errc::failed,
                   fmt::format("cannot start the threads that a run needs beside its workers, {} "
                               "of {}: {}",
                               started + 1, others, why)};
    const int worker = (started - others) / each;
    return Error{Errc::failed,
                 fmt::format("cannot start worker {} of {}: {}: use fewer --workers, or raise the "
                             "limit",
                             worker + 1, workers, why)};
  }
  return {};
}

}  // namespace grapevine
