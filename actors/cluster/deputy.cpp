#include "actors/cluster/deputy.hpp"

#include "actors/record/close_trace.hpp"
#include "actors/record/resume_hint.hpp"

namespace grapevine {
namespace {

constexpr Duration kFarewellPatience = std::chrono::seconds(5);

}  // namespace

void DeputyState::init(LocalDeputy::stateful_pointer<DeputyState> self, DeputyConfig config) {
  self_ = self;
  config_ = std::move(config);
}

void DeputyState::appoint(Appoint appointment) {
  appointment_ = std::move(appointment);
  self_->monitor(appointment_.supervisor);
  if (appointment_.tracer) self_->monitor(appointment_.tracer);
}

void DeputyState::on_run_ended(const RunEnded& ended) {
  if (std::exchange(ending_, true)) return;
  if (ended.failed) result_.error = ended.error;
  result_.interrupted = ended.interrupted;
  result_.checkpoint = ended.checkpoint;
  if (!appointment_.tracer) return end();
  close_trace(self_, appointment_.tracer, appointment_.peers, ended.failed);
  self_->delayed_send(DeputyActor{self_}, kFarewellPatience,
                      TraceClosed{0, 0, "it could not be closed in time", 0});
}

void DeputyState::on_trace_closed(const TraceClosed& closed) {
  if (!ending_ || std::exchange(ended_, true)) return;
  if (const std::string problem = trace_problem(closed); !problem.empty())
    config_.observer->on_warning(problem);
  end();
}

void DeputyState::on_process_lost(std::int32_t process) {
  const bool other = process >= 0 && process < config_.processes && process != config_.process;
  if (other && config_.process_down) config_.process_down(process);
}

// The head tells before it ends: silence means that it died, or that the network did.
void DeputyState::on_down(const caf::down_msg& down) {
  if (appointment_.tracer && appointment_.tracer.address() == down.source) {
    appointment_.tracer = TracerActor{};
    if (ending_) on_trace_closed({0, 0, "its writer ended", 0});
    return;
  }
  if (!ending_) on_process_lost(0);
  RunEnded ended;
  ended.failed = true;
  ended.error =
      Error{Errc::peer_down, "process 0 at " + config_.head + " is gone: its own output says why" +
                                 hint_without_head()};
  on_run_ended(ended);
}

// The folder is on the head's machine.
std::string DeputyState::hint_without_head() const {
  if (!resume_from_.empty()) return resume_hint(resume_from_);
  if (appointment_.out.empty()) return resume_hint("");
  return search_hint(appointment_.out, config_.head.substr(0, config_.head.rfind(':')));
}

void DeputyState::end() {
  if (appointment_.supervisor) self_->send(appointment_.supervisor, Farewell{config_.process});
  for (const PeerActor& peer : appointment_.peers)
    self_->send_exit(peer, caf::exit_reason::user_shutdown);
  if (appointment_.tracer) self_->send_exit(appointment_.tracer, caf::exit_reason::user_shutdown);
  config_.observer->on_end(result_);
  self_->quit();
}

LocalDeputy::behavior_type deputy(LocalDeputy::stateful_pointer<DeputyState> self,
                                  DeputyConfig config) {
  DeputyState& state = self->state;
  state.init(self, std::move(config));
  self->set_down_handler([&state](const caf::down_msg& down) { state.on_down(down); });
  return {
      [&state](const RunEnded& ended) { state.on_run_ended(ended); },
      [&state](const TraceClosed& closed) { state.on_trace_closed(closed); },
      [self, &state](StopRequested) {
        if (state.supervisor()) self->send(state.supervisor(), StopRequested{});
      },
      [self, &state](CheckpointRequested) {
        if (state.supervisor()) self->send(state.supervisor(), CheckpointRequested{});
      },
      [&state](const ResumeFrom& from) { state.on_resume_from(from.path); },
      [&state](ProcessLost lost) { state.on_process_lost(lost.process); },
      [](Ping) { return Pong{}; },
      [&state](Appoint& appointment) { state.appoint(std::move(appointment)); },
  };
}

}  // namespace grapevine
