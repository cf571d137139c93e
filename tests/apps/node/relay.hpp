// Relay: a port of loopback that passes bytes on to another one, and keeps what it has seen.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace grapevine {

// Passes on until it is destroyed. seen() is thread-safe.
class Relay {
 public:
  explicit Relay(std::uint16_t to)
      : to_(to), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = loopback(0);
    ::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address);
    ::listen(listener_, 16);
    socklen_t size = sizeof address;
    ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~Relay() {
    over_ = true;
    thread_.join();
    for (const auto& [from, to] : ways_) ::close(from);
    for (const int ended : ended_) ::close(ended);
    ::close(listener_);
  }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string seen() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return seen_;
  }

 private:
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    return address;
  }

  void serve() {
    while (!over_) {
      std::vector<pollfd> waits = {{listener_, POLLIN, 0}};
      for (const auto& [from, to] : ways_) waits.push_back({from, POLLIN, 0});
      if (::poll(waits.data(), waits.size(), 20) <= 0) continue;
      for (std::size_t i = waits.size() - 1; i > 0; --i)
        if (waits[i].revents != 0) pass_on(i - 1);
      if (waits[0].revents != 0) accept_one();
    }
  }

  void accept_one() {
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = loopback(to_);
    if (::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      ::close(client);
      ::close(server);
      return;
    }
    ways_.emplace_back(client, server);
    ways_.emplace_back(server, client);
  }

  // An end of one side is one of the other; both are closed with this object.
  void pass_on(std::size_t way) {
    std::array<char, 1 << 16> bytes;
    const ssize_t count = ::recv(ways_[way].first, bytes.data(), bytes.size(), 0);
    if (count <= 0) {
      ::shutdown(ways_[way].second, SHUT_WR);
      ended_.push_back(ways_[way].first);
      ways_.erase(ways_.begin() + static_cast<std::ptrdiff_t>(way));
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    seen_.append(bytes.data(), static_cast<std::size_t>(count));
    for (ssize_t sent = 0; sent < count;) {
      const ssize_t now = ::send(ways_[way].second, bytes.data() + sent,
                                 static_cast<std::size_t>(count - sent), MSG_NOSIGNAL);
      if (now <= 0) return;
      sent += now;
    }
  }

  const std::uint16_t to_;
  const int listener_;
  std::uint16_t port_ = 0;
  std::vector<std::pair<int, int>> ways_;  // from, to
  std::vector<int> ended_;
  std::atomic<bool> over_{false};
  mutable std::mutex mutex_;  // guards seen_
  std::string seen_;
  std::thread thread_;
};

}  // namespace grapevine
