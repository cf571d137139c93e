// SilentConnections: the connections of a listener whose other side has not sent its first message.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "messages/text/log_limits.hpp"

namespace grapevine {

// Ends the ones that stay silent for too long, and limits their number, so that a program that
// opens connections and sends nothing does not take all descriptors of the process. There is no
// timer: a connection whose time is over ends when the listener accepts another one or receives
// something, as it does every few seconds while processes of the run are connected.
//
// On one thread, the middleman's event loop.
class SilentConnections {
 public:
  using Time = LogLimit::Clock::time_point;
  struct Limits {
    std::size_t most = 256;
    std::chrono::nanoseconds longest = std::chrono::seconds(10);
  };

  // Of each kind of refusal a line of the log within `limits`, those of the listener.
  SilentConnections(std::shared_ptr<LogLimits> log, Limits limits)
      : log_(std::move(log)), limits_(limits) {}

  // Shuts down the oldest one where there is no room for one more: a process of the run sends its
  // first message at once, but another program may keep its connections silent.
  void make_room(Time now);
  // The number of the connection. Its descriptor stays open until remove().
  std::int64_t add(int descriptor, std::string peer, Time now);
  // It has sent its first message, or is about to be closed.
  void remove(std::int64_t number) { connections_.erase(number); }
  // Shuts down the connections whose time is over: their reader sees the end of the stream.
  void end_overdue(Time now);

 private:
  struct Connection {
    int descriptor = -1;
    std::string peer;
    Time until;
    bool ended = false;
  };

  void end(Connection& connection, const std::string& why, Time now);

  const std::shared_ptr<LogLimits> log_;
  const Limits limits_;
  std::int64_t last_ = 0;
  std::map<std::int64_t, Connection> connections_;  // in the order in which their time is over
};

}  // namespace grapevine
