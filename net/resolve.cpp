#include "net/resolve.hpp"

#include <netdb.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <memory>
#include <system_error>
#include <thread>

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

Addresses look_up(const std::string& host, const std::string& port, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  if (failed != 0) return Error{Errc::io, ::gai_strerror(failed)};
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress address;
    std::memcpy(&address.bytes, entry->ai_addr, entry->ai_addrlen);
    address.size = entry->ai_addrlen;
    addresses.push_back(address);
  }
  if (addresses.empty()) return Error{Errc::io, "the name has no address"};
  return addresses;
}

}  // namespace

std::string numeric_host(const SocketAddress& address) {
  std::array<char, NI_MAXHOST> name{};
  const int failed = ::getnameinfo(address.get(), address.size, name.data(), name.size(), nullptr,
                                   0, NI_NUMERICHOST);
  return failed == 0 ? name.data() : "";
}

Addresses resolve(const std::string& host, const std::string& port, Clock::time_point deadline,
                  const Cancelled& cancelled) {
  // Sends no query, so it never waits.
  if (auto numeric = look_up(host, port, AI_NUMERICHOST); numeric) return numeric;
  return answer_within([host, port] { return look_up(host, port, 0); }, deadline, cancelled);
}

Addresses answer_within(std::function<Addresses()> ask, Clock::time_point deadline,
                        const Cancelled& cancelled) {
  auto answered = std::make_shared<std::promise<Addresses>>();
  std::future<Addresses> answer = answered->get_future();
  try {
    std::thread([answered, ask = std::move(ask)] { answered->set_value(ask()); }).detach();
  } catch (const std::system_error& error) {
    return Error{Errc::io, std::string("no thread to look the name up: ") + error.what()};
  }
  while (answer.wait_until(std::min(deadline, Clock::now() + kCancelPoll)) !=
         std::future_status::ready) {
    if (cancelled && cancelled()) return Error{Errc::failed, "asked to stop"};
    if (Clock::now() >= deadline) return Error{Errc::timeout, "the name service does not answer"};
  }
  return answer.get();
}

}  // namespace grapevine
