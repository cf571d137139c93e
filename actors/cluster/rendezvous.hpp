// Rendezvous: how a process comes into a run of several.
#pragma once
#include <string>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>

#include "actors/cluster/rendezvous_host.hpp"
#include "actors/run/runtime.hpp"

namespace grapevine {

// A process that says nothing for `silence` counts as gone: a dead one is noticed at once, a
// stopped one or a severed cable only by that.
struct Heartbeats {
  Duration interval;
  Duration silence;
};
// The silence is `patience`, at least two seconds and at most a minute.
Heartbeats heartbeats_for(Duration patience);

// The same for the connections between the head and the others, over which `bytes` may be on their
// way at once: the states of all ranks, for a checkpoint. CAF counts what it hears only when a
// whole message has come, so that they must be able to come, over a link of 100 Mbit/s.
Heartbeats control_heartbeats_for(Duration patience, std::uint64_t bytes);

// How long a run of several processes waits for progress: `patience`, but never less than that
// silence and 10 s more, so that silence is noticed first. It says which process, or which link.
Duration patience_behind_silence(Duration patience, std::uint64_t bytes);

// Network, heartbeats and the messages that cross processes. Call it before the system is made. All
// processes of a run have the same patience and `bytes` (see above).
void configure_for_cluster(caf::actor_system_config& config, Duration patience,
                           std::uint64_t bytes);

// "host:port" of the head, for messages.
std::string head_of(const ClusterConfig& cluster);

struct Joined {
  Admission admission;
  Placement placement;
  RendezvousActor rendezvous;  // waits for this process's Ready
  std::string nonce;           // which that must carry
};

// Opens the rendezvous where this is the head, finds it elsewhere, waits until all processes have
// joined, and connects the transport to all of them. Blocks for at most three times the patience,
// and while it waits for others until it is cancelled, which they are told.
// Errors: timeout or io with the address that could not be reached; what the rendezvous refused
// (bad_input). A transport that cannot be connected is told to the rendezvous, and so to all
// others, as well.
Expected<Joined> join_run(caf::actor_system& system, const RunConfig& config,
                          const SupervisorActor& supervisor, const ProcessAgentActor& agent,
                          const BeginRun& crew);

}  // namespace grapevine
