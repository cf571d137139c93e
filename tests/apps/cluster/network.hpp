// Network namespaces as machines, for tests of several hosts. Header-only; needs root.
#pragma once
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/apps/process.hpp"

namespace grapevine {

inline constexpr int kHosts = 3;

inline bool runs_well(const std::string& command) {
  return std::system((command + " >/dev/null 2>&1").c_str()) == 0;  // NOLINT: fixed commands
}

// Three namespaces on a bridge in a fourth, so that nothing of the machine's own network changes.
// Gone with the object.
class Network {
 public:
  Network() : prefix_("gv" + std::to_string(::getpid()) + "n") {
    const std::string bridge = prefix_ + "b";
    good_ = runs_well("ip netns add " + bridge) && in(bridge, "ip link add br0 type bridge") &&
            in(bridge, "ip link set br0 up");
    for (int host = 0; host < kHosts && good_; ++host) good_ = add_host(host, bridge);
  }
  ~Network() {
    for (int host = 0; host < kHosts; ++host) runs_well("ip netns del " + name(host));
    runs_well("ip netns del " + prefix_ + "b");
  }
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  bool good() const { return good_; }
  std::string name(int host) const { return prefix_ + std::to_string(host); }
  static std::string address(int host) { return "10.77.0." + std::to_string(host + 1); }

  // What `from` sends to `to` vanishes from now on, without a word to either.
  bool cut(int from, int to) const {
    return in(name(from), "ip route add blackhole " + address(to) + "/32");
  }

  bool mend(int from, int to) const {
    return in(name(from), "ip route del blackhole " + address(to) + "/32");
  }

  // A second network of that host, on which nobody else is.
  bool add_network(int host) const {
    return in(name(host), "ip link add eth1 type veth peer name eth2") &&
           in(name(host), "ip addr add 10.78.0.1/24 dev eth1") &&
           in(name(host), "ip link set eth1 up") && in(name(host), "ip link set eth2 up");
  }
  bool route_by_default(int host, int via) const {
    return in(name(host), "ip route add default via " + address(via));
  }

  // `grapevine` on that host, as the process of that rank. `more`: variables. With `hosts`, a file
  // that is its /etc/hosts, the head is host "node1".
  Process start(int host, const std::vector<std::string>& arguments,
                const std::vector<std::string>& more = {}, const std::string& hosts = "") const {
    std::vector<std::string> command = {"netns", "exec", name(host)};
    if (!hosts.empty())  // `ip netns exec` has given it mounts of its own
      command.insert(command.end(),
                     {"sh", "-c", "mount --bind \"$0\" /etc/hosts && exec \"$@\"", hosts});
    command.emplace_back(GRAPEVINE_EXECUTABLE);
    command.insert(command.end(), arguments.begin(), arguments.end());
    ProcessOptions options;
    options.program = "/usr/sbin/ip";
    options.environment = {"RANK=" + std::to_string(host),
                           "WORLD_SIZE=" + std::to_string(kHosts),
                           "LOCAL_RANK=0",
                           "LOCAL_WORLD_SIZE=1",
                           "MASTER_ADDR=" + (hosts.empty() ? address(0) : "node1"),
                           "MASTER_PORT=29511",
                           "UCX_TLS=tcp",
                           "UCX_NET_DEVICES=eth0"};
    options.environment.insert(options.environment.end(), more.begin(), more.end());
    return Process(command, options);
  }

 private:
  static bool in(const std::string& space, const std::string& command) {
    return runs_well("ip netns exec " + space + " " + command);
  }
  bool add_host(int host, const std::string& bridge) {
    const std::string space = name(host), port = "port" + std::to_string(host);
    return runs_well("ip netns add " + space) &&
           runs_well("ip link add eth0 netns " + space + " type veth peer name " + port +
                     " netns " + bridge) &&
           in(bridge, "ip link set " + port + " master br0") &&
           in(bridge, "ip link set " + port + " up") && in(space, "ip link set lo up") &&
           in(space, "ip addr add " + address(host) + "/24 dev eth0") &&
           in(space, "ip link set eth0 up") &&
           in(space, "tc qdisc add dev eth0 root tbf rate 200mbit burst 256kbit latency 50ms");
  }

  const std::string prefix_;
  bool good_ = false;
};

}  // namespace grapevine
