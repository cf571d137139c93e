#include "apps/console/line_writer.hpp"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <mutex>
#include <ostream>
#include <utility>
#include <vector>

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 10;

}  // namespace

void write_plain_line(Console& console, const JobLine& line) {
  (line.to_err ? console.err : console.out) << line.text << '\n';
}

struct LineWriter::Shared {
  Shared(Console& console_to_use, std::size_t bytes, Write write_line, Done done_with)
      : console(console_to_use),
        backlog(bytes),
        write(std::move(write_line)),
        on_done(std::move(done_with)) {}

  // The thread: writes all waiting lines, until it is asked to end and none waits.
  void serve() {
    for (std::unique_lock<std::mutex> lock(mutex);;) {
      changed.wait(lock, [this] { return pending || ending; });
      if (!pending) return;
      pending = false;
      writing = true;
      lock.unlock();
      write_waiting();
      lock.lock();
      writing = false;
    }
  }

  void write_waiting() {
    const LineBacklog::Waiting waiting = backlog.take();
    if (waiting.dropped > 0) {
      write_one({-1, true, left_out(waiting.dropped)});
      count_done(waiting.dropped, kDoneBytes);
    }
    for (const JobLine& line : waiting.lines) {
      write_one(line);
      count_done(1, cost_of(line));
    }
  }

  void count_done(std::int64_t lines, std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    done += lines;
    done_bytes += bytes;
    if (!on_done || left_behind || done_bytes < kDoneBytes) return;
    done_bytes = 0;
    on_done(done);
  }

  // An abandoned thread writes nothing more: the streams belong to the end of the process then.
  void write_one(const JobLine& line) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (left_behind) return;
      on_err = line.to_err;
    }
    write(console, line);
    (line.to_err ? console.err : console.out).flush();
    const std::lock_guard<std::mutex> lock(mutex);
    ++written;
  }

  Console& console;
  LineBacklog backlog;
  const Write write;
  const Done on_done;

  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  bool pending = false;  // that lines wait
  bool writing = false;  // those that were taken last
  bool ending = false;
  bool left_behind = false;
  bool on_err = false;         // where the newest line goes
  std::int64_t written = 0;    // lines
  std::int64_t done = 0;       // lines that were added, and written or left out since
  std::size_t done_bytes = 0;  // of lines that were not reported to on_done()
};

LineWriter::LineWriter(Console& console, std::size_t bytes, Write write, Done on_done)
    : console_(console),
      shared_(std::make_shared<Shared>(console, bytes, std::move(write), std::move(on_done))),
      thread_([shared = shared_] { shared->serve(); }) {}

LineWriter::~LineWriter() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->ending = true;
  }
  shared_->changed.notify_one();
  thread_.join();
}

void LineWriter::add(JobLine line) {
  if (!shared_->backlog.add(std::move(line))) return;
  {
    const std::lock_guard<std::mutex> lock(shared_->mutex);
    shared_->pending = true;
  }
  shared_->changed.notify_one();
}

std::size_t LineWriter::waiting_bytes() const { return shared_->backlog.bytes(); }

bool LineWriter::drain(SignalPipe& signals, bool& stop_requested,
                       std::chrono::milliseconds timeout) {
  std::int64_t written = -1;
  Clock::time_point give_up;
  for (;;) {
    {
      const std::lock_guard<std::mutex> lock(shared_->mutex);
      if (!shared_->pending && !shared_->writing) return true;
      if (!stop_requested || shared_->written != written) give_up = Clock::now() + timeout;
      written = shared_->written;
      if (Clock::now() >= give_up) {
        shared_->left_behind = true;
        (shared_->on_err ? console_.err_stuck : console_.out_stuck) = true;
        break;
      }
    }
    pollfd wait{signals.descriptor(), POLLIN, 0};
    ::poll(&wait, 1, kPollMs);
    const std::vector<int> taken = signals.take();
    stop_requested = stop_requested || std::any_of(taken.begin(), taken.end(),
                                                   [](int number) { return number != SIGUSR1; });
  }
  thread_.detach();
  console_.thread_left_behind = true;
  return false;
}

}  // namespace grapevine
