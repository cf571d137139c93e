// The listener of CAF's middleman over TLS.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include <caf/io/all.hpp>

#include "actors/cluster/secure/silent_connections.hpp"
#include "messages/expected.hpp"
#include "net/tcp/tls/tls_context.hpp"

namespace grapevine {

// Listens at once; connections reach the broker of the middleman, once it has the doorman, when
// their TLS handshake is complete. From then on those that stay silent are limited by `silence`, as
// at the port without TLS. Errors (io): as TlsAcceptor.
Expected<caf::io::doorman_ptr> make_tls_doorman(caf::actor_system& system, const std::string& host,
                                                std::uint16_t port,
                                                std::shared_ptr<const tcp::TlsContext> tls,
                                                const SilentConnections::Limits& silence);

}  // namespace grapevine
