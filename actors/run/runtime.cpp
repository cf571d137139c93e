#include "actors/run/runtime.hpp"

#include <algorithm>
#include <filesystem>
#include <future>
#include <iterator>
#include <system_error>
#include <utility>

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include "actors/cluster/process_agent.hpp"
#include "actors/cluster/rendezvous.hpp"
#include "actors/record/checkpoints/checkpoint_writer.hpp"
#include "actors/record/resume_hint.hpp"
#include "actors/record/shards/shard_writer.hpp"
#include "actors/record/tracer.hpp"
#include "actors/run/control/control.hpp"
#include "actors/run/models/evaluator.hpp"
#include "actors/run/models/model_averager.hpp"
#include "actors/run/models/model_fetcher.hpp"
#include "actors/run/models/model_sender.hpp"
#include "actors/run/peer.hpp"
#include "actors/run/peer/stager.hpp"
#include "actors/run/scheduling.hpp"
#include "actors/run/simulation/control_link.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/check.hpp"
#include "messages/text/exception_line.hpp"
#include "messages/text/number_text.hpp"

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

std::function<void(std::int32_t)> process_down_of(const ClusterConfig& cluster) {
  return
      [transport = cluster.transport](std::int32_t process) { transport->process_down(process); };
}

std::function<void(std::int32_t)> expect_process_of(const ClusterConfig& cluster) {
  return
      [transport = cluster.transport](std::int32_t process) { transport->expect_process(process); };
}

const std::shared_ptr<Compute>& first_compute(const RunConfig& config) {
  return *std::find_if(config.computes.begin(), config.computes.end(),
                       [](const auto& compute) { return compute != nullptr; });
}

// Spawns the actors of a run and wires them up.
class CrewBuilder : public std::enable_shared_from_this<CrewBuilder> {
 public:
  // `detach`: workers, evaluations and writers of files get threads of their own.
  CrewBuilder(caf::actor_system& system, RunConfig& config, bool detach)
      : system_(system), config_(config), detach_(detach) {
    const auto since_epoch = system_.clock().now().time_since_epoch();
    run_start_ns_ = std::chrono::duration_cast<Duration>(since_epoch).count();
  }

  // Beside the scheduler's threads where the run is real.
  template <class F, class Config, class... Rest>
  auto spawn_aside(F behavior, Config config, Rest... rest) {
    return detach_ ? system_.spawn<caf::detached>(behavior, std::move(config), std::move(rest)...)
                   : system_.spawn(behavior, std::move(config), std::move(rest)...);
  }

  // All of a run in this process; training begins at once.
  SupervisorActor build(std::shared_ptr<RunObserver> observer) {
    SupervisorActor head = spawn_head(std::move(observer));
    const SupervisorActor behind_link = across_link(head);
    const std::vector<Rank> vacant = config_.vacant();
    for (Rank rank = 0; rank < config_.ranks; ++rank)
      crew_.peers.push_back(std::binary_search(vacant.begin(), vacant.end(), rank)
                                ? PeerActor()
                                : spawn_peer(rank, behind_link, crew_.evaluator, crew_.tracer));
    BeginRun seen = crew_;
    for (PeerActor& peer : seen.peers)
      if (peer) peer = across_link(peer);
    caf::anon_send(head, std::move(seen));
    return head;
  }

  // As the other end of the control plane sees it, in virtual time.
  template <class Handle>
  Handle across_link(const Handle& actor) const {
    return across_control_link(system_, actor,
                               config_.world ? config_.world->control_delay : Duration::zero());
  }

  // The supervisor, evaluator, writer and tracer, without the ranks.
  SupervisorActor spawn_head(std::shared_ptr<RunObserver> observer) {
    SupervisorActor head = system_.spawn(supervisor, supervisor_config(std::move(observer)));
    if (config_.trace.on) crew_.tracer = spawn_tracer(head);
    if (!config_.checkpoint_folder.empty())
      crew_.writer =
          spawn_aside(checkpoint_writer,
                      CheckpointWriterConfig{
                          config_.checkpoint_folder, config_.identity, config_.kept_checkpoints,
                          config_.evaluator != nullptr, config_.earlier_validations, head,
                          config_.resume ? config_.resume->path : "", is_longer(),
                          config_.before_first_checkpoint, shard_nonce(), config_.identity_with,
                          config_.job_file_with});
    if (config_.cluster) spawn_model_fetcher(head);
    if (config_.evaluator)
      crew_.evaluator = system_.spawn(
          evaluator, EvaluatorConfig{config_.world_size(), config_.world_size() - config_.workers(),
                                     config_.evaluator, head, crew_.fetcher, detach_});
    return head;
  }

