// LogLimit: limits how often a log line is written that other processes can provoke.
#pragma once
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

namespace grapevine {

// Thread-safe. One for each kind of line; `now` is an argument so that tests choose it, and actors
// give the time of their clock.
class LogLimit {
 public:
  using Clock = std::chrono::steady_clock;
  explicit LogLimit(Clock::duration interval = std::chrono::seconds(10)) : interval_(interval) {}

  // The text to append to a line that may be written now, such as " (and 41 more before)"; none: do
  // not write the line.
  std::optional<std::string> admit(Clock::time_point now = Clock::now()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (last_ && now - *last_ < interval_) {
      ++left_out_;
      return std::nullopt;
    }
    last_ = now;
    const std::uint64_t more = left_out_;
    left_out_ = 0;
    return more == 0 ? "" : " (and " + std::to_string(more) + " more before)";
  }

 private:
  const Clock::duration interval_;
  std::mutex mutex_;
  std::optional<Clock::time_point> last_;
  std::uint64_t left_out_ = 0;
};

}  // namespace grapevine
