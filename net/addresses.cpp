#include "net/addresses.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>
#include <system_error>
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

std::vector<std::string> interface_names() {
  std::vector<std::string> names;
  const std::unique_ptr<struct if_nameindex, decltype(&::if_freenameindex)> list(
      ::if_nameindex(), &::if_freenameindex);
  for (const struct if_nameindex* entry = list.get(); entry != nullptr && entry->if_index != 0;
       ++entry)
    names.emplace_back(entry->if_name);
  return names;
}

// "mlx5_0:1", as UCX names them.
std::vector<std::string> infiniband_ports() {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& adapter : fs::directory_iterator("/sys/class/infiniband", ignored))
    for (const auto& port : fs::directory_iterator(adapter.path() / "ports", ignored))
      names.push_back(adapter.path().filename().string() + ":" + port.path().filename().string());
  return names;
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

Expected<void> check_network_devices(const std::string& devices) {
  std::vector<std::string> names = interface_names();
  const std::vector<std::string> ports = infiniband_ports();
  names.insert(names.end(), ports.begin(), ports.end());
  std::istringstream list(devices);
  for (std::string device; std::getline(list, device, ',');)
    if (device != "all" && std::find(names.begin(), names.end(), device) == names.end())
      return unknown_name("network interface", device, names);
  return {};
}

Expected<std::uint16_t> free_tcp_port() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  const int descriptor = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool found = descriptor >= 0 && ::bind(descriptor, generic, size) == 0 &&
                     ::getsockname(descriptor, generic, &size) == 0;
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (!found) return Error{Errc::io, std::string("no free port: ") + std::strerror(error)};
  return ntohs(address.sin_port);
}

std::string machine_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

bool is_loopback_host(const std::string& host) {
  in_addr four{};
  in6_addr six{};
  if (::inet_pton(AF_INET, host.c_str(), &four) == 1) return ntohl(four.s_addr) >> 24 == 127;
  if (::inet_pton(AF_INET6, host.c_str(), &six) == 1) return IN6_IS_ADDR_LOOPBACK(&six);
  return host == "localhost";
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
