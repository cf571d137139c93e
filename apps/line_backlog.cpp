#include "apps/line_backlog.hpp"

#include <utility>

namespace grapevine {
namespace {

// Empty lines take memory, too.
std::size_t cost_of(const JobLine& line) { return line.text.size() + sizeof line; }

}  // namespace

bool LineBacklog::add(JobLine line) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const bool first = waiting_.lines.empty();
  bytes_ += cost_of(line);
  waiting_.lines.push_back(std::move(line));
  while (bytes_ > limit_ && waiting_.lines.size() > 1) {
    bytes_ -= cost_of(waiting_.lines.front());
    waiting_.lines.pop_front();
    ++waiting_.dropped;
  }
  return first;
}

LineBacklog::Waiting LineBacklog::take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_ = 0;
  return std::exchange(waiting_, Waiting{});
}

std::size_t LineBacklog::bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

}  // namespace grapevine
