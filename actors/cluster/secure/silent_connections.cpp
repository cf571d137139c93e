#include "actors/cluster/secure/silent_connections.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <utility>

#include "net/loss_reason.hpp"

namespace grapevine {

bool SilentConnections::has_room(const std::string& peer, Time now) {
  end_overdue(now);
  if (connections_.size() < limits_.most) return true;
  report(peer, fmt::format("{} others have sent nothing yet", limits_.most), now);
  return false;
}

std::int64_t SilentConnections::add(int descriptor, std::string peer, Time now) {
  connections_[++last_] = {descriptor, std::move(peer), now + limits_.longest, false};
  return last_;
}

void SilentConnections::end_overdue(Time now) {
  for (auto& [number, connection] : connections_) {
    if (connection.until > now) return;
    if (std::exchange(connection.ended, true)) continue;
    ::shutdown(connection.descriptor, SHUT_RDWR);
    report(connection.peer, "no first message came within " + silence_text(limits_.longest), now);
  }
}

void SilentConnections::report(const std::string& peer, const std::string& why, Time now) {
  if (const auto more = log_->admit(why, now))
    spdlog::warn("control: dropped a connection from {}: {}{}", peer, why, *more);
}

}  // namespace grapevine
