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

// What it takes: empty ones take memory, too.
std::size_t cost_of(const JobLine& line);

// Says, in the place of the lines, that so many are missing.
std::string left_out(std::int64_t lines);

// Whoever writes may be slow, or stopped: a full pipe, a terminal after Ctrl-S. Beyond the bound
// the oldest lines go, for the last ones say how the job ended. Thread-safe.
class LineBacklog {
 public:
  // `bytes`: of text. The newest line stays, however long it is.
  explicit LineBacklog(std::size_t bytes) : limit_(bytes) {}

  // Whether no line waited before this one: then somebody has to be told.
  bool add(JobLine line);

  struct Waiting {
    std::deque<JobLine> lines;  // in order
    std::int64_t dropped = 0;   // that stood before them
  };
  Waiting take();
  // The oldest lines alone, until they take at least so many bytes.
  Waiting take(std::size_t bytes);

  // What waits, with what each line takes beside its text.
  std::size_t bytes() const;

 private:
  const std::size_t limit_;
  mutable std::mutex mutex_;  // guards what follows
  Waiting waiting_;
  std::size_t bytes_ = 0;
};

}  // namespace grapevine
