#include "actors/cluster/secure/publish.hpp"

#include <utility>

#include <caf/io/basp_broker.hpp>

#include "actors/cluster/secure/stream_doorman.hpp"

namespace grapevine {

// Does what caf::io::middleman::publish() does: that function can only use its own listener.
Expected<std::uint16_t> publish_on_port(caf::actor_system& system,
                                        const caf::strong_actor_ptr& actor,
                                        std::set<std::string> interface,
                                        const PublishConfig& config) {
  auto doorman =
      make_stream_doorman(system, config.host, config.port, config.credentials, config.silence);
  if (!doorman) return doorman.error();
  const std::uint16_t port = (*doorman)->port();
  const auto broker = system.middleman().named_broker<caf::io::basp_broker>(caf::atom("BASP"));
  caf::anon_send(broker, caf::publish_atom::value, *std::move(doorman), port, actor,
                 std::move(interface));
  return port;
}

}  // namespace grapevine
