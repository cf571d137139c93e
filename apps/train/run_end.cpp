#include "apps/train/run_end.hpp"

#include <spdlog/spdlog.h>

namespace grapevine {

void RunEnd::on_warning(const std::string& message) { spdlog::warn("{}", message); }

void RunEnd::on_end(RunResult result) {
  const std::lock_guard<std::mutex> lock(mutex_);
  result_ = std::move(result);
  over_ = true;
  ended_.notify_all();
}

bool RunEnd::has_ended() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return over_;
}

std::optional<RunResult> RunEnd::wait_for(Duration timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  ended_.wait_for(lock, timeout, [this] { return result_.has_value(); });
  return std::exchange(result_, std::nullopt);
}

}  // namespace grapevine
