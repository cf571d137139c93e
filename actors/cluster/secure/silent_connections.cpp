#include "actors/cluster/secure/silent_connections.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <cstddef>
#include <utility>

#include "net/loss_reason.hpp"

namespace grapevine {

// Those that have been shut down are closed as soon as their readers have seen the end.
void SilentConnections::make_room(Time now) {
  end_overdue(now);
  std::size_t open = 0;
  for (const auto& entry : connections_) open += entry.second.ended ? 0 : 1;
  if (open < limits_.most) return;
  for (auto& [number, connection] : connections_)
    if (!connection.ended)
      return end(connection, fmt::format("it and {} newer ones have sent nothing yet", open - 1),
                 now);
}

std::int64_t SilentConnections::add(int descriptor, std::string peer, Time now) {
  connections_[++last_] = {descriptor, std::move(peer), now + limits_.longest, false};
  return last_;
}

void SilentConnections::end_overdue(Time now) {
  for (auto& [number, connection] : connections_) {
    if (connection.until > now) return;
    if (!connection.ended)
      end(connection, "no first message came within " + silence_text(limits_.longest), now);
  }
}

void SilentConnections::end(Connection& connection, const std::string& why, Time now) {
  connection.ended = true;
  ::shutdown(connection.descriptor, SHUT_RDWR);
  if (const auto more = log_->admit(why, now))
    spdlog::warn("control: dropped a connection from {}: {}{}", connection.peer, why, *more);
}

}  // namespace grapevine
