// The listener of CAF's middleman.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include <caf/io/all.hpp>

#include "actors/cluster/secure/silent_connections.hpp"
#include "messages/expected.hpp"
#include "net/tcp/credentials/credentials.hpp"

namespace grapevine {

// Listens at once; connections reach the broker of the middleman, once it has the doorman, when
// the handshake of the credentials is complete; null: at once. Each has a BaspGuard, and a line of
// the log where it is refused (stream_scribe.hpp); those that stay silent from then on are limited
// by `silence`. An empty `host`: all interfaces, by IPv6 and IPv4. Errors (io): as StreamAcceptor.
Expected<caf::io::doorman_ptr> make_stream_doorman(
    caf::actor_system& system, const std::string& host, std::uint16_t port,
    std::shared_ptr<const tcp::Credentials> credentials, const SilentConnections::Limits& silence);

}  // namespace grapevine
