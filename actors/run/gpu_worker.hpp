// GpuWorker: a pure gradient computer on a thread of its own.
#pragma once
#include <memory>

#include "actors/protocol/peer.hpp"
#include "actors/record/wait_report.hpp"
#include "actors/run/delay.hpp"
#include "gpu/compute.hpp"

namespace grapevine {

struct WorkerConfig {
  Rank rank = 0;
  std::shared_ptr<Compute> compute;  // owned by this worker alone once spawned
  DelayModel delay;                  // how much later than computed a gradient is handed over
  int threads = 1;                   // intra-op threads of this worker
  std::shared_ptr<SharedWorkerActivity> activity;  // of its Peer
  bool measures = true;  // false, in virtual time: what a gradient took on this machine is not told
  std::int64_t run_start_ns = 0;  // of the actor system's clock: the zero of the delays' pauses
};

struct WorkerState {
  WorkerConfig config;
  const char* name = "gpu_worker";
  Duration free_at{0};  // of the actor system's clock: when its last gradient is done
};

// Answers each GradientRequest with one Gradient to `peer`, after the parts that its Compute gives
// before. On a real clock a delay holds up the Gradient alone, as the parts are computed by then;
// in virtual time each part comes after its share of the computation. Spawn it detached, so that a
// long computation holds up no other actor; the virtual runtime spawns it on its scheduler.
WorkerActor::behavior_type gpu_worker(WorkerActor::stateful_pointer<WorkerState> self,
                                      WorkerConfig config, PeerActor peer);

}  // namespace grapevine
