#include "actors/cluster/output/output_window.hpp"

#include <limits>
#include <utility>

namespace grapevine {

void OutputWindow::add(JobLine line) {
  backlog_.add(std::move(line));
  send_until(window_);
}

void OutputWindow::acknowledge(std::int64_t lines) {
  for (; acknowledged_ < lines && !sent_.empty(); ++acknowledged_) {
    sent_bytes_ -= sent_.front();
    sent_.pop_front();
  }
  send_until(window_);
}

void OutputWindow::send_rest() { send_until(std::numeric_limits<std::size_t>::max()); }

void OutputWindow::send_until(std::size_t bytes) {
  if (sent_bytes_ >= bytes) return;
  LineBacklog::Waiting waiting = backlog_.take(bytes - sent_bytes_);
  if (waiting.dropped > 0) send({-1, true, left_out(waiting.dropped)});
  for (const JobLine& line : waiting.lines) send(line);
}

void OutputWindow::send(const JobLine& line) {
  sent_.push_back(cost_of(line));
  sent_bytes_ += sent_.back();
  send_(line);
}

}  // namespace grapevine