  // For the models of other processes.
  void spawn_model_fetcher(const SupervisorActor& head) {
    ModelFetcherConfig config{head, {}};
    for (Rank rank = 0; rank < config_.ranks; ++rank)
      if (config_.process_of(rank) == 0) config.receivers.push_back(rank);
    crew_.fetcher = system_.spawn(model_fetcher, std::move(config));
    crew_.averager = spawn_aside(model_averager, ModelAveragerConfig{head, crew_.fetcher});
  }

  // Of a process other than process 0: for the states and models of its ranks. REQUIRES: the number
  // of the run is known.
  ShardWriterActor spawn_shard_writer(const SupervisorActor& supervisor) {
    shards_ = system_.spawn<caf::detached>(
        shard_writer, ShardWriterConfig{config_.transport, supervisor, shard_nonce()});
    return shards_;
  }
  ModelSenderActor spawn_model_sender() {
    models_ = system_.spawn<caf::detached>(model_sender, ModelSenderConfig{config_.transport});
    return models_;
  }

  // Of the ranks of this process.
  TracerActor spawn_tracer(TraceOwner owner) {
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

  PeerActor spawn_peer(Rank rank, const SupervisorActor& supervisor,
                       const EvaluatorActor& evaluator, const TracerActor& tracer) {
    PeerConfig config = peer_config(rank, supervisor, evaluator, tracer);
    const bool staged = config.device && !exchanges_by_reference(rank);
    StagerConfig incoming;
    if (staged) {
      config.outgoing = spawn_aside(
          outgoing_stager,
          stager_config(config, config_.peer_devices[static_cast<std::size_t>(rank)].outgoing));
      incoming =
          stager_config(config, config_.peer_devices[static_cast<std::size_t>(rank)].incoming);
    }
    const OutgoingStagerActor outgoing = config.outgoing;
    PeerActor spawned = system_.spawn(peer, std::move(config));
    std::shared_ptr<Inbox> inbox =
        staged ? make_mailbox_inbox(
                     spawn_aside(incoming_stager, std::move(incoming), spawned, outgoing))
               : make_mailbox_inbox(spawned);
    const auto attached = config_.transport->attach(rank, std::move(inbox));
    GRAPEVINE_CHECK(attached.ok(), attached.error().message);
    return spawned;
  }

  const BeginRun& crew() const { return crew_; }
  // Of wirings that have come.
  const std::vector<PeerActor>& later_servers() const { return later_servers_; }
  std::int64_t trace_zero_ns() const { return run_start_ns_; }

 private:
  // In process 0, on the supervisor's thread.
  PeerActor spawn_later_server(Rank rank, const SupervisorActor& head) {
    later_servers_.push_back(spawn_peer(rank, across_link(head), crew_.evaluator, crew_.tracer));
    return across_link(later_servers_.back());
  }

  // The same in all processes of the run, and in no other run.
  std::string shard_nonce() const { return std::to_string(config_.trace.header.run); }

  bool exchanges_by_reference(Rank rank) const {
    for (Rank other = 0; other < config_.world_size(); ++other)
      if (!config_.transport->by_reference(rank, other)) return false;
    return true;
  }

  StagerConfig stager_config(const PeerConfig& peer, std::shared_ptr<DeviceRuntime> device) const {
    GRAPEVINE_CHECK(device != nullptr, "rank ", peer.rank, " has no streams for its messages");
    StagerConfig stager;
    stager.rank = peer.rank;
    stager.device = std::move(device);
    stager.transport = peer.transport;
    stager.supervisor = peer.supervisor;
    stager.model_bytes = peer.parameters.nbytes();
    stager.patience = std::max(config_.patience, config_.first_patience.value_or(Duration{0}));
    return stager;
  }

  SupervisorConfig supervisor_config(std::shared_ptr<RunObserver> observer) {
    SupervisorConfig supervision;
    supervision.ranks = config_.ranks;
    supervision.servers = config_.servers();
    const Compute& compute = *first_compute(config_);
    supervision.parameters = compute.dimension();
    supervision.buffers = compute.initial_buffers().numel();
    const Plan& plan = config_.parts->plan;
    supervision.changes_members = changes_members(plan);
    const bool continues_alone =
        plan.servers > 0 && plan.hierarchy == 1 && plan.role->tolerates_lost_peer;
    supervision.tolerates_worker_loss = supervision.changes_members || continues_alone;
    supervision.models = ViewChange::Models::of(plan);
    supervision.horizon = config_.parts->horizon;
    if (changes_members(plan)) supervision.change = config_.change;
    if (changes_members(plan) && !supervision.change && plan.role->changes_by_mean)
      supervision.change = unchanged_parts(config_.parts);
    supervision.most_servers = config_.world_size() - config_.workers();
    supervision.spawn_server = [self = shared_from_this()](Rank rank, const SupervisorActor& head) {
      return self->spawn_later_server(rank, head);
    };
    supervision.schedule = config_.schedule;
    supervision.min_workers =
        config_.min_workers > 0 ? config_.min_workers : config_.beginning_workers() / 2 + 1;
    supervision.vacant = config_.vacant();
    if (const auto view = config_.first_view()) continue_view(supervision, *view);
    supervision.observer = std::move(observer);
    if (config_.cluster) {
      supervision.process_down = process_down_of(*config_.cluster);
      supervision.expect_process = expect_process_of(*config_.cluster);
    }
    supervision.checkpoint_every_epochs = config_.checkpoint_every_epochs;
    supervision.checkpoints = !config_.checkpoint_folder.empty();
    supervision.output_in_use = config_.output_in_use;
    if (supervision.checkpoints)
      supervision.checkpoint_folder =
          std::filesystem::absolute(config_.checkpoint_folder).lexically_normal().string();
    if (supervision.checkpoints)
      supervision.out = run_folder_of(config_.checkpoint_folder + "/latest");
    supervision.patience = config_.patience;
    supervision.silence = heartbeats_for(config_.patience).silence;
    if (config_.cluster) supervision.patience = patience_behind_silence(config_.patience);
    if (config_.first_patience)
      supervision.first_patience = std::max(*config_.first_patience, supervision.patience);
    supervision.stall_abort = config_.stall_abort;
    const Horizon& horizon = supervision.horizon;
    supervision.total_epochs = horizon.epoch_of(horizon.steps);
    supervision.run_start_ns = supervision.trace_zero_ns = run_start_ns_;
    if (config_.resume) {
      const std::vector<double> epochs = config_.resume->epochs();
      supervision.resumed_least =
          *std::min_element(epochs.begin(), epochs.begin() + config_.workers());
      supervision.resumed_most = config_.resumed_most();
      supervision.elapsed_before = config_.resume->elapsed();
      supervision.resumed_from =
          continues_in_place() ? run_folder_of(config_.resume->path) : config_.resume->path;
      resume_view(supervision);
    }
    return supervision;
  }

  // The checkpoint is one of the run's own folder.
  bool continues_in_place() const {
    std::error_code unknown;
    const std::filesystem::path folder = std::filesystem::path(config_.resume->path).parent_path();
    return std::filesystem::equivalent(folder, config_.checkpoint_folder, unknown);
  }

  // Than the run that it continues was to be.
  bool is_longer() const {
    const auto steps_in = [](const JobIdentity& identity) {
      const auto found = identity.find(kStepsKey);
      return found == identity.end() ? std::string() : found->second;
    };
    return config_.resume && steps_in(config_.resume->identity) != steps_in(config_.identity);
  }

  // A view that cannot be read ends the run: its ranks say so.
  void resume_view(SupervisorConfig& supervision) const {
    supervision.absent = config_.resume->lost;
    supervision.former = config_.resume->former;
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

  void continue_view(SupervisorConfig& supervision, const SavedView& view) const {
    supervision.continuing = view.ranks;
    supervision.view = view.number;
    supervision.first_batch = view.deal.first_batch;
    supervision.horizon = horizon_of(view, supervision.horizon, config_.workers());
  }

  PeerConfig peer_config(Rank rank, const SupervisorActor& supervisor,
                         const EvaluatorActor& evaluator, const TracerActor& tracer) {
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
    peer.stalls = config_.delay.stalls();
    // All ranks start from the same parameters: models are initialised from the job's seed.
    const auto& first = first_compute(config_);
    peer.parameters = first->initial_parameters();
    peer.buffers = first->initial_buffers();
    if (config_.resume && rank < config_.ranks && !config_.resume->is_lost(rank))
      peer.restored = config_.resume->ranks[static_cast<std::size_t>(rank)];
    peer.absent = config_.vacant();
    if (config_.resume) {
      std::vector<Rank> absent;
      std::set_union(peer.absent.begin(), peer.absent.end(), config_.resume->lost.begin(),
                     config_.resume->lost.end(), std::back_inserter(absent));
      peer.absent = std::move(absent);
    }
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
    peer.change = config_.change;
    return peer;
  }

  caf::actor_system& system_;
  RunConfig& config_;
  const bool detach_;
  std::int64_t run_start_ns_ = 0;
  // In virtual time the disk is never behind.
  const std::shared_ptr<TraceBudget> trace_budget_ =
      detach_ ? std::make_shared<TraceBudget>() : nullptr;
  BeginRun crew_;
  std::vector<PeerActor> later_servers_;
  ShardWriterActor shards_;  // null in process 0, and
  ModelSenderActor models_;
};

}  // namespace

struct Runtime::Impl {
  RunConfig config;
  caf::actor_system_config system_config;
  std::unique_ptr<caf::actor_system> system;
  std::future<void> all_done;   // of shut_down(): waits for the system, so that it goes first
  ControlActor control;         // null: nobody asks
  SupervisorActor supervisor;   // of the run, or null in processes other than the head
  LocalProcessAgent agent;      // there
  std::vector<caf::actor> own;  // must not outlive this
  std::vector<Rank> attached;  // to the transport: the ranks of this process, once it is in the run

