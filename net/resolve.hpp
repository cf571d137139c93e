// Names to addresses, with a bound on the wait: getaddrinfo() has none.
#pragma once
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "messages/expected.hpp"
#include "net/cancelled.hpp"

namespace grapevine {

struct SocketAddress {
  sockaddr_storage bytes{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&bytes); }
  int family() const { return bytes.ss_family; }
};

using Addresses = Expected<std::vector<SocketAddress>>;

// The host alone, in numbers; empty where it has none.
std::string numeric_host(const SocketAddress& address);

// Addresses for TCP, in the system's order of preference. `host`: a name or a numeric address;
// `port`: a number. A look-up that takes longer is left to a thread of its own, which ends with it.
// Errors: io: the text of the name service, such as "Name or service not known"; timeout; failed:
// cancelled.
Addresses resolve(const std::string& host, const std::string& port,
                  std::chrono::steady_clock::time_point deadline,
                  const Cancelled& cancelled = nullptr);

// The result of `ask`, which may block for ever: it runs on a thread of its own, which is abandoned
// at the deadline (timeout) or once cancelled (failed).
Addresses answer_within(std::function<Addresses()> ask,
                        std::chrono::steady_clock::time_point deadline, const Cancelled& cancelled);

}  // namespace grapevine
