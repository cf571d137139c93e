// The dialling side of a TCP connection, with a bound on every wait. (The kernel's own bound on
// connecting is over two minutes where packets are lost.)
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/cancelled.hpp"
#include "net/file_descriptor.hpp"
#include "net/tcp/credentials/credentials.hpp"
#include "net/tcp/tcp_greeting.hpp"
#include "net/tcp/tcp_stream.hpp"

namespace grapevine::tcp {

using Clock = std::chrono::steady_clock;

// "host:port" and "[host]:port", as address() of the transport gives them.
std::string join_address(const std::string& host, std::uint16_t port);
// Errors (bad_input): anything else, also an empty host or port.
Expected<std::pair<std::string, std::string>> split_address(const std::string& address);

// The host of any text, and what follows its last colon; brackets around the host are left out, and
// a colon inside them is none. "fd00::1" without brackets has the port "1".
struct HostAndPort {
  std::string host;                 // may be empty
  std::optional<std::string> port;  // may be empty; none: no colon follows the host
};
HostAndPort split_port(const std::string& text);

// This host's address towards the others, for a process that listens on all interfaces: that of the
// default route; without one "127.0.0.1".
std::string primary_address(bool ipv6);

// "host:port" of the other end of a connection, in numbers, for the log.
std::string address_of_peer(int descriptor);

// A connection on which nothing is sent.
struct Probe {
  std::string host;  // where it leads, in numbers
  FileDescriptor socket;
};

// Whether `host` accepts connections at `port`. Errors: timeout, io: why not; failed: cancelled.
Expected<Probe> probe(const std::string& host, std::uint16_t port, Clock::duration timeout,
                      const Cancelled& cancelled = nullptr);

// Connects and greets (tcp_greeting.hpp), again and again until `deadline`. A refusal and an answer
// that no retry would change end it at once; `joins`: the others may have yet to learn that this
// process returns, so their refusals change. `credentials`: null: those of the greeting alone.
// `host`: the name of the process's machine, which its certificate may have in place of the
// address; empty: none known.
// Errors (timeout, protocol, bad_input; failed: cancelled): the reason alone, without the name of
// the process.
Expected<std::unique_ptr<Stream>> dial(const std::string& address, const LinkIdentity& own,
                                       std::int32_t process, Clock::time_point deadline,
                                       const Cancelled& cancelled = nullptr, bool joins = false,
                                       const Credentials* credentials = nullptr,
                                       const std::string& host = "");

// The first byte from a StreamAcceptor.
inline constexpr std::byte kStreamAccepted{1};

// One attempt to reach a StreamAcceptor: a stream that it has accepted. Errors (protocol: the
// credentials of one side are not accepted, or the other side has others or none; io, timeout;
// failed: cancelled): the reason alone.
Expected<std::unique_ptr<Stream>> dial_stream(const std::string& address, Clock::duration timeout,
                                              const Cancelled& cancelled,
                                              const Credentials& credentials);
// The same on a connection to that address on which nothing was sent.
Expected<std::unique_ptr<Stream>> prove(FileDescriptor socket, const std::string& address,
                                        Clock::duration timeout, const Cancelled& cancelled,
                                        const Credentials& credentials);
// Without credentials, of a listener that sends first. `first`: the bytes that it has sent so far,
// at least one and at most `most`; they stay in the stream. Errors: as above.
struct Greeted {
  std::unique_ptr<Stream> stream;
  std::vector<std::byte> first;
};
Expected<Greeted> await_greeting(FileDescriptor socket, Clock::duration timeout,
                                 const Cancelled& cancelled, std::size_t most);

// Whether the other end of a connection on which nothing was sent requires TLS. Blocks for at most
// `timeout`; false where it is cancelled.
bool answers_with_tls(FileDescriptor socket, Clock::duration timeout,
                      const Cancelled& cancelled = nullptr);

}  // namespace grapevine::tcp
