#include "actors/run/runtime.hpp"

#include <algorithm>
#include <future>
#include <system_error>
#include <utility>

#include <caf/all.hpp>

#include "actors/clock_time.hpp"
#include "actors/cluster/process_agent.hpp"
#include "actors/cluster/rendezvous.hpp"
#include "actors/run/control/control.hpp"
#include "actors/run/crew_builder.hpp"
#include "actors/run/scheduling.hpp"
#include "actors/run/supervisor.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/text/exception_line.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {

struct Runtime::Impl {
  RunConfig config;
  caf::actor_system_config system_config;
  std::unique_ptr<caf::actor_system> system;
  std::future<void> all_done;   // of shut_down(): waits for the system, so that it goes first
  ControlActor control;         // null: nobody asks
  SupervisorActor supervisor;   // of the run, or null in processes other than the coordinator
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
  Ready spawn_local_ranks(CrewBuilder& builder, const Joined& joined, const TracerActor& tracer);
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
  control = spawn_control(*system, {config.workers(), clock_time(system->clock()).count()});
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
  configure_for_cluster(system_config, config.timeout);
  system = std::make_unique<caf::actor_system>(system_config);
  observer = observed(std::move(observer), std::move(report));
  const auto shared = std::make_shared<CrewBuilder>(*system, config, true);
  CrewBuilder& builder = *shared;
  const ClusterConfig& cluster = *config.cluster;
  const bool is_coordinator = cluster.process == 0;
  const auto losses = std::make_shared<KnownLosses>(process_down_of(cluster));
  if (is_coordinator) {
    supervisor = builder.spawn_coordinator(observer);
    attach_control();
  } else {
    agent = system->spawn(
        grapevine::process_agent,
        ProcessAgentConfig{cluster.process, cluster.processes, head_of(cluster), observer,
                           [losses](std::int32_t process) { losses->add(process); },
                           expect_process_of(cluster), builder.trace_zero_ns()});
  }
  keep(builder.crew().tracer);
  keep(builder.crew().writer);
  keep(builder.crew().evaluator);
  keep(builder.crew().fetcher);
  keep(builder.crew().averager);
  // The agent notices the end of the supervisor while the transport connects, too.
  const auto watch = [this](const Admission& admission) {
    if (agent) caf::anon_send(agent, WatchSupervisor{admission.supervisor, admission.out});
  };
  const auto joined = join_run(*system, config, supervisor, agent, builder.crew(), *losses, watch);
  if (!joined) {
    // The supervisor, or the process agent elsewhere, reports the error to the observer.
    if (is_coordinator) return send_order(supervisor, RankFailed{joined.error()});
    return caf::anon_send(agent, RunEnded{true, joined.error(), false, ""});
  }
  const Admission& admission = joined->admission;
  config.trace.header.run = admission.trace_run;
  TracerActor tracer = builder.crew().tracer;
  if (!is_coordinator && config.trace.on && cluster.place_trace) {
    if (auto placed = cluster.place_trace(admission.out, admission.joins, config.trace); !placed)
      observer->on_warning("no trace of this process: " + placed.error().message);
    tracer = builder.spawn_tracer(agent);
    keep(tracer);
  }
  if (admission.joins) builder.join_through(agent);
  if (!is_coordinator) {
    keep(builder.spawn_shard_writer(admission.supervisor));
    keep(builder.spawn_model_sender());
  }
  Ready ready = spawn_local_ranks(builder, *joined, tracer);
  if (!is_coordinator) caf::anon_send(agent, AssignRun{admission.supervisor, ready.peers, tracer});
  caf::anon_send(joined->rendezvous, std::move(ready));
}

// The ranks of this process. Each is attached to the transport.
Ready Runtime::Impl::spawn_local_ranks(CrewBuilder& builder, const Joined& joined,
                                       const TracerActor& tracer) {
  const Admission& admission = joined.admission;
  const std::int32_t process = config.cluster->process;
  for (Rank rank = config.ranks; process == 0 && rank < config.world_size(); ++rank)
    attached.push_back(rank);  // once servers come
  Ready ready;
  ready.process = process;
  ready.nonce = joined.nonce;
  const EvaluatorActor evaluator = admission.validates ? admission.evaluator : EvaluatorActor{};
  for (Rank rank = 0; rank < config.ranks; ++rank) {
    if (!joined.placement.is_local(rank)) continue;
    ready.peers.push_back(builder.spawn_peer(rank, admission.supervisor, evaluator, tracer));
    attached.push_back(rank);
    keep(ready.peers.back());
  }
  return ready;
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

bool Runtime::shut_down(Duration timeout) {
  if (impl_->broken) return false;
  dismiss();
  try {
    if (!impl_->all_done.valid())
      impl_->all_done = std::async(
          std::launch::async, [system = impl_->system.get()] { system->await_all_actors_done(); });
  } catch (const std::system_error&) {  // no thread to wait in
    return false;
  }
  return impl_->all_done.wait_for(timeout) == std::future_status::ready;
}

namespace {

// Calls `end` in a thread of its own and waits for at most `timeout`. `done`: the call of earlier
// attempts, or not valid.
bool ends_within(std::future<void>& done, Duration timeout, const std::function<void()>& end) {
  try {
    if (!done.valid()) done = std::async(std::launch::async, end);
  } catch (const std::system_error&) {  // no thread to end it in: without a bound, here
    end();
    return true;
  }
  return done.wait_for(timeout) == std::future_status::ready;
}

Error not_ended(const char* what, Duration timeout) {
  return {Errc::timeout,
          std::string(what) + " has not ended after " + number_text(to_seconds(timeout)) + " s"};
}

}  // namespace

Expected<void> Runtime::close(const CloseTimeouts& timeout) {
  // CAF's logger must go before the system can: each thread that has spawned an actor has a share
  // of it.
  caf::logger::set_current_actor_system(nullptr);
  if (!ends_within(impl_->control_closed, timeout.control_plane,
                   [impl = impl_.get()] { impl->system.reset(); }))
    return not_ended("the control plane", timeout.control_plane);
  if (!ends_within(impl_->transport_closed, timeout.transport, [impl = impl_.get()] {
        impl->config.cluster.reset();
        impl->config.transport.reset();
      }))
    return not_ended("the transport", timeout.transport);
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
    send_order(impl_->supervisor, StopRequested{});
  else
    caf::anon_send(impl_->agent, StopRequested{});
}

void Runtime::request_checkpoint() {
  if (impl_->supervisor)
    send_order(impl_->supervisor, CheckpointRequested{});
  else
    caf::anon_send(impl_->agent, CheckpointRequested{});
}

}  // namespace grapevine
