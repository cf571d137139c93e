#include "actors/cluster/rendezvous.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include <caf/all.hpp>
#include <caf/io/all.hpp>

#include "actors/cluster/dial.hpp"
#include "actors/cluster/join/ask_challenge.hpp"
#include "actors/cluster/join/join_proof.hpp"
#include "actors/cluster/secure/publish.hpp"
#include "actors/protocol_wire.hpp"
#include "messages/exit_code.hpp"
#include "messages/text/number_text.hpp"
#include "net/addresses.hpp"
#include "net/auto/wires.hpp"
#include "net/tcp/credentials/secret_credentials.hpp"
#include "net/tcp/tcp_dial.hpp"

namespace grapevine {
namespace {

constexpr Duration kLongestSilence = std::chrono::seconds(60);
constexpr Duration kShortestSilence = std::chrono::seconds(2);  // a busy machine stalls that long
constexpr Duration kLongestHeartbeat = std::chrono::seconds(2);
constexpr int kHeartbeatsInSilence = 4;
constexpr int kMostChallenges = 10;
constexpr Duration kBehindSilence = std::chrono::seconds(10);

// The options that must be equal in all processes.
JobIdentity identity_of(const RunConfig& config) {
  JobIdentity identity = config.cluster->identity;
  identity["transport"] = config.cluster->transport_name;
  identity["timeout"] = number_text(to_seconds(config.timeout));  // heartbeats depend on it
  identity[kResumedKey] = "none";
  if (config.resume) {
    std::vector<Step> steps = config.resume->steps();
    steps.resize(static_cast<std::size_t>(config.workers()));
    identity[kResumedKey] = std::to_string(*std::min_element(steps.begin(), steps.end()));
  }
  return identity;
}

RendezvousConfig rendezvous_config(const RunConfig& config, const SupervisorActor& supervisor,
                                   const BeginRun& crew) {
  const ClusterConfig& cluster = *config.cluster;
  RendezvousConfig rendezvous;
  rendezvous.processes = cluster.processes;
  rendezvous.initial =
      cluster.initial_processes > 0 ? cluster.initial_processes : cluster.processes;
  for (Rank rank = 0; rank < config.ranks; ++rank)
    rendezvous.process_of.push_back(config.process_of(rank));
  rendezvous.where = head_of(cluster);
  rendezvous.secret = cluster.secret;
  rendezvous.job = cluster.job;
  rendezvous.user = static_cast<std::int64_t>(::getuid());
  rendezvous.version = cluster.version;
  rendezvous.identity = identity_of(config);
  rendezvous.identity_with = config.identity_with;
  rendezvous.out = cluster.out;
  rendezvous.transport = cluster.transport_name;
  rendezvous.job_text = cluster.job_text;
  rendezvous.trace_run = config.trace.header.run;
  rendezvous.timeout = cluster.timeout;
  rendezvous.silence = heartbeats_for(config.timeout).silence;
  if (config.lost_after)  // one number for how long a process that others wait for may be silent
    rendezvous.waited_answer = std::max(*config.lost_after, rendezvous.waited_answer);
  rendezvous.supervisor = supervisor;
  rendezvous.crew = crew;
  return rendezvous;
}

Expected<RendezvousActor> open_rendezvous(caf::actor_system& system, const RunConfig& config,
                                          const SupervisorActor& supervisor, const BeginRun& crew) {
  const std::string& host = config.cluster->listen_host;
  const std::uint16_t port = config.cluster->head_port;
  const std::string where =
      "cannot listen on port " + std::to_string(port) + (host.empty() ? "" : " of " + host) + ": ";
  const std::string advice = ": choose another with MASTER_PORT";
  // CAF gives no reason for a failure.
  if (const auto can = can_listen(host, port); !can)
    return Error{Errc::io, where + can.error().message + advice};
  RendezvousActor opened =
      system.spawn(rendezvous_host, rendezvous_config(config, supervisor, crew));
  const auto published =
      publish_actor(system, opened,
                    {host, port, tcp::credentials_of(config.cluster->tls, config.cluster->secret)});
  if (published) return opened;
  caf::anon_send_exit(opened, caf::exit_reason::user_shutdown);
  return Error{Errc::io, where + published.error().message + advice};
}

Error asked_to_stop(const ClusterConfig& cluster) {
  return {Errc::failed, fmt::format(kStoppedAtTheStart, cluster.process)};
}

bool is_cancelled(const ClusterConfig& cluster) { return cluster.cancelled && cluster.cancelled(); }

// The coordinator may start later than the others.
Expected<RendezvousActor> find_rendezvous(caf::actor_system& system, const ClusterConfig& cluster) {
  auto found = dial<RendezvousActor>(
      system, {"process 0", cluster.head_host, cluster.head_port, cluster.timeout,
               cluster.cancelled, tcp::credentials_of(cluster.tls, cluster.secret)});
  if (found) return found;
  if (is_cancelled(cluster)) return asked_to_stop(cluster);
  if (found.error().code == Errc::protocol)  // time would change nothing
    return bad_input(fmt::format("process {} cannot join process 0 at {}: {}", cluster.process,
                                 head_of(cluster), found.error().message));
  return Error{Errc::timeout,
               fmt::format("process {} cannot reach process 0 at {}: {}: is it started there, and "
                           "is the port open?",
                           cluster.process, head_of(cluster), found.error().message)};
}

void report_failure(const RendezvousActor& rendezvous, const ClusterConfig& cluster,
                    const std::string& nonce, const Error& error) {
  Ready failed;
  failed.process = cluster.process;
  failed.nonce = nonce;
  failed.failed = true;
  failed.error = error;
  caf::anon_send(rendezvous, std::move(failed));
}

// The address of this process's transport for others. If the name of the coordinator had no address
// when the transport was made, it has one now.
std::string own_address(const ClusterConfig& cluster) {
  std::string address = cluster.transport->address();
  const std::string host =
      cluster.own_address_unknown ? own_address_towards(cluster.head_host) : std::string();
  if (host.empty()) return address;
  const auto on_host = [&](const std::string& of_tcp) {
    const auto parts = tcp::split_address(of_tcp);
    if (!parts) return of_tcp;
    return tcp::join_address(host, static_cast<std::uint16_t>(std::stoul(parts->second)));
  };
  auto of_wires = wires::unpack_addresses(address);  // of --transport auto
  if (!of_wires) return on_host(address);
  for (auto& [wire, of_wire] : *of_wires)
    if (wire == wires::Wire::tcp) of_wire = on_host(of_wire);
  return wires::pack_addresses(*of_wires);
}

// Without challenge and proof.
Join make_join(const RunConfig& config, const ProcessAgentActor& agent, const std::string& nonce) {
  const ClusterConfig& cluster = *config.cluster;
  Join join;
  join.process = cluster.process;
  join.processes = cluster.processes;
  join.job = cluster.job;
  join.user = static_cast<std::int64_t>(::getuid());
  join.version = cluster.version;
  join.identity = identity_of(config);
  join.host = cluster.own_host;
  join.address = own_address(cluster);
  join.agent = agent;
  join.nonce = nonce;
  return join;
}

Error no_answer(const ClusterConfig& cluster, const Error& error) {
  return {Errc::peer_down, "process 0 at " + head_of(cluster) +
                               " does not answer: " + error.message + ": its own output says why"};
}

Error answer_of_another_job(const ClusterConfig& cluster) {
  return {Errc::protocol,
          "process 0 at " + head_of(cluster) + " answers for another job: is its address right?"};
}

Expected<Admission> ask_once(caf::actor_system& system, const ClusterConfig& cluster,
                             const RendezvousActor& rendezvous, Join join) {
  auto challenge =
      ask_challenge(system, rendezvous, cluster.secret, cluster.timeout, cluster.cancelled);
  if (!challenge) return challenge.error();
  join.challenge = *std::move(challenge);
  if (!cluster.secret.empty()) join.proof = proof_of_join(cluster.secret, join);
  // Longer than the timeout of the rendezvous, so that its own error arrives.
  return ask_actor<Admission>(system, rendezvous, cluster.timeout + std::chrono::seconds(10),
                              std::move(join), cluster.cancelled);
}

// A process that was suspended in between may come with a challenge that is too old: it asks for
// another one.
Expected<Admission> ask(caf::actor_system& system, const RunConfig& config,
                        const RendezvousActor& rendezvous, const ProcessAgentActor& agent,
                        const std::string& nonce) {
  const ClusterConfig& cluster = *config.cluster;
  const Join join = make_join(config, agent, nonce);
  auto result = ask_once(system, cluster, rendezvous, join);
  for (int i = 1; i < kMostChallenges && result && result->refused && result->stale; ++i)
    result = ask_once(system, cluster, rendezvous, join);
  if (!result && is_cancelled(cluster)) {
    report_failure(rendezvous, cluster, nonce, asked_to_stop(cluster));
    return asked_to_stop(cluster);
  }
  if (!result) return no_answer(cluster, result.error());
  if (result->refused) return result->error;
  if (!cluster.secret.empty() &&
      !equal_secrets(result->proof, proof_of_admission(cluster.secret, nonce, *result)))
    return bad_input("process 0 at " + head_of(cluster) +
                     " does not know the secret of this job: does another job listen there?");
  if (!result->supervisor) return answer_of_another_job(cluster);
  return result;
}

// Of all processes, page by page.
Expected<Addresses> ask_addresses(caf::actor_system& system, const ClusterConfig& cluster,
                                  const RendezvousActor& rendezvous, const std::string& nonce) {
  Addresses all;
  const auto known = [&all] { return static_cast<std::int32_t>(all.hosts.size()); };
  while (known() < cluster.processes) {
    auto page = ask_actor<Addresses>(system, rendezvous, cluster.timeout,
                                     AskAddresses{nonce, known()}, cluster.cancelled);
    if (!page && is_cancelled(cluster)) return asked_to_stop(cluster);
    if (!page) return no_answer(cluster, page.error());
    const bool proven =
        cluster.secret.empty() ||
        equal_secrets(page->proof, proof_of_addresses(cluster.secret, nonce, *page));
    if (!proven || page->first != known() || page->hosts.empty() ||
        page->hosts.size() != page->addresses.size())
      return answer_of_another_job(cluster);
    all.hosts.insert(all.hosts.end(), page->hosts.begin(), page->hosts.end());
    all.addresses.insert(all.addresses.end(), page->addresses.begin(), page->addresses.end());
  }
  if (known() > cluster.processes) return answer_of_another_job(cluster);
  return all;
}

Placement placement_of(const RunConfig& config, const std::vector<std::string>& hosts) {
  Placement placement;
  placement.host_of = hosts;
  placement.own_process = config.cluster->process;
  for (Rank rank = 0; rank < config.world_size(); ++rank)
    placement.process_of.push_back(config.process_of(rank));
  return placement;
}

}  // namespace

std::string head_of(const ClusterConfig& cluster) {
  return tcp::join_address(cluster.head_host, cluster.head_port);
}

Heartbeats heartbeats_for(Duration timeout) {
  const Duration silence = std::clamp(timeout, kShortestSilence, kLongestSilence);
  return {std::min(silence / kHeartbeatsInSilence, kLongestHeartbeat), silence};
}

Duration timeout_behind_silence(Duration timeout) {
  return std::max(timeout, heartbeats_for(timeout).silence + kBehindSilence);
}

Duration connect_timeout(Duration timeout, std::int32_t process, std::int32_t processes) {
  if (processes < 2) return timeout;
  const Duration longer = kWaitForDiallers * (processes - 1 - process) / (processes - 1);
  return timeout + std::chrono::duration_cast<std::chrono::seconds>(longer);  // errors name it
}

void configure_for_cluster(caf::actor_system_config& config, Duration timeout) {
  config.load<caf::io::middleman>();
  const Heartbeats heartbeats = heartbeats_for(timeout);
  config.set("middleman.heartbeat-interval", caf::timespan(heartbeats.interval));
  config.set("middleman.connection-timeout", caf::timespan(heartbeats.silence));
  add_message_types(config);
}

Expected<Joined> join_run(caf::actor_system& system, const RunConfig& config,
                          const SupervisorActor& supervisor, const ProcessAgentActor& agent,
                          const BeginRun& crew, KnownLosses& losses,
                          const std::function<void(const Admission&)>& on_admitted) {
  const ClusterConfig& cluster = *config.cluster;
  auto found = cluster.process == 0 ? open_rendezvous(system, config, supervisor, crew)
                                    : find_rendezvous(system, cluster);
  if (!found) return found.error();
  const std::string nonce = random_hex(kNonceBytes);
  auto admission = ask(system, config, *found, agent, nonce);
  if (!admission) return admission.error();
  if (on_admitted) on_admitted(*admission);
  const auto known = ask_addresses(system, cluster, *found, nonce);
  if (!known) {
    report_failure(*found, cluster, nonce, known.error());
    return known.error();
  }
  Placement placement = placement_of(config, known->hosts);
  ConnectOptions options{job_token(cluster.secret, admission->nonce), cluster.cancelled,
                         admission->joins, admission->absent};
  if (options.joins) options.lost = [&losses](std::int32_t process) { return losses.has(process); };
  const Duration timeout =
      admission->joins ? cluster.timeout
                       : connect_timeout(cluster.timeout, cluster.process, cluster.processes);
  auto connected = cluster.transport->connect(known->addresses, placement, timeout, options);
  if (!connected) {
    const Error error = is_cancelled(cluster) ? asked_to_stop(cluster) : connected.error();
    report_failure(*found, cluster, nonce, error);
    return error;
  }
  losses.on_connected();
  return Joined{*std::move(admission), std::move(placement), *std::move(found), nonce};
}

}  // namespace grapevine
