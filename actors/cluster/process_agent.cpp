#include "actors/cluster/process_agent.hpp"

#include "actors/clock_time.hpp"
#include "actors/record/close_trace.hpp"
#include "actors/record/resume_hint.hpp"
#include "actors/unexpected_messages.hpp"
#include "messages/text/exception_line.hpp"

namespace grapevine {
namespace {

constexpr Duration kTraceCloseTimeout = std::chrono::seconds(5);
// After the end of the supervisor, until the reason has come that another actor sends.
constexpr Duration kReasonIsSent = std::chrono::seconds(1);

}  // namespace

void ProcessAgentState::init(LocalProcessAgent::stateful_pointer<ProcessAgentState> self,
                             ProcessAgentConfig config) {
  self_ = self;
  config_ = std::move(config);
}

void ProcessAgentState::watch(const WatchSupervisor& watch) {
  out_ = watch.out;
  self_->monitor(watch.supervisor);
}

void ProcessAgentState::assign(AssignRun run) {
  run_ = std::move(run);
  if (run_.tracer) self_->monitor(run_.tracer);
}

void ProcessAgentState::on_run_ended(const RunEnded& ended) {
  if (std::exchange(ending_, true)) return;
  if (ended.failed) result_.error = ended.error;
  result_.interrupted = ended.interrupted;
  result_.checkpoint = ended.checkpoint;
  if (!run_.tracer) return end();
  // Peers that end of themselves have sent all records.
  close_trace(self_, run_.tracer, run_.peers, ended.failed || ended.leaves);
  self_->delayed_send(ProcessAgentActor{self_}, kTraceCloseTimeout,
                      TraceClosed{0, 0, "it could not be closed in time", 0});
}

void ProcessAgentState::on_trace_closed(const TraceClosed& closed) {
  if (!ending_ || std::exchange(ended_, true)) return;
  if (const std::string problem = trace_problem(closed); !problem.empty())
    config_.observer->on_warning(problem);
  end();
}

void ProcessAgentState::on_trace_refused(const TraceRefused& refused) {
  if (!ended_) config_.observer->on_warning(trace_problem(refused));
}

void ProcessAgentState::on_process_lost(std::int32_t process) {
  if (is_other(process) && config_.process_down) config_.process_down(process);
}

void ProcessAgentState::on_expect_process(const ExpectProcess& expected) {
  if (is_other(expected.process) && config_.expect_process) config_.expect_process(expected);
}

void ProcessAgentState::on_state_arrival(const StateArrival& arrival) {
  if (!ending_) config_.observer->on_state_arrival(arrival);
}

// The coordinator announces its end: without that message it died, or the network failed.
void ProcessAgentState::on_down(const caf::down_msg& down) {
  if (run_.tracer && run_.tracer.address() == down.source) {
    run_.tracer = TracerActor{};
    if (ending_) on_trace_closed({0, 0, "its writer ended", 0});
    return;
  }
  if (!ending_) on_process_lost(0);
  RunEnded ended;
  ended.failed = true;
  ended.error =
      Error{Errc::peer_down, "process 0 at " + config_.coordinator +
                                 " is gone: its own output says why" + hint_without_coordinator()};
  // Before it begins, the rendezvous tells this process why the others end: the first reason
  // counts.
  if (!run_.supervisor)
    return self_->delayed_send(ProcessAgentActor{self_}, kReasonIsSent, std::move(ended));
  on_run_ended(ended);
}

ClockReading ProcessAgentState::read_clock() const {
  return {clock_time(self_->clock()).count() - config_.trace_zero_ns, config_.trace_zero_ns};
}

// The folder is on the coordinator's machine.
std::string ProcessAgentState::hint_without_coordinator() const {
  if (!resume_from_.empty()) return resume_hint(resume_from_);
  if (out_.empty()) return resume_hint("");
  return search_hint(out_, config_.coordinator.substr(0, config_.coordinator.rfind(':')));
}

void ProcessAgentState::end() {
  if (run_.supervisor) self_->send(run_.supervisor, ProcessClosed{config_.process});
  for (const PeerActor& peer : run_.peers) self_->send_exit(peer, caf::exit_reason::user_shutdown);
  if (run_.tracer) self_->send_exit(run_.tracer, caf::exit_reason::user_shutdown);
  report_end();
  self_->quit();
}

void ProcessAgentState::report_end() {
  if (!std::exchange(reported_, true)) config_.observer->on_end(result_);
}

// The last resort: the observer still receives the end of the run.
void ProcessAgentState::on_exception(const std::exception_ptr& problem) {
  ending_ = ended_ = true;
  if (!result_.error)
    result_.error =
        Error{Errc::failed, "the agent of this process failed: " + exception_line(problem)};
  report_end();
}

LocalProcessAgent::behavior_type process_agent(
    LocalProcessAgent::stateful_pointer<ProcessAgentState> self, ProcessAgentConfig config) {
  ProcessAgentState& state = self->state;
  state.init(self, std::move(config));
  ignore_unexpected_messages(*self);
  self->set_down_handler([&state](const caf::down_msg& down) { state.on_down(down); });
  self->set_exception_handler([&state](std::exception_ptr& problem) -> caf::error {
    state.on_exception(problem);
    return caf::exit_reason::unhandled_exception;
  });
  return {
      [&state](const RunEnded& ended) { state.on_run_ended(ended); },
      [&state](const TraceClosed& closed) { state.on_trace_closed(closed); },
      [&state](const TraceRefused& refused) { state.on_trace_refused(refused); },
      [self, &state](StopRequested) {
        if (state.supervisor()) self->send(state.supervisor(), StopRequested{});
      },
      [self, &state](CheckpointRequested) {
        if (state.supervisor()) self->send(state.supervisor(), CheckpointRequested{});
      },
      [&state](const ResumeFrom& from) { state.on_resume_from(from.path); },
      [&state](ProcessLost lost) { state.on_process_lost(lost.process); },
      [&state](const ExpectProcess& expected) { state.on_expect_process(expected); },
      [](Ping) { return Pong{}; },
      [&state](AskClock) { return state.read_clock(); },
      [&state](const StateArrival& arrival) { state.on_state_arrival(arrival); },
      [&state](const WatchSupervisor& watch) { state.watch(watch); },
      [&state](AssignRun& run) { state.assign(std::move(run)); },
  };
}

}  // namespace grapevine
