// Actors that other processes reach, with credentials or without.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/secure/silent_connections.hpp"
#include "messages/expected.hpp"
#include "net/tcp/credentials/credentials.hpp"

namespace grapevine {

struct PublishConfig {
  std::string host;        // empty: all interfaces, by IPv6 and IPv4
  std::uint16_t port = 0;  // 0: any that is free
  // Of connections before they reach CAF; null: none.
  std::shared_ptr<const tcp::Credentials> credentials = nullptr;
  SilentConnections::Limits silence = {};  // after the handshake, if there is one
};

Expected<std::uint16_t> publish_on_port(caf::actor_system& system,
                                        const caf::strong_actor_ptr& actor,
                                        std::set<std::string> interface,
                                        const PublishConfig& config);

// The port. Neither CAF's own listener is used, which drops connections without a word, nor its
// OpenSSL module: one connection with other bytes than TLS ends all others there, and a silent one
// keeps a core busy (docs/adr/0023). Errors (io): the system refuses the address.
template <class Handle>
Expected<std::uint16_t> publish_actor(caf::actor_system& system, const Handle& actor,
                                      const PublishConfig& config) {
  return publish_on_port(system, caf::actor_cast<caf::strong_actor_ptr>(actor),
                         system.message_types(actor), config);
}

}  // namespace grapevine
