#include "apps/monitoring/own_hosts.hpp"

#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "messages/text/lower_case.hpp"
#include "net/addresses.hpp"

namespace grapevine {
namespace {

// In small letters, without a port and without the dot at the end of a full name.
std::string host_in(const std::string& header) {
  std::string host = header;
  if (!host.empty() && host.front() == '[')
    host = host.substr(1, host.find(']') - 1);
  else
    host = host.substr(0, host.find(':'));
  if (!host.empty() && host.back() == '.') host.pop_back();
  return lower_case(std::move(host));
}

// "node1" and "node1.cluster.example", as far as this machine knows.
std::vector<std::string> names_of_machine() {
  std::vector<std::string> names = {host_in(machine_name())};
  addrinfo hints{};
  hints.ai_flags = AI_CANONNAME;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(names.front().c_str(), nullptr, &hints, &found) == 0) {
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owned(found, ::freeaddrinfo);
    if (found->ai_canonname != nullptr) names.push_back(host_in(found->ai_canonname));
  }
  for (std::size_t i = 0, count = names.size(); i < count; ++i)
    names.push_back(names[i].substr(0, names[i].find('.')));
  return names;
}

}  // namespace

OwnHosts::OwnHosts(std::vector<std::string> given) : given_(std::move(given)) {
  for (std::string& name : given_) name = host_in(name);
}

bool OwnHosts::include(const std::string& header) {
  if (header.empty()) return true;
  const std::string host = host_in(header);
  if (host.empty()) return false;
  if (address_in_numbers(host) || host == "localhost") return true;
  if (std::find(given_.begin(), given_.end(), host) != given_.end()) return true;
  std::call_once(looked_up_, [this] { names_ = names_of_machine(); });
  return std::find(names_.begin(), names_.end(), host) != names_.end();
}

}  // namespace grapevine
