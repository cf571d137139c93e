#include "apps/train/join/join_display.hpp"

#include <fmt/format.h>

#include <ostream>
#include <string>
#include <utility>

#include "apps/console/text/figures.hpp"

namespace grapevine {
namespace {

constexpr std::chrono::seconds kInterval{2};

std::string bytes_text(std::int64_t bytes) {
  return format_bytes(static_cast<std::uint64_t>(bytes));
}

}  // namespace

JoinDisplay::JoinDisplay(std::ostream& err, Clock clock) : err_(err), clock_(std::move(clock)) {}

void JoinDisplay::on_state_arrival(const StateArrival& arrival) {
  if (arrival.trains) {
    receiving_.erase(arrival.rank);  // it may join again
    return say(
        fmt::format("rank {} takes part from step {}", arrival.rank, format_count(arrival.step)));
  }
  if (receiving_.insert(arrival.rank).second)
    return say(fmt::format("rank {} receives the state of the run, {}", arrival.rank,
                           bytes_text(arrival.total)));
  if (arrival.bytes == arrival.total || clock_() - last_line_ < kInterval) return;
  say(fmt::format("rank {}: {} of {}", arrival.rank, bytes_text(arrival.bytes),
                  bytes_text(arrival.total)));
}

void JoinDisplay::say(const std::string& line) {
  last_line_ = clock_();
  err_ << line << std::endl;
}

}  // namespace grapevine
