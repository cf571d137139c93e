// Runtime: one training run, of all its ranks in this process or of this process's share of them.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/record/checkpoints/checkpoint_keeper.hpp"
#include "actors/record/checkpoints/saved_view.hpp"
#include "actors/record/state_stream.hpp"
#include "actors/record/tracer.hpp"
#include "actors/run/control/control_hub.hpp"
#include "actors/run/control/live_settings.hpp"
#include "actors/run/delay.hpp"
#include "actors/run/reporter.hpp"
#include "actors/run/run_observer.hpp"
#include "actors/run/simulation/virtual_world.hpp"
#include "algorithms/wiring/plan.hpp"
#include "gpu/compute.hpp"
#include "gpu/device.hpp"
#include "gpu/memory/model_memory.hpp"
#include "gpu/threads/near_cpus.hpp"
#include "net/remote.hpp"
#include "net/tcp/tls/tls_context.hpp"
#include "net/transport.hpp"

namespace grapevine {

// This process among those of a run. Process 0 is the coordinator: it supervises, validates and
// writes.
struct ClusterConfig {
  std::int32_t process = 0;
  std::int32_t processes = 1;          // that the run has places for, and
  std::int32_t initial_processes = 0;  // the first ones, which begin it; 0: all
  std::string head_host;               // where the coordinator listens for the others
  std::uint16_t head_port = 0;
  std::string own_host;     // name of this machine: processes with equal names share memory
  std::string version;      // of this program
  std::string out;          // of the coordinator
  std::string listen_host;  // where the coordinator listens; empty: on all interfaces
  std::string secret;       // of the job, which all its processes know; empty: none
  std::shared_ptr<const tcp::TlsContext> tls;  // of control messages; null: they are not encrypted
  std::string job;                             // the launcher's name for it; empty: not known
  std::shared_ptr<RemoteTransport> transport;
  bool own_address_unknown =
      false;                   // when that was made: its host is to be found at the rendezvous
  std::string transport_name;  // must be the same in all processes
  JobIdentity identity;  // of the job, with the defaults of its wiring: equal in all processes
  std::string job_text;  // of the coordinator: for processes that join later, as job.toml has it
  // Polled while this process waits for the others; true ends the run before it begins. Null:
  // never.
  std::function<bool()> cancelled;
  // Places the trace of this process in the coordinator's output folder; `joins`: the run has
  // begun, with an earlier process of this number. Null: none is written.
  std::function<Expected<void>(const std::string& out, bool joins, TraceSettings& trace)>
      place_trace;
  Duration timeout{std::chrono::seconds(60)};  // for all to join, and again for all to connect
};

// A rank that is lost during a run in virtual time.
struct Death {
  Rank rank = 0;
  Duration at{0};  // since the start
};

// Later it takes part again, without what it had: as soon as the others have agreed on its loss.
struct Return {
  Rank rank = 0;
  Duration at{0};  // since the start
};

// The device that keeps the model of a rank, for each actor that uses it with streams of its own.
struct PeerDevice {
  std::shared_ptr<DeviceRuntime> peer;  // null: the model is in the host's memory
  // Of the rank's stagers. REQUIRES: not null where other ranks are in other processes.
  std::shared_ptr<DeviceRuntime> outgoing = nullptr;
  std::shared_ptr<DeviceRuntime> incoming = nullptr;
  CpuSet stager_cpus = {};  // to which the stagers' threads are bound; empty: they are not
};

struct RunConfig {
  std::int32_t ranks = 1;  // those that train, then the servers of the plan, if any
  // Further ranks of the transport: for servers of wirings that come while the run trains.
  std::int32_t spare_ranks = 0;
  std::uint64_t seed = 1;
  std::shared_ptr<const SharedParts> parts;
  std::shared_ptr<Transport> transport;
  std::optional<ClusterConfig> cluster;  // nothing: all ranks are in this process
  // By rank that trains; null for those of other processes.
  std::vector<std::shared_ptr<Compute>> computes;
  std::int64_t batches_before = 0;  // see BatchEpochs
  // By rank, servers and spare ranks included: the devices that keep the models. Empty: all models
  // are in the host's memory. Of no use for ranks of other processes.
  std::vector<PeerDevice> peer_devices;
  // Pinned, for the models of this process that are in the host's memory; null: they lie in
  // ordinary memory.
  std::shared_ptr<ModelMemory> model_memory;
  std::shared_ptr<Compute> evaluator;   // null: no validation beside training
  DelayModel delay;                     // stragglers
  std::vector<Death> deaths;            // only run_virtual()
  std::optional<Duration> stop_at;      // only run_virtual(): ends it, with a checkpoint
  std::vector<Return> returns;          // only run_virtual()
  std::shared_ptr<VirtualWorld> world;  // null: a network that takes no time
  std::int32_t min_workers = 0;         // 0: more than half of those that begin the run
  // The first ranks, which begin the run; 0: all that train. Others may take the places that are
  // left while it trains: of processes that join, or, in virtual time, by `returns`.
  std::int32_t initial_workers = 0;
  int threads = 1;  // intra-op threads per worker
  Step log_every = 1;
  // Of the messages with a state that one rank gives to another. Equal in all processes.
  std::int64_t state_part_bytes = StateStream::kPart;
  std::size_t counts_per_message = ViewCounts::kMostNumbers;  // of a view: see split_counts()
  TraceSettings trace;
  std::string checkpoint_folder;  // empty: no checkpoints
  double checkpoint_every_epochs = 1;
  KeptCheckpoints kept_checkpoints;
  // Of the run that this one continues in the same folder.
  std::map<Epoch, Evaluation> earlier_validations;
  // Called once, by the writer's thread, before it writes the first one. Null: nothing to do.
  std::function<void()> before_first_checkpoint;
  // The folder holds results of another run: nothing is written there before the first step.
  bool output_in_use = false;
  JobIdentity identity;
  std::optional<Checkpoint> resume;
  Duration timeout{std::chrono::seconds(300)};  // these four: see SupervisorConfig
  std::optional<Duration> first_timeout;
  std::optional<Duration> stall_abort;
  std::optional<Duration> lost_after;
  // Makes the parts after a change of a running job, in every process. Null: settings do not
  // change.
  ChangeParts change;
  std::vector<ScheduledChange> schedule;  // in process 0
  // The identity of checkpoints after changes. Null: settings do not change.
  std::function<JobIdentity(const LiveSettings&)> identity_with;
  // The text of a job file for each checkpoint. Null: there is none.
  std::function<std::string(const LiveSettings&)> job_file_with;
  // Through which others ask the run, in process 0. Null: nobody does.
  std::shared_ptr<ControlHub> control;

