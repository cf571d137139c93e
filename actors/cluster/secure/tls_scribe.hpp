// The connections of CAF's middleman over TLS.
#pragma once
#include <cstdint>
#include <memory>

#include <caf/io/all.hpp>
#include <caf/io/network/default_multiplexer.hpp>

#include "net/tcp/tcp_stream.hpp"

namespace grapevine {

// The event loop of the system's middleman. REQUIRES: the middleman is loaded, with its default
// backend.
caf::io::network::default_multiplexer& middleman_loop(caf::actor_system& system);

// Handles of such connections and listeners: unlike descriptors, which CAF's own have for handles,
// they do not return while CAF still cleans up after an earlier connection.
std::int64_t next_handle();

// A connection of the middleman over a stream whose handshake is complete. Errors: null, where the
// process has no further descriptor.
caf::io::scribe_ptr make_tls_scribe(caf::actor_system& system, std::unique_ptr<tcp::Stream> stream);

}  // namespace grapevine
