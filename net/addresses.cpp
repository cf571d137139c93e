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
#include <charconv>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>
#include <vector>

#include "messages/text/names.hpp"
#include "net/file_descriptor.hpp"
#include "net/resolve.hpp"

namespace grapevine {
namespace {

constexpr std::chrono::seconds kLookUp{10};

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

// Linux gives a port to two sockets with SO_REUSEADDR while neither listens, but to no caller that
// left the choice open.
Expected<ReservedPort> reserve_tcp_port() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  socklen_t size = sizeof address;
  ReservedPort port;
  port.holder.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int socket = port.holder.get();
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const int on = 1;
  const bool found =
      socket >= 0 && ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      ::bind(socket, generic, size) == 0 && ::getsockname(socket, generic, &size) == 0;
  if (!found) return Error{Errc::io, std::string("no free port: ") + std::strerror(errno)};
  port.number = ntohs(address.sin_port);
  return port;
}

std::string machine_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::optional<std::string> address_in_numbers(const std::string& host) {
  constexpr std::size_t kBeforeIpv4 = sizeof(in6_addr) - sizeof(in_addr);
  in_addr four{};
  in6_addr six{};
  std::array<char, INET6_ADDRSTRLEN> text{};
  bool is_four = ::inet_pton(AF_INET, host.c_str(), &four) == 1;
  if (!is_four && ::inet_pton(AF_INET6, host.c_str(), &six) != 1) return std::nullopt;
  if (!is_four && IN6_IS_ADDR_V4MAPPED(&six)) {
    std::memcpy(&four, six.s6_addr + kBeforeIpv4, sizeof four);
    is_four = true;
  }
  const void* const bytes = is_four ? static_cast<const void*>(&four) : &six;
  ::inet_ntop(is_four ? AF_INET : AF_INET6, bytes, text.data(), text.size());
  return text.data();
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
  const auto found = resolve(host, "9", std::chrono::steady_clock::now() + kLookUp);
  if (!found) return "";
  const SocketAddress& to = found->front();
  const FileDescriptor socket(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return "";
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  const bool routed = ::connect(socket.get(), to.get(), to.size) == 0 &&
                      ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0;
  return routed ? numeric_name(reinterpret_cast<sockaddr*>(&own), size) : "";
}

namespace {

constexpr char kFreePort[] = ", or 0 for one that is free";
constexpr char kHostNameCharacters[] =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";

std::optional<std::uint16_t> port_in(const std::string& digits) {
  std::uint16_t port = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, port);
  return error == std::errc() && stopped == end ? std::optional(port) : std::nullopt;
}

std::optional<ListenAddress> host_and_port(const std::string& text) {
  const auto colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = text.substr(0, colon);
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const auto port = port_in(text.substr(colon + 1));
  const char* const refused = bracketed ? " \t/@" : " \t/@:";
  if (!port || host.empty() || host.find_first_of(refused) != std::string::npos)
    return std::nullopt;
  return ListenAddress{std::move(host), *port};
}

}  // namespace

Expected<ListenAddress> parse_listen_address(const std::string& option, const std::string& text,
                                             std::uint16_t least_port) {
  auto address = host_and_port(text);
  if (address && address->port >= least_port) return *std::move(address);
  const bool many_colons = std::count(text.begin(), text.end(), ':') > 1;
  return bad_input(option + " '" + text + "': expected " +
                   (many_colons ? "[ADDRESS]:PORT, as of IPv6" : "HOST:PORT") +
                   ", with a port from 1 to 65535" + (least_port == 0 ? kFreePort : ""));
}

Expected<ListenAddress> parse_named_address(const std::string& option, const std::string& text) {
  const auto at = text.find('@');
  const bool has_name = at != std::string::npos;
  const std::string name = has_name ? text.substr(0, at) : "";
  const std::string place = has_name ? text.substr(at + 1) : text;
  const bool is_name = !has_name || (!name.empty() && name.find_first_not_of(kHostNameCharacters) ==
                                                          std::string::npos);
  auto address = host_and_port(place);
  if (const auto port = port_in(place)) address = ListenAddress{"127.0.0.1", *port};
  if (!is_name || !address)
    return bad_input(option + " '" + text +
                     "': expected PORT, HOST:PORT or NAME@HOST:PORT, with a port from 1 to 65535" +
                     kFreePort);
  address->name = name;
  return *std::move(address);
}

namespace {

// An errno; 0: this process may listen there.
int listening_error(const SocketAddress& address, bool also_listen) {
  const FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return errno;
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool done = ::bind(socket.get(), address.get(), address.size) == 0 &&
                    (!also_listen || ::listen(socket.get(), 1) == 0);
  return done ? 0 : errno;
}

}  // namespace

std::string listening_address(const std::string& host, bool all_here) {
  const auto found = resolve(host, "0", std::chrono::steady_clock::now() + kLookUp);
  if (!found) return "";
  std::vector<std::string> own, loopback;
  for (const SocketAddress& address : *found)
    if (std::string name = numeric_host(address); listening_error(address, false) == 0)
      (is_loopback_host(name) ? loopback : own).push_back(std::move(name));
  return chosen_address(own, loopback, all_here || is_loopback_host(host));
}

// Of several addresses the other machines may use any: then the process listens on all interfaces.
std::string chosen_address(const std::vector<std::string>& own,
                           const std::vector<std::string>& loopback, bool loopback_meant) {
  if (loopback_meant && !loopback.empty()) return loopback.front();
  return own.size() == 1 ? own.front() : "";
}

Expected<void> can_listen(const std::string& host, std::uint16_t port) {
  const auto found = resolve(host.empty() ? "0.0.0.0" : host, std::to_string(port),
                             std::chrono::steady_clock::now() + kLookUp);
  if (!found) return found.error();
  int first = 0;  // error
  for (const SocketAddress& address : *found) {
    const int error = listening_error(address, true);
    if (error == 0) return {};
    if (first == 0) first = error;
  }
  return Error{Errc::io, std::generic_category().message(first)};
}

}  // namespace grapevine
