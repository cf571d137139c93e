#include "apps/train/run_end.hpp"

#include <spdlog/spdlog.h>

namespace grapevine {

void RunEnd::on_warning(const std::string& message) { spdlog::warn("{}", message); }

void RunEnd::on_end(RunResult result) {
  const std::lock_guard<std::mutex> lock(mutex_);
  result_ = std::move(result);
  ended_.notify_all();
}

std::optional<RunResult> RunEnd::wait_for(Duration patience) {
  std::unique_lock<std::mutex> lock(mutex_);
  ended_.wait_for(lock, patience, [this] { return result_.has_value(); });
  return std::exchange(result_, std::nullopt);
}

}  // namespace grapevine
