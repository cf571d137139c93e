#include "actors/rendezvous.hpp"

#include <algorithm>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/dial.hpp"
#include "messages/number_text.hpp"

namespace grapevine {
namespace {

constexpr Duration kLongestSilence = std::chrono::seconds(60);
constexpr Duration kShortestSilence = std::chrono::seconds(2);  // a busy machine stalls that long
constexpr Duration kLongestHeartbeat = std::chrono::seconds(2);
constexpr int kHeartbeatsInSilence = 4;

// What must be the same in all processes.
JobIdentity identity_of(const RunConfig& config) {
  JobIdentity identity = config.identity;
  identity["transport"] = config.cluster->transport_name;
  identity["timeout"] = number_text(to_seconds(config.patience));  // heartbeats depend on it
  identity["resumed from step"] = "none";
  if (config.resume) {
    std::vector<Step> steps = config.resume->steps();
    steps.resize(static_cast<std::size_t>(config.workers()));
    identity["resumed from step"] = std::to_string(*std::min_element(steps.begin(), steps.end()));
  }
  return identity;
}

LobbyConfig lobby_config(const RunConfig& config, const SupervisorActor& supervisor,
                         const BeginRun& crew) {
  const ClusterConfig& cluster = *config.cluster;
  LobbyConfig lobby;
  lobby.processes = cluster.processes;
  lobby.version = cluster.version;
  lobby.identity = identity_of(config);
  lobby.out = cluster.out;
  lobby.patience = cluster.patience;
  lobby.supervisor = supervisor;
  lobby.evaluator = crew.evaluator;
  lobby.writer = crew.writer;
  lobby.tracer = crew.tracer;
  return lobby;
}

Expected<LobbyActor> open_lobby(caf::actor_system& system, const RunConfig& config,
                                const SupervisorActor& supervisor, const BeginRun& crew) {
  LobbyActor opened = system.spawn(lobby, lobby_config(config, supervisor, crew));
  const std::uint16_t port = config.cluster->head_port;
  const auto published = system.middleman().publish(opened, port);
  if (published) return opened;
  caf::anon_send_exit(opened, caf::exit_reason::user_shutdown);
  return Error{Errc::io, "cannot listen on port " + std::to_string(port) + ": " +
                             system.render(published.error()) +
                             ": is it in use? Choose another with MASTER_PORT"};
}

Error asked_to_stop(const ClusterConfig& cluster) {
  return {Errc::failed, "process " + std::to_string(cluster.process) +
                            " was asked to stop before training began"};
}

bool is_cancelled(const ClusterConfig& cluster) { return cluster.cancelled && cluster.cancelled(); }

// The head may come later than the others.
Expected<LobbyActor> find_lobby(caf::actor_system& system, const ClusterConfig& cluster) {
  auto found = dial<LobbyActor>(
      system, {cluster.head_host, cluster.head_port, cluster.patience, cluster.cancelled});
  if (found) return found;
  if (is_cancelled(cluster)) return asked_to_stop(cluster);
  return Error{Errc::timeout, "process " + std::to_string(cluster.process) +
                                  " cannot reach process 0 at " + head_of(cluster) + ": " +
                                  found.error().message +
                                  ": is it started there, and is the port open?"};
}

void tell_lobby(const LobbyActor& lobby, const ClusterConfig& cluster, const Error& error) {
  Ready failed;
  failed.process = cluster.process;
  failed.failed = true;
  failed.error = error;
  caf::anon_send(lobby, std::move(failed));
}

Expected<Welcome> ask(caf::actor_system& system, const RunConfig& config, const LobbyActor& lobby,
                      const DeputyActor& deputy) {
  const ClusterConfig& cluster = *config.cluster;
  Join join;
  join.process = cluster.process;
  join.version = cluster.version;
  join.identity = identity_of(config);
  join.host = cluster.own_host;
  join.address = cluster.transport->address();
  join.deputy = deputy;
  // Longer than the lobby waits itself, so that its own words arrive.
  auto result = ask_actor<Welcome>(system, lobby, cluster.patience + std::chrono::seconds(10),
                                   std::move(join), cluster.cancelled);
  if (!result && is_cancelled(cluster)) {
    tell_lobby(lobby, cluster, asked_to_stop(cluster));
    return asked_to_stop(cluster);
  }
  if (!result)
    return Error{Errc::peer_down, "process 0 at " + head_of(cluster) + " does not answer: " +
                                      result.error().message + ": its own output says why"};
  if (result->refused) return result->error;
  return result;
}

Placement placement_of(const RunConfig& config, const std::vector<std::string>& hosts) {
  Placement placement;
  placement.host_of = hosts;
  placement.own_process = config.cluster->process;
  const std::int32_t last = config.cluster->processes - 1;
  const std::int32_t each = config.workers() / config.cluster->processes;
  for (Rank rank = 0; rank < config.ranks; ++rank)
    placement.process_of.push_back(std::min(rank / each, last));  // servers: in the last one
  return placement;
}

}  // namespace

std::string head_of(const ClusterConfig& cluster) {
  return cluster.head_host + ":" + std::to_string(cluster.head_port);
}

Heartbeats heartbeats_for(Duration patience) {
  const Duration silence = std::clamp(patience, kShortestSilence, kLongestSilence);
  return {std::min(silence / kHeartbeatsInSilence, kLongestHeartbeat), silence};
}

void configure_for_cluster(caf::actor_system_config& config, Duration patience) {
  config.load<caf::io::middleman>();
  const Heartbeats heartbeats = heartbeats_for(patience);
  config.set("middleman.heartbeat-interval", caf::timespan(heartbeats.interval));
  config.set("middleman.connection-timeout", caf::timespan(heartbeats.silence));
  config.add_message_type<StartTraining>("grapevine::StartTraining");
  config.add_message_type<PeerLost>("grapevine::PeerLost");
  config.add_message_type<LinkLost>("grapevine::LinkLost");
  config.add_message_type<ProcessLost>("grapevine::ProcessLost");
  config.add_message_type<Ping>("grapevine::Ping");
  config.add_message_type<Pong>("grapevine::Pong");
  config.add_message_type<TakeSnapshot>("grapevine::TakeSnapshot");
  config.add_message_type<Collect>("grapevine::Collect");
  config.add_message_type<StepReport>("grapevine::StepReport");
  config.add_message_type<RankFinished>("grapevine::RankFinished");
  config.add_message_type<RankSnapshot>("grapevine::RankSnapshot");
  config.add_message_type<RankReport>("grapevine::RankReport");
  config.add_message_type<RankFailed>("grapevine::RankFailed");
  config.add_message_type<EpochModel>("grapevine::EpochModel");
  config.add_message_type<StopRequested>("grapevine::StopRequested");
  config.add_message_type<CheckpointRequested>("grapevine::CheckpointRequested");
  config.add_message_type<Farewell>("grapevine::Farewell");
  config.add_message_type<RunEnded>("grapevine::RunEnded");
  config.add_message_type<Join>("grapevine::Join");
  config.add_message_type<Welcome>("grapevine::Welcome");
  config.add_message_type<Ready>("grapevine::Ready");
}

Expected<Joined> join_run(caf::actor_system& system, const RunConfig& config,
                          const SupervisorActor& supervisor, const DeputyActor& deputy,
                          const BeginRun& crew) {
  const ClusterConfig& cluster = *config.cluster;
  auto found = cluster.process == 0 ? open_lobby(system, config, supervisor, crew)
                                    : find_lobby(system, cluster);
  if (!found) return found.error();
  auto welcome = ask(system, config, *found, deputy);
  if (!welcome) return welcome.error();
  Placement placement = placement_of(config, welcome->hosts);
  auto connected = cluster.transport->connect(welcome->addresses, placement, cluster.patience);
  if (!connected) {
    tell_lobby(*found, cluster, connected.error());
    return connected.error();
  }
  return Joined{*std::move(welcome), std::move(placement), *std::move(found)};
}

}  // namespace grapevine
