#include "actors/run/simulation/run_virtual.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include <caf/all.hpp>
#include <caf/scheduler/test_coordinator.hpp>

#include "actors/clock_time.hpp"
#include "actors/run/crew_builder.hpp"
#include "actors/run/supervisor.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

// Keeps the result for run_virtual, passes everything on.
class Recorder : public ForwardingObserver {
 public:
  using ForwardingObserver::ForwardingObserver;
  void on_end(RunResult result) override {
    result_ = result;
    ForwardingObserver::on_end(std::move(result));
  }
  const std::optional<RunResult>& result() const { return result_; }

 private:
  std::optional<RunResult> result_;
};

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

// Stops the run at a time, as a signal to its process would.
caf::behavior run_stopper(caf::event_based_actor* self, const SupervisorActor& supervisor,
                          Duration at) {
  self->delayed_send(self, at, caf::ok_atom::value);
  return {[=](caf::ok_atom) {
    self->send(supervisor, StopRequested{});
    self->quit();
  }};
}

constexpr Duration kSupervisorTimeout = std::chrono::seconds(10);

// Drains a rank at a time, as an operator would. The transport loses the rank, as with the end of
// its process.
caf::behavior rank_drainer(caf::event_based_actor* self, const SupervisorActor& supervisor,
                           std::shared_ptr<Transport> transport, Drain drain) {
  self->delayed_send(self, drain.at, caf::ok_atom::value);
  return {[=](caf::ok_atom) {
    ControlRequest request;
    request.kind = ControlRequest::Kind::drain;
    request.rank = drain.rank;
    self->request(supervisor, kSupervisorTimeout, std::move(request))
        .then(
            [=](const ControlReply& reply) {
              if (!reply.refused) transport->detach(drain.rank);
              self->quit();
            },
            [=](const caf::error&) { self->quit(); });
  }};
}

constexpr Duration kPlaceInterval = std::chrono::milliseconds(10);

// Returns a rank at a time, as a process would that takes the place of a lost one. `spawn`: the
// actor of the rank.
caf::behavior rank_restarter(caf::event_based_actor* self, const SupervisorActor& supervisor,
                             Return back, std::function<PeerActor()> spawn) {
  const auto take_place = [=](const Place& place) {
    if (place.granted) self->send(supervisor, ProcessReturned{0, back.rank, {}, {spawn()}});
    if (place.granted || !place.later) return self->quit();
    self->delayed_send(self, kPlaceInterval, caf::ok_atom::value);
  };
  self->delayed_send(self, back.at, caf::ok_atom::value);
  return {[=](caf::ok_atom) {
    self->request(supervisor, kSupervisorTimeout, AskPlace{0, back.rank})
        .then(take_place, [=](const caf::error&) { self->quit(); });
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

// Closes the trace of a run that cannot end: the trace then shows the last acts of each rank.
void close_trace_of(Scheduler& scheduler, const SupervisorActor& supervisor,
                    const CrewBuilder& builder, const std::vector<PeerActor>& peers) {
  const TracerActor& tracer = builder.crew().tracer;
  if (!tracer) return;
  constexpr int kMostEvents = 1'000'000;  // it may be stuck in messages without end
  const auto run_all = [&scheduler] {
    for (int i = 0; i < kMostEvents && scheduler.try_run_once(); ++i) {
    }
  };
  caf::anon_send_exit(supervisor, caf::exit_reason::kill);
  for (const auto* actors : {&peers, &builder.later_servers()})
    for (const PeerActor& peer : *actors)
      if (peer) caf::anon_send(peer, FlushTrace{});
  run_all();
  caf::anon_send(tracer, CloseTrace{});
  run_all();
}

// Ends all actors of a run that has not ended: its timers would continue without end.
void kill_all(const SupervisorActor& supervisor, const CrewBuilder& builder,
              const std::vector<PeerActor>& peers) {
  const BeginRun& crew = builder.crew();
  const auto kill = [](const auto& actor) {
    if (actor) caf::anon_send_exit(actor, caf::exit_reason::kill);
  };
  kill(supervisor);
  for (const PeerActor& peer : peers) kill(peer);
  for (const PeerActor& server : builder.later_servers()) kill(server);
  kill(crew.evaluator);
  kill(crew.writer);
  kill(crew.tracer);
}

Timestamp time_since(Scheduler& scheduler, std::int64_t start_ns) {
  return clock_time(scheduler.clock()) - Duration(start_ns);
}

// One event at a time, until the run has ended. Returns why it has not, or nothing.
std::optional<Error> run_events(Scheduler& scheduler, VirtualWorld& world, std::int64_t start_ns,
                                const SupervisorActor& supervisor, const Recorder& recorder) {
  constexpr std::uint64_t kPollEvery = 1024;  // events
  bool stopping = false;
  for (; !recorder.result(); ++world.events) {
    if (!stopping && world.stop_requested && world.events % kPollEvery == 0 &&
        world.stop_requested()) {
      stopping = true;
      send_order(supervisor, StopRequested{});
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
  return run_virtual(std::move(config), std::move(observer), {});
}

RunResult run_virtual(RunConfig config, std::shared_ptr<RunObserver> observer,
                      const std::vector<Drain>& drains) {
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
  const SupervisorActor supervisor = builder.build(recorder);
  const auto peers = std::make_shared<std::vector<PeerActor>>(builder.crew().peers);
  std::vector<caf::actor> faults;
  for (const Return& back : config.returns)
    faults.push_back(system.spawn(
        rank_restarter, supervisor, back, [&builder, supervisor, peers, rank = back.rank] {
          PeerActor& peer = (*peers)[static_cast<std::size_t>(rank)];
          peer = builder.spawn_peer(rank, builder.across_link(supervisor), builder.crew().evaluator,
                                    builder.crew().tracer);
          return builder.across_link(peer);
        }));
  for (const Death& death : config.deaths)
    faults.push_back(system.spawn(rank_killer, config.transport, death, peers));
  for (const Drain& drain : drains)
    faults.push_back(system.spawn(rank_drainer, supervisor, config.transport, drain));
  if (config.stop_at) faults.push_back(system.spawn(run_stopper, supervisor, *config.stop_at));
  const std::optional<Error> stuck = run_events(scheduler, world, start_ns, supervisor, *recorder);
  if (stuck) close_trace_of(scheduler, supervisor, builder, *peers);
  if (world.network) {
    world.network->close();
  } else {
    for (Rank rank = 0; rank < config.world_size(); ++rank) config.transport->detach(rank);
  }
  // Messages in a slow control plane, for example the end of a peer, will not arrive.
  if (stuck || world.control_delay > Duration::zero()) kill_all(supervisor, builder, *peers);
  // Faults that are not due yet, and ranks that wait for a place, would wait for ever.
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