  std::future<void> control_closed, transport_closed;  // of close()

  // An actor may have been spawned without its thread: the wait for it would never end.
  bool broken = false;

  std::shared_ptr<RunObserver> observed(std::shared_ptr<RunObserver> observer,
                                        std::shared_ptr<RunReport> report);
  void attach_control();
  void start(std::shared_ptr<RunObserver> observer, std::shared_ptr<RunReport> report);
  void start_in_cluster(std::shared_ptr<RunObserver> observer, std::shared_ptr<RunReport> report);
  template <class Handle>
  void keep(const Handle& actor) {
    if (actor) own.push_back(caf::actor_cast<caf::actor>(actor));
  }
};

// `observer`, and all others that receive what it does.
std::shared_ptr<RunObserver> Runtime::Impl::observed(std::shared_ptr<RunObserver> observer,
                                                     std::shared_ptr<RunReport> report) {
  if (report) observer = report_aside(*system, std::move(observer), std::move(report));
  if (!config.control) return observer;
  const Compute& compute = *first_compute(config);
  const auto since_epoch = system->clock().now().time_since_epoch();
  control = spawn_control(*system,
                          {config.workers(), compute.dimension(), compute.initial_buffers().numel(),
                           std::chrono::duration_cast<Duration>(since_epoch).count()});
  return report_to_control(std::move(observer), control);
}

void Runtime::Impl::attach_control() {
  if (control) connect_control(control, supervisor, *config.control);
  control = ControlActor{};
}

void Runtime::Impl::start(std::shared_ptr<RunObserver> observer,
                          std::shared_ptr<RunReport> report) {
  system = std::make_unique<caf::actor_system>(system_config);
  observer = observed(std::move(observer), std::move(report));
  supervisor = std::make_shared<CrewBuilder>(*system, config, true)->build(observer);
  attach_control();
  for (Rank rank = 0; rank < config.world_size(); ++rank) attached.push_back(rank);
}

void Runtime::Impl::start_in_cluster(std::shared_ptr<RunObserver> observer,
                                     std::shared_ptr<RunReport> report) {
  configure_for_cluster(system_config, config.patience);
  system = std::make_unique<caf::actor_system>(system_config);
  observer = observed(std::move(observer), std::move(report));
  const auto shared = std::make_shared<CrewBuilder>(*system, config, true);
  CrewBuilder& builder = *shared;
  const ClusterConfig& cluster = *config.cluster;
  const bool is_head = cluster.process == 0;
  if (is_head) {
    supervisor = builder.spawn_head(observer);
    attach_control();
  } else {
    agent = system->spawn(grapevine::process_agent,
                          ProcessAgentConfig{cluster.process, cluster.processes, head_of(cluster),
                                             observer, process_down_of(cluster),
                                             expect_process_of(cluster), builder.trace_zero_ns()});
  }
  keep(builder.crew().tracer);
  keep(builder.crew().writer);
  keep(builder.crew().evaluator);
  keep(builder.crew().fetcher);
  keep(builder.crew().averager);
  const auto joined = join_run(*system, config, supervisor, agent, builder.crew());
  if (!joined) {
    // The supervisor, or the process agent elsewhere, reports the error to the observer.
    if (is_head) return caf::anon_send(supervisor, RankFailed{joined.error()});
    return caf::anon_send(agent, RunEnded{true, joined.error(), false, ""});
  }
  const Admission& admission = joined->admission;
  config.trace.header.run = admission.trace_run;
  TracerActor tracer = builder.crew().tracer;
  if (!is_head && config.trace.on && cluster.place_trace) {
    if (auto placed = cluster.place_trace(admission.out, admission.joins, config.trace); !placed)
      observer->on_warning("no trace of this process: " + placed.error().message);
    tracer = builder.spawn_tracer(agent);
    keep(tracer);
  }
  if (!is_head) {
    keep(builder.spawn_shard_writer(admission.supervisor));
    keep(builder.spawn_model_sender());
  }
  for (Rank rank = config.ranks; is_head && rank < config.world_size(); ++rank)
    attached.push_back(rank);  // once servers come
  Ready ready;
  ready.process = cluster.process;
  ready.nonce = joined->nonce;
  const EvaluatorActor evaluator = admission.validates ? admission.evaluator : EvaluatorActor{};
  for (Rank rank = 0; rank < config.ranks; ++rank) {
    if (!joined->placement.is_local(rank)) continue;
    ready.peers.push_back(builder.spawn_peer(rank, admission.supervisor, evaluator, tracer));
    attached.push_back(rank);
    keep(ready.peers.back());
  }
  if (!is_head)
    caf::anon_send(agent, AssignRun{admission.supervisor, ready.peers, tracer, admission.out});
  caf::anon_send(joined->rendezvous, std::move(ready));
}

std::int32_t RunConfig::process_of(Rank rank) const {
  if (!cluster || rank >= workers()) return 0;
  const std::int32_t each = workers() / cluster->processes;
  return std::min(rank / each, cluster->processes - 1);
}

std::vector<Rank> RunConfig::vacant() const {
  std::vector<Rank> ranks;
  for (Rank rank = beginning_workers(); rank < workers(); ++rank) ranks.push_back(rank);
  return ranks;
}

std::optional<SavedView> RunConfig::first_view() const {
  if (resume || beginning_workers() == workers()) return std::nullopt;
  SavedView view;
  view.number = 1;
  for (Rank rank = 0; rank < beginning_workers(); ++rank) view.ranks.members.push_back(rank);
  const std::int32_t nodes = node_size(parts->plan);
  if (nodes > 1) view.ranks.heads = first_of_each_node(view.ranks.members, nodes);
  view.deal.ranks = beginning_workers();
  return view;
}

double RunConfig::resumed_most() const {
  if (!resume) return 0;
  const std::vector<double> epochs = resume->epochs();
  // Where there are servers, it is their models that are evaluated.
  return *std::max_element(epochs.begin() + (servers() > 0 ? workers() : 0), epochs.end());
}

Runtime::Runtime(RunConfig config, std::shared_ptr<RunObserver> observer,
                 std::shared_ptr<RunReport> report)
    : impl_(std::make_unique<Impl>()) {
  impl_->config = std::move(config);
  configure_scheduler(impl_->system_config, scheduler_threads());
  try {
    if (impl_->config.cluster)
      impl_->start_in_cluster(observer, std::move(report));
    else
      impl_->start(observer, std::move(report));
  } catch (...) {
    impl_->broken = true;
    RunResult result;
    result.error = Error{Errc::failed,
                         "the run cannot be started: " + exception_line(std::current_exception())};
    observer->on_end(std::move(result));
  }
}

Runtime::~Runtime() {
  if (impl_->broken) {
    static_cast<void>(impl_.release());
    return;
  }
  if (impl_->system == nullptr) return;
  dismiss();
  impl_->system->await_all_actors_done();
}

bool Runtime::shut_down(Duration patience) {
  if (impl_->broken) return false;
  dismiss();
  try {
    if (!impl_->all_done.valid())
      impl_->all_done = std::async(
          std::launch::async, [system = impl_->system.get()] { system->await_all_actors_done(); });
  } catch (const std::system_error&) {  // no thread to wait in
    return false;
  }
  return impl_->all_done.wait_for(patience) == std::future_status::ready;
}

namespace {

// In a thread of its own, for as long as `patience` at most; `done`: of earlier attempts, or not
// valid.
bool ends_within(std::future<void>& done, Duration patience, const std::function<void()>& end) {
  try {
    if (!done.valid()) done = std::async(std::launch::async, end);
  } catch (const std::system_error&) {  // no thread to end it in: without a bound, here
    end();
    return true;
  }
  return done.wait_for(patience) == std::future_status::ready;
}

Error not_ended(const char* what, Duration patience) {
  return {Errc::timeout,
          std::string(what) + " has not ended after " + number_text(to_seconds(patience)) + " s"};
}

}  // namespace

Expected<void> Runtime::close(const ClosePatience& patience) {
  // CAF's logger must go before the system can: each thread that has spawned an actor has a share
  // of it.
  caf::logger::set_current_actor_system(nullptr);
  if (!ends_within(impl_->control_closed, patience.control_plane,
                   [impl = impl_.get()] { impl->system.reset(); }))
    return not_ended("the control plane", patience.control_plane);
  if (!ends_within(impl_->transport_closed, patience.transport, [impl = impl_.get()] {
        impl->config.cluster.reset();
        impl->config.transport.reset();
      }))
    return not_ended("the transport", patience.transport);
  return {};
}

void Runtime::dismiss() {
  if (impl_->config.control) impl_->config.control->detach();
  for (const Rank rank : std::exchange(impl_->attached, {})) impl_->config.transport->detach(rank);
  // Ends the actors of a run that never began.
  for (const caf::actor& actor : impl_->own)
    caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
  impl_->own.clear();
  impl_->control = ControlActor{};
  impl_->supervisor = SupervisorActor{};
  impl_->agent = LocalProcessAgent{};
}

void Runtime::request_stop() {
  if (impl_->supervisor)
    caf::anon_send(impl_->supervisor, StopRequested{});
  else
    caf::anon_send(impl_->agent, StopRequested{});
}

void Runtime::request_checkpoint() {
  if (impl_->supervisor)
    caf::anon_send(impl_->supervisor, CheckpointRequested{});
  else
    caf::anon_send(impl_->agent, CheckpointRequested{});
}

namespace {

// Keeps the result for run_virtual, passes everything on.
class Recorder : public RunObserver {
 public:
  explicit Recorder(std::shared_ptr<RunObserver> inner) : inner_(std::move(inner)) {}
  void on_step(const StepReport& report) override { inner_->on_step(report); }
  void on_figures(const RankFigures& figures) override { inner_->on_figures(figures); }
  void on_rank_lost(Rank rank) override { inner_->on_rank_lost(rank); }
  void on_rank_returned(Rank rank) override { inner_->on_rank_returned(rank); }
  void on_rank_joined(Rank rank) override { inner_->on_rank_joined(rank); }
  void on_changed(const LiveSettings& changed) override { inner_->on_changed(changed); }
  void on_validation(Epoch epoch, const Evaluation& evaluation) override {
    inner_->on_validation(epoch, evaluation);
  }
  void on_checkpoint(const std::string& path) override { inner_->on_checkpoint(path); }
  void on_warning(const std::string& message) override { inner_->on_warning(message); }
  void on_end(RunResult result) override {
    result_ = result;
    inner_->on_end(std::move(result));
  }
  const std::optional<RunResult>& result() const { return result_; }

