// Stagers: actors that copy the vectors of messages between a rank's device and the host's memory.
#pragma once
#include <cstdint>
#include <memory>

#include "actors/run/peer/local_peer.hpp"
#include "gpu/device.hpp"
#include "gpu/memory/transfers.hpp"
#include "gpu/threads/near_cpus.hpp"
#include "net/transport.hpp"

namespace grapevine {

struct StagerConfig {
  Rank rank = 0;
  std::shared_ptr<DeviceRuntime> device;  // of the rank's model, with streams of this actor's own
  CpuSet cpus = {};  // to which the actor's own thread is bound, near the device; empty: it is not
  std::shared_ptr<Transport> transport;
  std::uint64_t model_bytes = 0;  // of all parameters
  Duration timeout{0};            // the longest wait for a copy, and for the work before it
};

struct StagerState {
  // Runs `work`, which returns Expected<void>. Where it fails or throws, the peer gets
  // StagingFailed, with the text what() before the error.
  template <class Work, class Text>
  bool succeeds(const LocalPeerActor& peer, Work work, Text what);
  // The same of copies between the device and the host.
  template <class Copies>
  bool copying_succeeds(const LocalPeerActor& peer, Copies copies);
  // The host has waited for the only tensor of the message, or has copied all of them, as it does
  // where the links of the process have many bytes to send.
  Expected<void> make_ready(Envelope& envelope);
  bool has_backlog() const;
  Expected<void> wait_for(const FrozenTensor& written);
  Expected<void> copy_to_host(Payload& payload);
  Expected<void> copy_to_device(Payload& payload);

  const char* name = "stager";
  StagerConfig config;
  std::unique_ptr<Transfers> transfers;
};

// Between a rank whose model is on a device and the ranks of other processes, whose messages are in
// the host's memory (Transport::by_reference), or in the device's where the transport reads and
// writes that itself (Transport::takes_device_memory): these pass without a copy. Copies go through
// pinned memory in streams of their own, so that neither the peer nor its stream waits for them: an
// outgoing message waits here until its values are written, and copied where it needs a copy. All
// messages to other processes, and all that arrive, pass in their order: each pair of ranks remains
// FIFO. Both actors end with the peer, which links to the outgoing one, whose messages come from
// the peer itself. Spawn both detached, as they block; the virtual runtime spawns them on its
// scheduler.
OutgoingStagerActor::behavior_type outgoing_stager(
    OutgoingStagerActor::stateful_pointer<StagerState> self, StagerConfig config);
// The peer receives the loss of a rank once what it had sent before has left `outgoing`: none of it
// reaches a later life of that rank.
IncomingStagerActor::behavior_type incoming_stager(
    IncomingStagerActor::stateful_pointer<StagerState> self, StagerConfig config,
    LocalPeerActor peer, OutgoingStagerActor outgoing);

}  // namespace grapevine
