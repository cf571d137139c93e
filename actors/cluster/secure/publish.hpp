// Actors that other processes reach, with TLS or without.
#pragma once
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "messages/expected.hpp"
#include "net/tcp/tls/tls_context.hpp"

namespace grapevine {

struct PublishConfig {
  std::string host;                                      // empty: all interfaces, by IPv6 and IPv4
  std::uint16_t port = 0;                                // 0: any that is free
  std::shared_ptr<const tcp::TlsContext> tls = nullptr;  // null: without TLS
};

// REQUIRES: config.tls.
Expected<std::uint16_t> publish_with_tls(caf::actor_system& system,
                                         const caf::strong_actor_ptr& actor,
                                         std::set<std::string> interface,
                                         const PublishConfig& config);

// The port. CAF's own OpenSSL module is not used: one connection with other bytes than TLS ends all
// others there, and a silent one keeps a core busy (docs/adr/0023). Errors (io): the system refuses
// the address.
template <class Handle>
Expected<std::uint16_t> publish_actor(caf::actor_system& system, const Handle& actor,
                                      const PublishConfig& config) {
  if (config.tls)
    return publish_with_tls(system, caf::actor_cast<caf::strong_actor_ptr>(actor),
                            system.message_types(actor), config);
  // An earlier process leaves connections behind that would keep the port for a minute.
  const bool reuse = true;
  const char* const host = config.host.empty() ? nullptr : config.host.c_str();
  const auto port = system.middleman().publish(actor, config.port, host, reuse);
  if (!port) return Error{Errc::io, "the system refuses"};  // CAF gives no reason
  return *port;
}

}  // namespace grapevine
