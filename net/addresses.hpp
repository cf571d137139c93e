// Addresses of this machine, as other machines see them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "messages/expected.hpp"
#include "net/file_descriptor.hpp"

namespace grapevine {

// The first IPv4 address of a network interface. Errors (bad_input): no such interface, with the
// nearest guess, or none of its addresses is IPv4.
Expected<std::string> interface_address(const std::string& interface);

// Whether UCX could use each of `devices`, which are separated by commas: a network interface, or a
// port of an InfiniBand adapter such as mlx5_0:1; "all" means all of them. Errors (bad_input):
// one that this machine does not have, with the nearest guess.
Expected<void> check_network_devices(const std::string& devices);

// A TCP port on which no program listens. For as long as this object lives, the system gives the
// port to no program that asks for any free one; a program that asks for this very port, with
// SO_REUSEADDR as can_listen() and the head of a job do, may listen on it. Without one, a
// connection or a listener of any process could take the port between its choice and its use.
struct ReservedPort {
  std::uint16_t number = 0;
  FileDescriptor holder;  // bound to the port; does not listen
};

// Errors (io).
Expected<ReservedPort> reserve_tcp_port();

// This machine's name; "localhost" where it has none.
std::string machine_name();

// The address from which this machine would send to `host` (a name or an address); sends nothing.
// Empty where the host cannot be resolved within ten seconds or there is no route to it.
std::string own_address_towards(const std::string& host);

// Where to listen so that others reach this machine as `host`, and on no other interface: the only
// address of this machine that the name stands for. Loopback where `host` says so itself, or where
// a name of this machine stands for it (as /etc/hosts may have it) and `all_here`: no other
// machine connects. Empty, for all interfaces: the name stands for several addresses of this
// machine, of which others may use any; for none, as behind a router or a service; or it cannot be
// resolved within ten seconds.
std::string listening_address(const std::string& host, bool all_here);
// The choice alone, among the addresses of this machine that a name stands for.
std::string chosen_address(const std::vector<std::string>& own,
                           const std::vector<std::string>& loopback, bool loopback_meant);

// Whether this process may listen there; `host` empty: on all interfaces. Errors (io): the
// system's text, such as "Address already in use".
Expected<void> can_listen(const std::string& host, std::uint16_t port);

// The address at which a program listens.
struct ListenAddress {
  std::string host = "127.0.0.1";  // an address or a name; 0.0.0.0: all interfaces
  std::uint16_t port = 0;          // 0: one that is free
  std::string name = {};           // by which other machines know it; empty: none
};

// "HOST:PORT" or "[IPV6]:PORT", with a port from `least_port`, which is 0 or 1. Errors (bad_input)
// name `option`.
Expected<ListenAddress> parse_listen_address(const std::string& option, const std::string& text,
                                             std::uint16_t least_port = 0);
// Also "PORT" alone, on loopback, and each of them behind "NAME@". Errors (bad_input) as above.
Expected<ListenAddress> parse_named_address(const std::string& option, const std::string& text);

// `host`, an IPv4 or IPv6 address in numbers, in the form that each address has once: "fd00:0::2"
// is "fd00::2", and an IPv4 address in IPv6 ("::ffff:10.0.0.1", RFC 4291, section 2.5.5.2) is that
// IPv4 address. Nothing where it is a name; names are not looked up, and zones ("fe80::1%eth0") are
// none of an address's numbers.
std::optional<std::string> address_in_numbers(const std::string& host);

// Whether `host` is this machine: "localhost", 127.x.y.z or ::1. Other names are not
// looked up.
bool is_loopback_host(const std::string& host);

}  // namespace grapevine
