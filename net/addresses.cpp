#include "net/addresses.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <vector>

#include "messages/names.hpp"

namespace grapevine {
namespace {

std::string numeric_name(const sockaddr* address, socklen_t size) {
  std::array<char, NI_MAXHOST> name{};
  const int failed =
      ::getnameinfo(address, size, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? name.data() : "";
}

}  // namespace

Expected<std::string> interface_address(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0)
    return Error{Errc::io, std::string("network interfaces: ") + std::strerror(errno)};
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<std::string> names;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
    if (interface == entry->ifa_name) return numeric_name(entry->ifa_addr, sizeof(sockaddr_in));
    names.emplace_back(entry->ifa_name);
  }
  return unknown_name("network interface", interface, names);
}

// Connecting a datagram socket sends nothing; it only makes the kernel choose the route.
std::string own_address_towards(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  const int socket = ::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return "";
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  const bool routed = ::connect(socket, found->ai_addr, found->ai_addrlen) == 0 &&
                      ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &size) == 0;
  ::close(socket);
  return routed ? numeric_name(reinterpret_cast<sockaddr*>(&own), size) : "";
}

}  // namespace grapevine
