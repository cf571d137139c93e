// CrewBuilder: spawns the actors of a run, or of one process of it, and connects them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <caf/actor_system.hpp>

#include "actors/protocol/run.hpp"
#include "actors/record/trace_budget.hpp"
#include "actors/record/tracer.hpp"
#include "actors/run/peer.hpp"
#include "actors/run/peer/stager.hpp"
#include "actors/run/runtime.hpp"
#include "actors/run/simulation/control_link.hpp"
#include "actors/run/supervisor.hpp"

namespace grapevine {

// SupervisorConfig::process_down and SupervisorConfig::expect_process of a process of `cluster`.
std::function<void(std::int32_t process)> process_down_of(const ClusterConfig& cluster);
std::function<void(const ExpectProcess& expected)> expect_process_of(const ClusterConfig& cluster);

// Of the first rank that trains in this process. REQUIRES: there is one.
const std::shared_ptr<Compute>& first_compute(const RunConfig& config);

// Constant after construction but for the actors that it has spawned. Not thread-safe: the thread
// that builds the run uses it, later the supervisor's. REQUIRES: `system` and `config` outlive it;
// it is owned by a shared_ptr.
class CrewBuilder : public std::enable_shared_from_this<CrewBuilder> {
 public:
  // `detach`: workers, evaluations and writers of files get threads of their own.
  CrewBuilder(caf::actor_system& system, RunConfig& config, bool detach);

  // All of a run in this process; training begins at once.
  SupervisorActor build(std::shared_ptr<RunObserver> observer);
  // The supervisor, evaluator, writer and tracer, without the ranks.
  SupervisorActor spawn_coordinator(std::shared_ptr<RunObserver> observer);
  // Of the ranks of this process.
  TracerActor spawn_tracer(TraceOwner owner);
  // Of a process other than process 0: for the states and models of its ranks. REQUIRES: the number
  // of the run is known.
  ShardWriterActor spawn_shard_writer(const SupervisorActor& supervisor);
  ModelSenderActor spawn_model_sender();
  // With its worker and stagers, attached to the transport.
  PeerActor spawn_peer(Rank rank, const SupervisorActor& supervisor,
                       const EvaluatorActor& evaluator, const TracerActor& tracer);
  // REQUIRES: before spawn_peer(), in a process that joins a run that has begun.
  void join_through(JoiningAgentActor agent) { agent_ = std::move(agent); }

  // The handle that other processes use: in virtual time, messages to it take the control delay.
  template <class Handle>
  Handle across_link(const Handle& actor) const {
    return across_control_link(system_, actor,
                               config_.world ? config_.world->control_delay : Duration::zero());
  }

  const BeginRun& crew() const { return crew_; }
  // Of wirings that have come.
  const std::vector<PeerActor>& later_servers() const { return later_servers_; }
  std::int64_t trace_zero_ns() const { return run_start_ns_; }

 private:
  template <class F, class Config, class... Rest>
  auto spawn_aside(F behavior, Config config, Rest... rest);
  void spawn_model_fetcher(const SupervisorActor& supervisor);
  PeerActor spawn_later_server(Rank rank, const SupervisorActor& supervisor);
  std::string shard_nonce() const;
  bool exchanges_by_reference(Rank rank) const;
  StagerConfig stager_config(const PeerConfig& peer, std::shared_ptr<DeviceRuntime> device,
                             CpuSet cpus) const;
  SupervisorConfig supervisor_config(std::shared_ptr<RunObserver> observer);
  void set_membership(SupervisorConfig& supervision);
  void set_checkpoints(SupervisorConfig& supervision) const;
  void set_timeouts(SupervisorConfig& supervision) const;
  void resume(SupervisorConfig& supervision) const;
  void resume_view(SupervisorConfig& supervision) const;
  void continue_view(SupervisorConfig& supervision, const SavedView& view) const;
  bool continues_in_place() const;
  bool is_longer() const;
  std::vector<Rank> absent_ranks() const;
  PeerConfig peer_config(Rank rank, const SupervisorActor& supervisor,
                         const EvaluatorActor& evaluator, const TracerActor& tracer) const;

  caf::actor_system& system_;
  RunConfig& config_;
  const bool detach_;
  const std::int64_t run_start_ns_;
  // Null in virtual time: there the disk is never behind.
  const std::shared_ptr<TraceBudget> trace_budget_;

  BeginRun crew_;
  std::vector<PeerActor> later_servers_;
  ShardWriterActor shards_;  // null in process 0, and
  ModelSenderActor models_;
  JoiningAgentActor agent_;
};

}  // namespace grapevine
