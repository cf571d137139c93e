// LogLimits: a LogLimit for each kind of line of one place.
#pragma once
#include <cstddef>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "messages/text/log_limit.hpp"

namespace grapevine {

// Many lines of one kind hide none of another kind. Thread-safe. Kinds beyond kMostKinds, whose
// text other processes may choose, share one limit.
class LogLimits {
 public:
  static constexpr std::size_t kMostKinds = 16;

  std::optional<std::string> admit(const std::string& kind,
                                   LogLimit::Clock::time_point now = LogLimit::Clock::now()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (limits_.count(kind) > 0 || limits_.size() < kMostKinds) return limits_[kind].admit(now);
    return others_.admit(now);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, LogLimit> limits_;
  LogLimit others_;
};

}  // namespace grapevine
