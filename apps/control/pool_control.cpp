#include "apps/control/pool_control.hpp"

#include <chrono>
#include <utility>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/dial.hpp"
#include "actors/cluster/node_protocol.hpp"
#include "apps/node/node_link.hpp"
#include "net/tcp/credentials/secret_credentials.hpp"
#include "net/token.hpp"

namespace grapevine {
namespace {

constexpr Duration kPoolDialTimeout = std::chrono::seconds(2);
constexpr Duration kPoolTimeout = std::chrono::seconds(4);
constexpr Duration kPoolSilence = std::chrono::seconds(10);

Expected<ControlPlace> ask_pool(caf::actor_system& system, const NodePoolActor& pool,
                                const std::string& secret) {
  auto session = greet_pool(system, pool, secret, kPoolTimeout, {});
  if (!session) return session.error();
  auto place = ask_actor<ControlPlace>(system, pool, kPoolTimeout,
                                       session->to.sealed(system, AskControl{}), {});
  if (!place) return place.error();
  if (!session->from.opens(system, *place))
    return Error{Errc::protocol, "its answer does not prove that it knows the secret"};
  if (place->refused) return place->error;
  return place;
}

}  // namespace

Expected<PoolJobControl> find_pool_job(const std::string& host, std::uint16_t port,
                                       const std::string& secret,
                                       const std::shared_ptr<const tcp::TlsContext>& tls) {
  caf::actor_system_config config;
  configure_for_nodes(config, kPoolSilence);
  caf::actor_system system{config};
  const ListenAddress first{host, port};
  auto pool = dial<NodePoolActor>(
      system,
      {"the first node", host, port, kPoolDialTimeout, {}, tcp::credentials_of(tls, secret)});
  if (!pool) return no_first_node(first, pool.error());
  const auto place = ask_pool(system, *pool, secret);
  if (!place)
    return Error{place.error().code,
                 "the first node at " + text_of(first) + ": " + place.error().message};
  return PoolJobControl{place->job, place->port, mac_of(secret, {"job", place->nonce})};
}

}  // namespace grapevine