  std::int32_t servers() const { return parts->plan.servers; }
  std::int32_t workers() const { return ranks - servers(); }
  // Ranks of the transport: those of the run and the spare ones.
  std::int32_t world_size() const { return ranks + spare_ranks; }
  // Servers are in process 0.
  std::int32_t process_of(Rank rank) const;
  std::int32_t beginning_workers() const {
    return initial_workers > 0 ? initial_workers : workers();
  }
  // The ranks of places that nobody has at the start.
  std::vector<Rank> vacant() const;
  // Of the ranks that begin a run with vacant places: the first steps are dealt among them alone.
  // Nothing: all begin it, or it continues from a checkpoint, which has its view. Without the
  // position of a rank.
  std::optional<SavedView> first_view() const;
  // Epochs of the checkpoint's fastest rank: they are not validated again.
  double resumed_most() const;
};

// A run on real threads: CAF's scheduler for peers, a thread of its own for each worker.
class Runtime {
 public:
  // Starts training; the observer's on_end is called exactly once. In a cluster this waits for the
  // other processes, at most twice their timeout; an error ends the run in all of them.
  // `report` (may be null): receives the same calls, on a thread of its own; it has received all of
  // them once shut_down() has succeeded. REQUIRES: a valid config.
  Runtime(RunConfig config, std::shared_ptr<RunObserver> observer,
          std::shared_ptr<RunReport> report = nullptr);
  // Waits for the actors to end: call it after on_end, and not where shut_down() has failed.
  ~Runtime();

  // Waits for the actors to end, for about `timeout` at most. False: a thread does not return,
  // e.g. from a module that loops or a read that hangs. The objects that it uses must then stay:
  // leak this object, and end the process without destructors. REQUIRES: after on_end.
  bool shut_down(Duration timeout);

  // Then ends the control plane, and the transport, which delivers its last messages. Errors
  // (timeout): one of them does not end; as for shut_down(), leak this object. REQUIRES:
  // shut_down() has succeeded.
  struct CloseTimeouts {
    Duration control_plane, transport;
  };
  Expected<void> close(const CloseTimeouts& timeout);

  // Thread-safe; not for signal handlers.
  void request_stop();
  void request_checkpoint();

 private:
  struct Impl;
  void dismiss();
  std::unique_ptr<Impl> impl_;
};

}  // namespace grapevine
