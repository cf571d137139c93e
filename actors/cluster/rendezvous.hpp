// Rendezvous: how a process joins a run of several processes.
#pragma once
#include <functional>
#include <string>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include "actors/cluster/join/known_losses.hpp"
#include "actors/cluster/rendezvous_host.hpp"
#include "actors/run/runtime.hpp"

namespace grapevine {

// A process that sends nothing for `silence` counts as lost: a dead one is detected at once, a
// stopped one or a severed cable only by its silence.
struct Heartbeats {
  Duration interval;
  Duration silence;
};
// The silence is `timeout`, at least two seconds and at most a minute.
Heartbeats heartbeats_for(Duration timeout);

// How long a run of several processes waits for progress: `timeout`, but never less than that
// silence and 10 s more, so that silence is detected first: its error names the process or the
// link.
Duration timeout_behind_silence(Duration timeout);

// How long each process of a job waits to be connected to the others. Of two processes the one with
// the higher number dials (over ucx the other one), so it knows what fails: it gives up first, and
// all report its error. The last process has `timeout`, the first kWaitForDiallers more.
Duration connect_timeout(Duration timeout, std::int32_t process, std::int32_t processes);

// Sets up network, heartbeats and the messages between processes. Call it before the system is
// made. All processes of a run have the same timeout.
void configure_for_cluster(caf::actor_system_config& config, Duration timeout);

// "host:port" of the coordinator, for messages.
std::string head_of(const ClusterConfig& cluster);

struct Joined {
  Admission admission;
  Placement placement;
  RendezvousActor rendezvous;  // waits for this process's Ready
  std::string nonce;           // which that must carry
};

// Opens the rendezvous in the coordinator, finds it in other processes, waits until all processes
// that begin the run have joined, and connects the transport to all of them. Blocks for at most
// four times the timeout and kWaitForDiallers where no challenge is too old (at most ten are asked
// for), and while it waits for others until it is cancelled, which is reported to them. Errors:
// timeout or io with the address that could not be reached; the reason of a refusal (bad_input). A
// transport that cannot be connected is reported to the rendezvous, and so to all others. `losses`:
// those that are reported to `agent`; a process that joins a run connects without them.
// `on_admitted` is called before the transport connects; null: nothing to do.
Expected<Joined> join_run(caf::actor_system& system, const RunConfig& config,
                          const SupervisorActor& supervisor, const ProcessAgentActor& agent,
                          const BeginRun& crew, KnownLosses& losses,
                          const std::function<void(const Admission&)>& on_admitted = {});

}  // namespace grapevine
