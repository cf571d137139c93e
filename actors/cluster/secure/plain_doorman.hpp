// The listener of CAF's middleman without TLS.
#pragma once
#include <cstdint>
#include <string>

#include <caf/io/all.hpp>

#include "actors/cluster/secure/silent_connections.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// As CAF's own listener; but each connection has a BaspGuard, and a line of the log where it is
// refused (stream_scribe.hpp), and those that stay silent are limited by `silence`. An empty
// `host`: all interfaces, by IPv6 and IPv4. Errors (io): the system refuses the address, and CAF
// gives no reason.
Expected<caf::io::doorman_ptr> make_plain_doorman(caf::actor_system& system,
                                                  const std::string& host, std::uint16_t port,
                                                  const SilentConnections::Limits& silence);

}  // namespace grapevine
