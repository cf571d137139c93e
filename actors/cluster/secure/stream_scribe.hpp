// Connections of CAF's middleman over a stream of net/tcp: with TLS or without.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include <caf/io/all.hpp>
#include <caf/io/network/default_multiplexer.hpp>

#include "actors/cluster/secure/basp_guard.hpp"
#include "actors/cluster/secure/silent_connections.hpp"
#include "messages/text/log_limits.hpp"
#include "net/tcp/tcp_stream.hpp"

namespace grapevine {

// The event loop of the system's middleman. REQUIRES: the middleman is loaded, with its default
// backend.
caf::io::network::default_multiplexer& middleman_loop(caf::actor_system& system);

// Handles of such connections and listeners: unlike descriptors, which CAF's own have for handles,
// they do not return while CAF still cleans up after an earlier connection.
std::int64_t next_handle();

// Inside a catch block of a connection or a listener: a line of the log within `limits`. `peer`:
// the address of the other side; empty: not known.
void report_connection_problem(const std::string& peer, LogLimits& limits,
                               LogLimit::Clock::time_point now) noexcept;

// A connection of the middleman over a stream whose handshake, if any, is complete. A BaspGuard
// reads what arrives: bytes that are no messages, and messages that are too long, end the
// connection, with a line of the log within `limits`, those of the listener. Null where the process
// has no further descriptor.
struct ScribeConfig {
  BaspGuard::First first = BaspGuard::First::greeting_of_dialling_side;
  bool buffers = false;  // the stream may hold bytes for which its socket is not readable: TLS
  std::shared_ptr<LogLimits> limits;
  // Of the listener, for connections that may be silent at first; null: the other side is known.
  std::shared_ptr<SilentConnections> silent = nullptr;
};
caf::io::scribe_ptr make_stream_scribe(caf::actor_system& system,
                                       std::unique_ptr<tcp::Stream> stream, ScribeConfig config);
// The same for a listener: where no descriptor is free, a line of the log says so within `limits`.
caf::io::scribe_ptr accept_stream_scribe(caf::actor_system& system,
                                         std::unique_ptr<tcp::Stream> stream, ScribeConfig config);

}  // namespace grapevine
