#include "actors/rendezvous.hpp"

#include <algorithm>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

namespace grapevine {
namespace {

constexpr caf::timespan kHeartbeat = std::chrono::seconds(2);
constexpr caf::timespan kSilence =
    std::chrono::seconds(60);  // after which a process counts as gone
constexpr Duration kFirstPause = std::chrono::milliseconds(50);
constexpr Duration kLongestPause = std::chrono::seconds(2);

Timestamp now_of(caf::actor_system& system) {
  return std::chrono::duration_cast<Duration>(system.clock().now().time_since_epoch());
}

// What must be the same in all processes.
JobIdentity identity_of(const RunConfig& config) {
  JobIdentity identity = config.identity;
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

// Tries again, ever more rarely: the head may come later than the others.
Expected<LobbyActor> find_lobby(caf::actor_system& system, const ClusterConfig& cluster) {
  caf::scoped_actor self{system};  // waits on the system's clock
  const Timestamp deadline = now_of(system) + cluster.patience;
  for (Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    auto found = system.middleman().remote_actor<LobbyActor>(cluster.head_host, cluster.head_port);
    if (found) return *found;
    if (now_of(system) + pause > deadline)
      return Error{Errc::timeout, "process " + std::to_string(cluster.process) +
                                      " cannot reach process 0 at " + head_of(cluster) + ": " +
                                      system.render(found.error()) +
                                      ": is it started there, and is the port open?"};
    self->receive(caf::after(pause) >> [] {});
  }
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
  caf::scoped_actor self{system};
  Expected<Welcome> result = Error{};
  // Longer than the lobby waits itself, so that its own words arrive.
  self->request(lobby, cluster.patience + std::chrono::seconds(10), std::move(join))
      .receive([&](Welcome& welcome) { result = std::move(welcome); },
               [&](const caf::error& error) {
                 result = Error{Errc::peer_down, "process 0 at " + head_of(cluster) +
                                                     " does not answer: " + system.render(error) +
                                                     ": its own output says why"};
               });
  if (result && result->refused) return result->error;
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

void configure_for_cluster(caf::actor_system_config& config) {
  config.load<caf::io::middleman>();
  config.set("middleman.heartbeat-interval", kHeartbeat);
  config.set("middleman.connection-timeout", kSilence);
  config.add_message_type<StartTraining>("grapevine::StartTraining");
  config.add_message_type<PeerLost>("grapevine::PeerLost");
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
    Ready failed;
    failed.process = cluster.process;
    failed.failed = true;
    failed.error = connected.error();
    caf::anon_send(*found, std::move(failed));
    return connected.error();
  }
  return Joined{*std::move(welcome), std::move(placement), *std::move(found)};
}

}  // namespace grapevine
