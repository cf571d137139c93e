// OutputWindow: bounds the output of a job that is in flight to its submitter.
#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "actors/cluster/output/line_backlog.hpp"

namespace grapevine {

// The submitter acknowledges the lines that it has written. While lines of `window` bytes or more
// are sent and not acknowledged, no other is sent: later ones wait here, at most `backlog` bytes.
// Beyond that the oldest are dropped, and a line of the pool in their place gives their number. So
// a slow or suspended submitter costs a bounded amount of memory and delays no job.
// Not thread-safe.
class OutputWindow {
 public:
  using Send = std::function<void(const JobLine&)>;

  OutputWindow(std::size_t window, std::size_t backlog, Send send)
      : window_(window), backlog_(backlog), send_(std::move(send)) {}

  void add(JobLine line);
  // `lines`: acknowledged since the beginning. Invalid numbers are ignored.
  void acknowledge(std::int64_t lines);
  // Sends all waiting lines, without regard to the window: the job is over.
  void send_rest();

 private:
  void send_until(std::size_t bytes);
  void send(const JobLine& line);

  const std::size_t window_;
  LineBacklog backlog_;
  const Send send_;
  std::deque<std::size_t> sent_;  // bytes of each line that is not acknowledged
  std::size_t sent_bytes_ = 0;    // of them all
  std::int64_t acknowledged_ = 0;
};

}  // namespace grapevine
