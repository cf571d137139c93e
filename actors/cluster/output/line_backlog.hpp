// LineBacklog: lines of a job that wait to be written, with a bound on their memory.
#pragma once
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

namespace grapevine {

struct JobLine {
  std::int32_t process = 0;  // negative: the pool itself
  bool to_err = false;
  std::string text;
};

// Memory of a line beside its text: an empty line takes memory, too.
std::size_t cost_of(const JobLine& line);

// The line that replaces so many missing lines.
std::string left_out(std::int64_t lines);

// The writer may be slow or stopped: a full pipe, a terminal after Ctrl-S. Beyond the bound the
// oldest lines are dropped, because the last ones give the end of the job. Thread-safe.
class LineBacklog {
 public:
  // `bytes`: of text. The newest line stays, however long it is.
  explicit LineBacklog(std::size_t bytes) : limit_(bytes) {}

  // Whether no line waited before this one: then the writer must be notified.
  bool add(JobLine line);

  struct Waiting {
    std::deque<JobLine> lines;  // in order
    std::int64_t dropped = 0;   // before them
  };
  Waiting take();
  // The oldest lines alone, until they take at least so many bytes.
  Waiting take(std::size_t bytes);

  // Memory of the waiting lines: cost_of() and the text of each.
  std::size_t bytes() const;

 private:
  const std::size_t limit_;
  mutable std::mutex mutex_;  // guards the members below
  Waiting waiting_;
  std::size_t bytes_ = 0;
};

}  // namespace grapevine
