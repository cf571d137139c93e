#include "actors/run/crew_builder.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include <spdlog/spdlog.h>
#include <caf/all.hpp>

#include "actors/clock_time.hpp"
#include "actors/cluster/rendezvous.hpp"
#include "actors/record/checkpoints/checkpoint_writer.hpp"
#include "actors/record/resume_hint.hpp"
#include "actors/record/shards/shard_writer.hpp"
#include "actors/run/models/evaluator.hpp"
#include "actors/run/models/model_averager.hpp"
#include "actors/run/models/model_fetcher.hpp"
#include "actors/run/models/model_sender.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/check.hpp"
#include "messages/tensor_memory.hpp"

namespace grapevine {
namespace {

// Of a run whose settings stay: its wiring may still begin anew among other members.
ChangeParts unchanged_parts(std::shared_ptr<const SharedParts> parts) {
  return [parts = std::move(parts)](
             const LiveSettings& settings) -> Expected<std::shared_ptr<const SharedParts>> {
    if (settings.empty()) return parts;
    return bad_input("this run keeps its settings");
  };
}

// The transport is connected: it has memory to send from if processes of this machine share some.
void log_model_memory(Rank rank) {
  if (has_send_memory())
    spdlog::info(
        "rank {}: its model is not in pinned memory, as processes of this machine share memory",
        rank);
  else
    spdlog::info("rank {}: its model lies in pinned memory, from which GPUs copy it", rank);
}

}  // namespace

std::function<void(std::int32_t)> process_down_of(const ClusterConfig& cluster) {
  return
      [transport = cluster.transport](std::int32_t process) { transport->process_down(process); };
}

std::function<void(const ExpectProcess&)> expect_process_of(const ClusterConfig& cluster) {
  return [transport = cluster.transport](const ExpectProcess& expected) {
    transport->expect_process(expected.process, expected.host, expected.address);
  };
}

const std::shared_ptr<Compute>& first_compute(const RunConfig& config) {
  return *std::find_if(config.computes.begin(), config.computes.end(),
                       [](const auto& compute) { return compute != nullptr; });
}

CrewBuilder::CrewBuilder(caf::actor_system& system, RunConfig& config, bool detach)
    : system_(system),
      config_(config),
      detach_(detach),
      run_start_ns_(clock_time(system.clock()).count()),
      trace_budget_(detach ? std::make_shared<TraceBudget>() : nullptr) {}

// Beside the scheduler's threads where the run is real.
template <class F, class Config, class... Rest>
auto CrewBuilder::spawn_aside(F behavior, Config config, Rest... rest) {
  return detach_ ? system_.spawn<caf::detached>(behavior, std::move(config), std::move(rest)...)
                 : system_.spawn(behavior, std::move(config), std::move(rest)...);
}

// ---- actors ----

SupervisorActor CrewBuilder::build(std::shared_ptr<RunObserver> observer) {
  SupervisorActor supervisor = spawn_coordinator(std::move(observer));
  const SupervisorActor behind_link = across_link(supervisor);
  const std::vector<Rank> vacant = config_.vacant();
  for (Rank rank = 0; rank < config_.ranks; ++rank)
    crew_.peers.push_back(std::binary_search(vacant.begin(), vacant.end(), rank)
                              ? PeerActor()
                              : spawn_peer(rank, behind_link, crew_.evaluator, crew_.tracer));
  BeginRun seen = crew_;
  for (PeerActor& peer : seen.peers)
    if (peer) peer = across_link(peer);
  caf::anon_send(supervisor, std::move(seen));
  return supervisor;
}

SupervisorActor CrewBuilder::spawn_coordinator(std::shared_ptr<RunObserver> observer) {
  SupervisorActor spawned = system_.spawn(supervisor, supervisor_config(std::move(observer)));
  if (config_.trace.on) crew_.tracer = spawn_tracer(spawned);
  if (!config_.checkpoint_folder.empty())
    crew_.writer =
        spawn_aside(checkpoint_writer,
                    CheckpointWriterConfig{config_.checkpoint_folder, config_.identity,
                                           config_.kept_checkpoints, config_.evaluator != nullptr,
                                           config_.earlier_validations, spawned,
                                           config_.resume ? config_.resume->path : "", is_longer(),
                                           config_.before_first_checkpoint, shard_nonce(),
                                           config_.identity_with, config_.job_file_with});
  if (config_.cluster) spawn_model_fetcher(spawned);
  if (config_.evaluator)
    crew_.evaluator = system_.spawn(
        evaluator, EvaluatorConfig{config_.world_size(), config_.world_size() - config_.workers(),
                                   config_.evaluator, spawned, crew_.fetcher, detach_});
  return spawned;
}

// For the models of other processes.
void CrewBuilder::spawn_model_fetcher(const SupervisorActor& supervisor) {
  ModelFetcherConfig config{supervisor, {}};
  for (Rank rank = 0; rank < config_.ranks; ++rank)
    if (config_.process_of(rank) == 0) config.receivers.push_back(rank);
  crew_.fetcher = system_.spawn(model_fetcher, std::move(config));
  crew_.averager = spawn_aside(model_averager, ModelAveragerConfig{supervisor, crew_.fetcher});
}

ShardWriterActor CrewBuilder::spawn_shard_writer(const SupervisorActor& supervisor) {
  shards_ = system_.spawn<caf::detached>(
      shard_writer, ShardWriterConfig{config_.transport, supervisor, shard_nonce()});
  return shards_;
}

ModelSenderActor CrewBuilder::spawn_model_sender() {
  models_ = system_.spawn<caf::detached>(model_sender, ModelSenderConfig{config_.transport});
  return models_;
}

TracerActor CrewBuilder::spawn_tracer(TraceOwner owner) {
  TraceSettings settings = config_.trace;
  TraceHeader& header = settings.header;
  header.workers = config_.workers();
  header.servers = config_.servers();
  header.spare = config_.spare_ranks;
  if (config_.cluster) header.processes = config_.cluster->processes;
  for (Rank rank = 0; rank < config_.ranks; ++rank)
    if (config_.process_of(rank) == header.process) header.ranks.push_back(rank);
  header.zero_monotonic_ns = run_start_ns_;
  header.zero_realtime_ns += run_start_ns_;
  return spawn_aside(tracer,
                     TracerConfig{std::move(settings), std::move(owner), trace_budget_, detach_});
}

PeerActor CrewBuilder::spawn_peer(Rank rank, const SupervisorActor& supervisor,
                                  const EvaluatorActor& evaluator, const TracerActor& tracer) {
  PeerConfig config = peer_config(rank, supervisor, evaluator, tracer);
  if (config.model_memory) log_model_memory(rank);
  const bool staged = config.device && !exchanges_by_reference(rank);
  StagerConfig incoming;
  if (staged) {
    const PeerDevice& device = config_.peer_devices[static_cast<std::size_t>(rank)];
    config.outgoing =
        spawn_aside(outgoing_stager, stager_config(config, device.outgoing, device.stager_cpus));
    incoming = stager_config(config, device.incoming, device.stager_cpus);
  }
  const OutgoingStagerActor outgoing = config.outgoing;
  LocalPeerActor spawned = system_.spawn(peer, std::move(config));
  std::shared_ptr<Inbox> inbox =
      staged
          ? make_mailbox_inbox(spawn_aside(incoming_stager, std::move(incoming), spawned, outgoing))
          : make_mailbox_inbox(PeerActor{spawned});
  const auto attached = config_.transport->attach(rank, std::move(inbox));
  GRAPEVINE_CHECK(attached.ok(), attached.error().message);
  return spawned;
}

// In process 0, on the supervisor's thread.
PeerActor CrewBuilder::spawn_later_server(Rank rank, const SupervisorActor& supervisor) {
  later_servers_.push_back(
      spawn_peer(rank, across_link(supervisor), crew_.evaluator, crew_.tracer));
  return across_link(later_servers_.back());
}

// The same in all processes of the run, and in no other run.
std::string CrewBuilder::shard_nonce() const { return std::to_string(config_.trace.header.run); }

// ---- configuration of the supervisor ----

SupervisorConfig CrewBuilder::supervisor_config(std::shared_ptr<RunObserver> observer) {
  SupervisorConfig supervision;
  supervision.observer = std::move(observer);
  const Compute& compute = *first_compute(config_);
  supervision.parameters = compute.dimension();
  supervision.buffers = compute.initial_buffers().numel();
  supervision.run_start_ns = supervision.trace_zero_ns = run_start_ns_;
  if (config_.cluster) {
    supervision.process_down = process_down_of(*config_.cluster);
    supervision.expect_process = expect_process_of(*config_.cluster);
  }
  set_membership(supervision);
  set_checkpoints(supervision);
  set_timeouts(supervision);
  const Horizon& horizon = supervision.horizon;
  supervision.total_epochs = horizon.epoch_of(horizon.steps);
  if (config_.resume) resume(supervision);
  return supervision;
}

// The ranks, and how they and the wiring may change.
void CrewBuilder::set_membership(SupervisorConfig& supervision) {
  const Plan& plan = config_.parts->plan;
  supervision.ranks = config_.ranks;
  supervision.servers = config_.servers();
  supervision.changes_members = changes_members(plan);
  const bool continues_alone =
      plan.servers > 0 && plan.hierarchy == 1 && plan.role->tolerates_lost_peer;
  supervision.tolerates_worker_loss = supervision.changes_members || continues_alone;
  supervision.models = ViewChange::Models::of(plan);
  supervision.counts_per_message = config_.counts_per_message;
  supervision.horizon = config_.parts->horizon;
  const double batches = supervision.horizon.steps_per_epoch * config_.workers();
  supervision.batches.per_epoch = std::max<std::int64_t>(1, std::llround(batches));
  supervision.batches.before = config_.batches_before;
  if (changes_members(plan)) supervision.change = config_.change;
  if (changes_members(plan) && !supervision.change && plan.role->changes_by_mean)
    supervision.change = unchanged_parts(config_.parts);
  supervision.schedule = config_.schedule;
  supervision.most_servers = config_.world_size() - config_.workers();
  supervision.spawn_server = [self = shared_from_this()](Rank rank,
                                                         const SupervisorActor& supervisor) {
    return self->spawn_later_server(rank, supervisor);
  };
  supervision.min_workers =
      config_.min_workers > 0 ? config_.min_workers : config_.beginning_workers() / 2 + 1;
  supervision.vacant = config_.vacant();
  if (const auto view = config_.first_view()) continue_view(supervision, *view);
}

void CrewBuilder::set_checkpoints(SupervisorConfig& supervision) const {
  supervision.checkpoint_every_epochs = config_.checkpoint_every_epochs;
  supervision.checkpoints = !config_.checkpoint_folder.empty();
  supervision.output_in_use = config_.output_in_use;
  if (!supervision.checkpoints) return;
  supervision.checkpoint_folder =
      std::filesystem::absolute(config_.checkpoint_folder).lexically_normal().string();
  supervision.out = run_folder_of(config_.checkpoint_folder + "/latest");
}

void CrewBuilder::set_timeouts(SupervisorConfig& supervision) const {
  supervision.timeout = config_.timeout;
  supervision.silence = heartbeats_for(config_.timeout).silence;
  if (config_.cluster) supervision.timeout = timeout_behind_silence(config_.timeout);
  if (config_.first_timeout)
    supervision.first_timeout = std::max(*config_.first_timeout, supervision.timeout);
  supervision.stall_abort = config_.stall_abort;
  if (config_.cluster) supervision.lost_after = config_.lost_after;
}

// From the checkpoint that the run continues with.
void CrewBuilder::resume(SupervisorConfig& supervision) const {
  const std::vector<double> epochs = config_.resume->epochs();
  supervision.resumed_least = *std::min_element(epochs.begin(), epochs.begin() + config_.workers());
  supervision.resumed_most = config_.resumed_most();
  supervision.elapsed_before = config_.resume->elapsed();
  supervision.resumed_from =
      continues_in_place() ? run_folder_of(config_.resume->path) : config_.resume->path;
  resume_view(supervision);
}

// A view that cannot be read ends the run: its ranks report it.
void CrewBuilder::resume_view(SupervisorConfig& supervision) const {
  supervision.absent = config_.resume->lost;
  supervision.former = config_.resume->former;
  supervision.earlier_batches = config_.resume->batches;
  supervision.ahead = config_.resume->lost_batches.ahead;
  supervision.taken = config_.resume->taken();
  for (std::size_t rank = 0; rank < config_.resume->ranks.size(); ++rank) {
    RankFigures figures;
    figures.rank = static_cast<Rank>(rank);
    if (figures.ledger.load(config_.resume->ranks[rank].under("ledger")))
      supervision.figures.push_back(std::move(figures));
  }
  const auto view = config_.resume->view();
  if (!view || !view->has_value()) return;
  continue_view(supervision, **view);
  supervision.total_epochs = supervision.horizon.epoch_of(supervision.horizon.steps);
}

void CrewBuilder::continue_view(SupervisorConfig& supervision, const SavedView& view) const {
  supervision.continuing = view.ranks;
  supervision.view = view.number;
  supervision.first_batch = view.deal.first_batch;
  supervision.horizon = horizon_of(view, supervision.horizon, config_.workers());
}

// The checkpoint is one of the run's own folder.
bool CrewBuilder::continues_in_place() const {
  std::error_code unknown;
  const std::filesystem::path folder = std::filesystem::path(config_.resume->path).parent_path();
  return std::filesystem::equivalent(folder, config_.checkpoint_folder, unknown);
}

// Than the run that it continues was to be.
bool CrewBuilder::is_longer() const {
  const auto steps_in = [](const JobIdentity& identity) {
    const auto found = identity.find(kStepsKey);
    return found == identity.end() ? std::string() : found->second;
  };
  return config_.resume && steps_in(config_.resume->identity) != steps_in(config_.identity);
}

// ---- configuration of a rank ----

PeerConfig CrewBuilder::peer_config(Rank rank, const SupervisorActor& supervisor,
                                    const EvaluatorActor& evaluator,
                                    const TracerActor& tracer) const {
  PeerConfig peer;
  peer.rank = rank;
  peer.workers = config_.workers();
  peer.ranks = config_.world_size();
  peer.seed = config_.seed;
  peer.parts = config_.parts;
  peer.transport = config_.transport;
  if (rank < config_.workers()) {
    const auto& compute = config_.computes[static_cast<std::size_t>(rank)];
    peer.worker = WorkerConfig{rank,    compute, config_.delay, config_.threads,
                               nullptr, detach_, run_start_ns_};
  }
  if (!config_.peer_devices.empty()) {
    GRAPEVINE_CHECK(config_.peer_devices.size() == static_cast<std::size_t>(config_.world_size()),
                    config_.peer_devices.size(), " devices for ", config_.world_size(), " ranks");
    peer.device = config_.peer_devices[static_cast<std::size_t>(rank)].peer;
  }
  if (!peer.device) peer.model_memory = config_.model_memory;
  peer.agent = agent_;
  peer.stalls = config_.delay.stalls();
  // All ranks start from the same parameters: models are initialised from the job's seed.
  const auto& first = first_compute(config_);
  peer.parameters = first->initial_parameters();
  peer.buffers = first->initial_buffers();
  if (config_.resume && rank < config_.ranks && !config_.resume->is_lost(rank))
    peer.restored = config_.resume->ranks[static_cast<std::size_t>(rank)];
  peer.absent = absent_ranks();
  peer.first_view = config_.first_view();
  peer.supervisor = supervisor;
  peer.evaluator = evaluator;
  peer.tracer = tracer;
  peer.shards = shards_;
  peer.models = models_;
  peer.fetcher = crew_.fetcher;
  if (config_.cluster && config_.cluster->process == 0) peer.writer = crew_.writer;
  peer.trace_budget = trace_budget_;
  peer.trace_run = config_.trace.header.run;
  peer.trace_sampled = config_.trace.header.sampled;
  peer.detach_worker = detach_;
  peer.run_start_ns = run_start_ns_;
  peer.log_every = config_.log_every;
  peer.state_part_bytes = config_.state_part_bytes;
  peer.change = config_.change;
  return peer;
}

// Ranks without a state at the start: of vacant places, and those that the checkpoint has lost.
std::vector<Rank> CrewBuilder::absent_ranks() const {
  std::vector<Rank> vacant = config_.vacant();
  if (!config_.resume) return vacant;
  std::vector<Rank> absent;
  std::set_union(vacant.begin(), vacant.end(), config_.resume->lost.begin(),
                 config_.resume->lost.end(), std::back_inserter(absent));
  return absent;
}

bool CrewBuilder::exchanges_by_reference(Rank rank) const {
  for (Rank other = 0; other < config_.world_size(); ++other)
    if (!config_.transport->by_reference(rank, other)) return false;
  return true;
}

StagerConfig CrewBuilder::stager_config(const PeerConfig& peer,
                                        std::shared_ptr<DeviceRuntime> device, CpuSet cpus) const {
  GRAPEVINE_CHECK(device != nullptr, "rank ", peer.rank, " has no streams for its messages");
  StagerConfig stager;
  stager.rank = peer.rank;
  stager.device = std::move(device);
  stager.cpus = std::move(cpus);
  stager.transport = peer.transport;
  stager.model_bytes = peer.parameters.nbytes();
  stager.timeout = std::max(config_.timeout, config_.first_timeout.value_or(Duration{0}));
  return stager;
}

}  // namespace grapevine