 private:
  std::shared_ptr<RunObserver> inner_;
  std::optional<RunResult> result_;
};

}  // namespace

namespace {

// Ends a rank as the end of its process would.
caf::behavior rank_killer(caf::event_based_actor* self, std::shared_ptr<Transport> transport,
                          Death death, std::shared_ptr<const std::vector<PeerActor>> peers) {
  self->delayed_send(self, death.at, caf::ok_atom::value);
  return {[=](caf::ok_atom) {
    transport->detach(death.rank);
    self->send_exit((*peers)[static_cast<std::size_t>(death.rank)], caf::exit_reason::kill);
    self->quit();
  }};
}

}  // namespace

namespace {

// As a signal to the run's process would.
caf::behavior run_stopper(caf::event_based_actor* self, const SupervisorActor& head, Duration at) {
  self->delayed_send(self, at, caf::ok_atom::value);
  return {[=](caf::ok_atom) {
    self->send(head, StopRequested{});
    self->quit();
  }};
}

constexpr Duration kPlaceInterval = std::chrono::milliseconds(10);
constexpr Duration kPlacePatience = std::chrono::seconds(10);

// As a process that takes the place of a lost one; `spawn`: the actor of its rank.
caf::behavior rank_restarter(caf::event_based_actor* self, const SupervisorActor& head, Return back,
                             std::function<PeerActor()> spawn) {
  self->delayed_send(self, back.at, caf::ok_atom::value);
  return {[=](caf::ok_atom) {
    self->request(head, kPlacePatience, AskPlace{0, back.rank})
        .then(
            [=](const Place& place) {
              if (place.granted) self->send(head, ProcessReturned{0, back.rank, {}, {spawn()}});
              if (place.granted || !place.later) return self->quit();
              self->delayed_send(self, kPlaceInterval, caf::ok_atom::value);
            },
            [=](const caf::error&) { self->quit(); });
  }};
}

using Scheduler = caf::scheduler::test_coordinator;

void choose_actor(Scheduler& scheduler, const VirtualWorld& world) {
  auto& ready = scheduler.jobs;
  if (!world.next_actor || ready.size() < 2) return;
  const auto chosen = ready.begin() + static_cast<std::ptrdiff_t>(world.next_actor(ready.size()));
  std::rotate(ready.begin(), chosen, chosen + 1);
}

// Moves the clock to what is due next, a timer of the actors or an event of the network, and does
// it. False: nothing is due any more.
bool jump(Scheduler& scheduler, VirtualWorld& world, std::int64_t start_ns) {
  auto& clock = scheduler.clock();
  const auto event = world.network ? world.network->next_at() : std::nullopt;
  if (!event) return scheduler.trigger_timeout();
  const caf::actor_clock::time_point at(*event + Duration(start_ns));
  if (!clock.schedule().empty() && clock.schedule().begin()->first < at)
    return scheduler.trigger_timeout();
  clock.current_time = std::max(clock.current_time, at);
  world.network->run_next();
  return true;
}

// Of a run that has not ended, at its last moment: its trace shows what each rank did last.
void close_trace_of(Scheduler& scheduler, const SupervisorActor& head, const CrewBuilder& builder,
                    const std::vector<PeerActor>& peers) {
  const TracerActor& tracer = builder.crew().tracer;
  if (!tracer) return;
  constexpr int kMostEvents = 1'000'000;  // it may be stuck in messages without end
  const auto run_all = [&scheduler] {
    for (int i = 0; i < kMostEvents && scheduler.try_run_once(); ++i) {
    }
  };
  caf::anon_send_exit(head, caf::exit_reason::kill);
  for (const auto* actors : {&peers, &builder.later_servers()})
    for (const PeerActor& peer : *actors)
      if (peer) caf::anon_send(peer, FlushTrace{});
  run_all();
  caf::anon_send(tracer, CloseTrace{});
  run_all();
}

// Of a run that has not ended: its timers would go on without end.
void kill_all(const SupervisorActor& head, const CrewBuilder& builder,
              const std::vector<PeerActor>& peers) {
  const BeginRun& crew = builder.crew();
  const auto kill = [](const auto& actor) {
    if (actor) caf::anon_send_exit(actor, caf::exit_reason::kill);
  };
  kill(head);
  for (const PeerActor& peer : peers) kill(peer);
  for (const PeerActor& server : builder.later_servers()) kill(server);
  kill(crew.evaluator);
  kill(crew.writer);
  kill(crew.tracer);
}

Timestamp time_since(Scheduler& scheduler, std::int64_t start_ns) {
  return std::chrono::duration_cast<Duration>(scheduler.clock().now().time_since_epoch()) -
         Duration(start_ns);
}

// One event at a time, until the run has ended. Returns why it has not, or nothing.
std::optional<Error> run_events(Scheduler& scheduler, VirtualWorld& world, std::int64_t start_ns,
                                const SupervisorActor& head, const Recorder& recorder) {
  constexpr std::uint64_t kPollEvery = 1024;  // events
  bool stopping = false;
  for (; !recorder.result(); ++world.events) {
    if (!stopping && world.stop_requested && world.events % kPollEvery == 0 &&
        world.stop_requested()) {
      stopping = true;
      caf::anon_send(head, StopRequested{});
    }
    choose_actor(scheduler, world);
    if (scheduler.try_run_once()) continue;
    world.now = time_since(scheduler, start_ns);
    if (world.deadline > Duration{0} && world.now > world.deadline)
      return Error{Errc::timeout, "the simulated run has not ended at its deadline, " +
                                      number_text(to_seconds(world.deadline)) +
                                      " s of virtual time"};
    if (!jump(scheduler, world, start_ns))
      return Error{Errc::failed, "the simulated run stopped: no actor has anything left to do"};
  }
  world.now = time_since(scheduler, start_ns);
  return std::nullopt;
}

}  // namespace

RunResult run_virtual(RunConfig config, std::shared_ptr<RunObserver> observer) {
  auto recorder = std::make_shared<Recorder>(std::move(observer));
  caf::actor_system_config system_config;
  system_config.set("scheduler.policy", caf::atom("testing"));
  caf::actor_system system{system_config};
  auto& scheduler = dynamic_cast<Scheduler&>(system.scheduler());
  if (!config.world) config.world = std::make_shared<VirtualWorld>();
  VirtualWorld& world = *config.world;
  const auto shared = std::make_shared<CrewBuilder>(system, config, false);
  CrewBuilder& builder = *shared;
  const std::int64_t start_ns = builder.trace_zero_ns();
  if (world.network)
    world.network->set_clock([&scheduler, start_ns] { return time_since(scheduler, start_ns); });
  const SupervisorActor head = builder.build(recorder);
  const auto peers = std::make_shared<std::vector<PeerActor>>(builder.crew().peers);
  std::vector<caf::actor> faults;
  for (const Return& back : config.returns)
    faults.push_back(
        system.spawn(rank_restarter, head, back, [&builder, head, peers, rank = back.rank] {
          PeerActor& peer = (*peers)[static_cast<std::size_t>(rank)];
          peer = builder.spawn_peer(rank, builder.across_link(head), builder.crew().evaluator,
                                    builder.crew().tracer);
          return builder.across_link(peer);
        }));
  for (const Death& death : config.deaths)
    faults.push_back(system.spawn(rank_killer, config.transport, death, peers));
  if (config.stop_at) faults.push_back(system.spawn(run_stopper, head, *config.stop_at));
  const std::optional<Error> stuck = run_events(scheduler, world, start_ns, head, *recorder);
  if (stuck) close_trace_of(scheduler, head, builder, *peers);
  if (world.network) {
    world.network->close();
  } else {
    for (Rank rank = 0; rank < config.world_size(); ++rank) config.transport->detach(rank);
  }
  // What is on its way in a slow control plane, as the end of a peer is, will not arrive.
  if (stuck || world.control_delay > Duration::zero()) kill_all(head, builder, *peers);
  // Those whose time has not come, and those that wait for a place, would wait for ever.
  for (const caf::actor& fault : faults) caf::anon_send_exit(fault, caf::exit_reason::kill);
  scheduler.run();
  if (!recorder->result()) {  // nobody is left to report the end
    RunResult result;
    result.error = stuck;
    recorder->on_end(std::move(result));
  }
  return *recorder->result();
}

}  // namespace grapevine
