#include "actors/cluster/output/line_backlog.hpp"

#include <utility>

namespace grapevine {

std::size_t cost_of(const JobLine& line) { return line.text.size() + sizeof line; }

std::string left_out(std::int64_t lines) {
  return std::to_string(lines) + " lines are left out: they came faster than they could be written";
}

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

LineBacklog::Waiting LineBacklog::take(std::size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  Waiting taken;
  taken.dropped = std::exchange(waiting_.dropped, 0);
  for (std::size_t cost = 0; cost < bytes && !waiting_.lines.empty();) {
    cost += cost_of(waiting_.lines.front());
    bytes_ -= cost_of(waiting_.lines.front());
    taken.lines.push_back(std::move(waiting_.lines.front()));
    waiting_.lines.pop_front();
  }
  return taken;
}

std::size_t LineBacklog::bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

}  // namespace grapevine
