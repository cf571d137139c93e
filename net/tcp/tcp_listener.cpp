#include "net/tcp/tcp_listener.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <utility>
#include <vector>

#include "net/resolve.hpp"
#include "net/tcp/tcp_dial.hpp"
#include "net/tcp/tcp_stream.hpp"

namespace grapevine::tcp {
namespace {

using namespace std::chrono_literals;

constexpr Clock::duration kLookUpTimeout = 10s;
constexpr Clock::duration kPauseAfterFailure = 100ms;
constexpr int kAcceptsAtOnce = 64;

void set(int descriptor, int level, int option, int value) {
  ::setsockopt(descriptor, level, option, &value, sizeof value);
}

// On "::", connections of IPv4 arrive as well. None, and the errno in `error`, where it fails.
FileDescriptor listen_on(const SocketAddress& address, int& error) {
  FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  error = socket.get() < 0 ? errno : 0;
  if (error != 0) return socket;
  set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (address.family() == AF_INET6) set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  if (::bind(socket.get(), address.get(), address.size) != 0 ||
      ::listen(socket.get(), SOMAXCONN) != 0)
    error = errno;
  return error == 0 ? std::move(socket) : FileDescriptor();
}

std::uint16_t port_of(int descriptor) {
  SocketAddress address;
  address.size = sizeof address.bytes;
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address.bytes), &address.size);
  // The port is at the same place in the addresses of both families.
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address.bytes)->sin_port);
}

}  // namespace

Expected<void> Listener::open(const std::string& host, std::uint16_t port) {
  // All interfaces are "::", or, where the machine has no IPv6, those of IPv4.
  const std::vector<std::string> names =
      host.empty() ? std::vector<std::string>{"::", "0.0.0.0"} : std::vector<std::string>{host};
  std::string why;
  for (const std::string& name : names) {
    const auto found = resolve(name, std::to_string(port), Clock::now() + kLookUpTimeout);
    if (!found) why = found.error().message;
    for (const SocketAddress& address : found ? *found : std::vector<SocketAddress>()) {
      int error = 0;
      FileDescriptor socket = listen_on(address, error);
      if (error != 0) {
        why = text_of_system_error(error);
        continue;
      }
      port_ = port_of(socket.get());
      watched_.assign(socket.release());
      return {};
    }
  }
  return Error{Errc::io, "cannot listen on " + join_address(host, port) + ": " + why};
}

void Listener::accept(OnConnection on_connection) {
  on_connection_ = std::move(on_connection);
  wait();
}

void Listener::close() {
  pause_.cancel();
  watched_.close();
}

void Listener::wait() {
  watched_.async_wait(asio::posix::stream_descriptor::wait_read, [this](std::error_code cancelled) {
    if (!cancelled) accept_some();
  });
}

void Listener::accept_some() {
  for (int accepted = 0; accepted < kAcceptsAtOnce && watched_.is_open(); ++accepted) {
    FileDescriptor socket(
        ::accept4(watched_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() >= 0) {
      on_connection_(std::move(socket));
      continue;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (const auto more = failures_.admit())
      spdlog::warn("tcp: no connection can be accepted: {}{}", text_of_system_error(errno), *more);
    // Without descriptors or memory the connection stays ready, and would be tried without a pause.
    pause_.expires_after(kPauseAfterFailure);
    return pause_.async_wait([this](std::error_code cancelled) {
      if (!cancelled) wait();
    });
  }
  if (watched_.is_open()) wait();
}

}  // namespace grapevine::tcp
