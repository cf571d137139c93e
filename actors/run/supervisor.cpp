#include "actors/run/supervisor.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "actors/clock_time.hpp"
#include "actors/record/close_trace.hpp"
#include "actors/record/resume_hint.hpp"
#include "actors/run/models/model_averager.hpp"
#include "actors/run/whole_epochs.hpp"
#include "actors/unexpected_messages.hpp"
#include "messages/text/exception_line.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {
namespace {

constexpr Duration kCollectInterval = std::chrono::milliseconds(5);

}  // namespace

void SupervisorState::init(SupervisorActor::stateful_pointer<SupervisorState> self,
                           SupervisorConfig config) {
  self_ = self;
  config_ = std::move(config);
  members_ = RunMembers(config_.ranks, config_.servers);
  TrainingRanks ranks = config_.continuing;
  if (ranks.members.empty()) {
    ranks.members.resize(static_cast<std::size_t>(members_.workers()));
    std::iota(ranks.members.begin(), ranks.members.end(), 0);
  }
  if (ranks.heads.empty() && config_.models.node_size > 1)
    ranks.heads = first_of_each_node(ranks.members, config_.models.node_size);
  ranks.servers = members_.server_ranks();
  view_ = ViewChange(std::move(ranks), config_.view, config_.first_batch, config_.ahead,
                     planned_batches());
  for (const auto& [rank, batches] : config_.taken) view_.on_taken(rank, config_.view, batches);
  batches_so_far_ = config_.earlier_batches;
  progress_.add_former(config_.former);
  for (const RankFigures& figures : config_.figures) progress_.add(figures);
  checkpoints_ = CheckpointRounds({config_.checkpoints, config_.checkpoint_every_epochs,
                                   config_.total_epochs, config_.resumed_least});
  suspects_ = LinkSuspects(config_.silence);
  if (config_.lost_after)
    silent_ = SilentProcesses(std::min(*config_.lost_after, config_.silence), config_.silence);
  WaitLimits limits;
  limits.first = config_.timeout;
  limits.abort = config_.stall_abort;
  waits_ = WaitWatch(limits);
}

Timestamp SupervisorState::now() const {
  return clock_time(self_->clock()) - Duration(config_.run_start_ns);
}

// ---- the run ----

void SupervisorState::begin(BeginRun actors) {
  crew_ = Crew(self_, std::move(actors));
  members_.set_processes(crew_.processes());
  config_.run_start_ns += now().count();  // without the time of the rendezvous
  // An epoch that only some ranks had behind them at the checkpoint is not evaluated again.
  if (crew_.evaluates())
    evaluations_due_ = whole_epochs(config_.total_epochs) - whole_epochs(config_.resumed_most);
  last_news_ = now();
  begin_wait_watch();
  config_.observer->on_begun();
  leave_places_vacant();
  crew_.send_to_ranks_but(config_.absent, StartTraining{});
  const std::vector<Rank> ranks = members_.remaining_ranks_that_train();
  const bool joins = std::any_of(config_.absent.begin(), config_.absent.end(),
                                 [this](Rank rank) { return !members_.is_lost(rank); });
  if (joins || view_.members() != ranks) begin_view_change();
  if (!config_.resumed_from.empty()) report_resume_from(config_.resumed_from);
  compare_all_clocks();
  watch_later();
  if (stop_early_) on_stop_requested();
  obey_early_orders();
}

// Their processes are, for the others, as lost ones, whose places others may take.
void SupervisorState::leave_places_vacant() {
  if (config_.vacant.empty()) return;
  for (const Rank rank : config_.vacant) {
    members_.leave_vacant(rank);
    progress_.lose(rank);
    waits_.remove(rank);
  }
  crew_.report_members({members_.remaining_ranks_that_train(), {}, 0});
}

void SupervisorState::on_step(const StepReport& report) {
  last_news_ = now();
  waits_.on_step(report.rank, last_news_);
  view_.on_step(report.rank);
  view_.on_taken(report.rank, report.view, report.taken);
  hear(report.rank);
  if (stage_ == Stage::ended || (stopping_ && preserves_previous_run())) return;
  progress_.add(report);
  config_.observer->on_step(report);
  follow_schedule();
  // The next run must not resume from a checkpoint after a failure.
  if (stage_ != Stage::running || is_changing() || !checkpoints_.may_be_due()) return;
  const auto epochs = progress_.slowest_epochs(members_);
  if (!epochs) return;
  if (auto name = checkpoints_.due(*epochs))
    begin_checkpoint(checkpoints_.begin(std::move(*name), now()));
}

void SupervisorState::on_figures(const RankFigures& figures) {
  if (stage_ == Stage::ended || members_.is_lost(figures.rank)) return;
  progress_.add(figures);
  config_.observer->on_figures(figures);
}

void SupervisorState::on_finished(RankFinished finished) {
  last_news_ = now();
  progress_.finish(finished.rank);
  waits_.finish(finished.rank);
  drain_if_finished();
}

void SupervisorState::on_evaluated(const EpochEvaluated& evaluated) {
  last_news_ = now();
  --evaluations_due_;
  if (evaluated.error.empty()) {
    crew_.report_validation(evaluated);
    config_.observer->on_validation(evaluated.epoch, evaluated.evaluation);
  } else {
    config_.observer->on_warning("validation of epoch " + std::to_string(evaluated.epoch + 1) +
                                 ": " + evaluated.error);
  }
  end_if_finished();
}

// The last resort: the observer still receives the end of the run.
void SupervisorState::on_exception(const std::exception_ptr& problem) {
  if (std::exchange(stage_, Stage::ended) == Stage::ended) return;
  RunResult result;
  result.error = Error{Errc::failed, "the supervisor failed: " + exception_line(problem)};
  config_.observer->on_end(std::move(result));
  crew_.end_ranks();
}

// A timeout that is shorter than the usual interval is kept, too.
void SupervisorState::watch_later() {
  Duration interval = std::min(waits_.interval(), config_.timeout);
  if (silent_.watches()) interval = std::min(interval, silent_.patience() / 4);
  self_->delayed_send(SupervisorActor{self_}, interval, Watchdog{});
}

// No wait is unbounded: a run in which no rank takes a step has failed.
void SupervisorState::on_watchdog() {
  if (stage_ == Stage::ended) return;
  if (stage_ == Stage::closing && closing_.overdue(now())) {
    config_.observer->on_warning(closing_.unclosed());
    return end();
  }
  watch_later();
  if (checkpoints_.overdue(now(), config_.timeout)) give_up_checkpoint();
  const Duration limit =
      waits_.limit(config_.timeout, config_.first_timeout.value_or(config_.timeout));
  const Duration without_news = now() - last_news_;
  if (stage_ != Stage::closing && without_news > limit)
    return fail({Errc::timeout, "no rank made progress for " + seconds_text(limit) + "; " +
                                    missing_states() + awaited() +
                                    progress_.last_steps(members_.workers()) +
                                    "; give a larger --timeout where a step takes that long"});
  // Only the ranks know whether a state still arrives: see on_waits(). The limit may end before a
  // wait is unusual.
  if (stage_ != Stage::closing && without_news > limit / 2) crew_.send_to_ranks(QueryWaits{});
  watch_waits();
  watch_silence();
  watch_change();
}

// The chain of waits that the run stands in, as far as it is known.
std::string SupervisorState::awaited() const {
  const std::string chain = waits_.told_since(last_news_);
  return chain.empty() ? "" : chain + "; ";
}

std::string SupervisorState::missing_states() const {
  std::string text;
  if (reports_.in_round())
    text += "the last state is missing of " + members_.missing_in(reports_.reports()) + "; ";
  if (stage_ == Stage::draining && reports_.complete() && average_due())
    text += "models are being fetched; ";
  if (checkpoints_.cutting())
    text += "the state for a checkpoint is missing of " + checkpoints_.missing(members_) + "; ";
  return text;
}

// Ends early: one last checkpoint, then the models as they are. Where training is over already,
// validations that are still due are left out.
void SupervisorState::on_stop_requested() {
  if (stage_ == Stage::draining && std::exchange(evaluations_due_, 0) > 0) return end_if_finished();
  if (stage_ != Stage::running || stopping_) return;
  // Once all processes have joined, and the ranks have agreed.
  if (crew_.empty() || is_changing()) {
    stop_early_ = true;
    return;
  }
  stopping_ = true;
  result_.interrupted = true;
  evaluations_due_ = 0;
  stage_ = Stage::draining;
  trained_at_ = now();
  checkpoints_.take_postponed();  // the last one takes its place
  reports_.accept_in_flight();    // they are in the checkpoint
  collect();
  if (!checkpoints_.enabled() || preserves_previous_run())
    checkpoints_.skip_final();
  else if (checkpoints_.idle())
    begin_final_checkpoint("");
}

// ---- the end ----

// All ranks took their last step. Late messages still change models.
void SupervisorState::drain_if_finished() {
  if (is_changing()) return;  // ranks of the view to come say so again
  if (!progress_.all_finished(members_) || stage_ != Stage::running) return;
  stage_ = Stage::draining;
  view_.end_training();
  report_missed_schedule();
  collect();
}

// Where training ends after a number of samples: the batch behind the last one.
std::optional<std::int64_t> SupervisorState::planned_batches() const {
  if (!config_.horizon.by_samples) return std::nullopt;
  const BatchEpochs& epochs = config_.batches;
  const double all = config_.horizon.run_epochs() * static_cast<double>(epochs.per_epoch);
  return static_cast<std::int64_t>(std::ceil(all - 1e-6)) - epochs.before;
}

BatchTally SupervisorState::batches_with_earlier() const {
  BatchTally tally = config_.earlier_batches;
  tally.merge(view_.batches().tally(config_.batches));
  return tally;
}

void SupervisorState::collect() {
  if (stage_ != Stage::draining) return;
  reports_.begin_round();
  crew_.send_to_ranks(Collect{reports_.with_models()});
}

void SupervisorState::on_report(RankReport& report) {
  if (stage_ != Stage::draining || !reports_.in_round() || members_.is_lost(report.rank)) return;
  reports_.add(report);
  evaluate_reports();
}

void SupervisorState::evaluate_reports() {
  switch (reports_.evaluate(members_)) {
    case FinalReports::Next::wait:
      return;
    case FinalReports::Next::ask_later:
      return self_->delayed_send(SupervisorActor{self_}, kCollectInterval, CollectAgain{});
    case FinalReports::Next::ask_models:
      trained_at_ = now();
      return collect();
    case FinalReports::Next::complete:
      average_models();
      return end_if_finished();
  }
}

// In a single process the models are averaged at the end, in their place.
bool SupervisorState::average_due() const { return crew_.averages() && !average_; }

// Again where a rank is lost whose model would have counted.
void SupervisorState::average_models() {
  average_.reset();
  if (crew_.averages())
    crew_.average({++average_round_, last_models(reports_.reports(), members_)});
}

void SupervisorState::on_averaged(AveragedModels& averaged) {
  last_news_ = now();
  if (stage_ != Stage::draining || averaged.round != average_round_) return;
  if (!averaged.z.defined()) return fail({Errc::failed, "the final model: " + averaged.why});
  average_ = std::move(averaged);
  end_if_finished();
}

void SupervisorState::end_if_finished() {
  if (stage_ != Stage::draining || !reports_.complete() || !checkpoints_.idle()) return;
  if (average_due()) return;
  if (checkpoints_.final_due()) return begin_final_checkpoint(stopping_ ? "" : "final");
  if (evaluations_due_ > 0) return;
  close();
}

void SupervisorState::fail(Error error) {
  if (stage_ == Stage::closing || stage_ == Stage::ended) return;
  // A checkpoint that could not be written is none that is being written.
  if (error.code == Errc::io) error.message += resume_hint(last_resumable());
  if (error.code == Errc::peer_down) error.message += resume_hint_now();
  result_.error = std::move(error);
  if (!trained_at_) trained_at_ = now();
  cancel_checkpoint();  // the next run must not resume from the state of a failure
  close();
}

// Traces first, here and in the other processes; the watchdog ends the wait for missing answers.
void SupervisorState::close() {
  stage_ = Stage::closing;
  if (wiring_.asks()) refuse_wiring("the run is ending");
  closing_.begin(now(), crew_.traces(), members_.remaining_processes());
  if (crew_.traces()) crew_.close_trace(result_.error.has_value());
  crew_.send_to_processes(RunEnded{result_.error.has_value(), result_.error.value_or(Error{}),
                                   result_.interrupted, result_.checkpoint});
  end_if_closed();
}

void SupervisorState::on_trace_closed(const TraceClosed& closed) {
  result_.trace_hash = closed.hash;
  result_.trace_records = closed.records;
  if (const std::string problem = trace_problem(closed); !problem.empty())
    config_.observer->on_warning(problem);
  closing_.close_trace();
  end_if_closed();
}

void SupervisorState::on_trace_refused(const TraceRefused& refused) {
  config_.observer->on_warning(trace_problem(refused));
}

void SupervisorState::on_process_closed(ProcessClosed closed) {
  closing_.close_process(closed.process);
  end_if_closed();
}

void SupervisorState::end_if_closed() {
  if (stage_ == Stage::closing && closing_.done()) end();
}

void SupervisorState::end() {
  RunResult result = conclude();  // may run out of memory: then on_exception() reports
  stage_ = Stage::ended;
  config_.observer->on_end(std::move(result));
  crew_.dismiss();
  self_->quit();
}

RunResult SupervisorState::conclude() const {
  RunResult result = result_;
  result.writing = checkpoints_.writing();
  result.lacks_final = checkpoints_.final_lost();
  result.seconds = to_seconds(config_.elapsed_before + trained_at_.value_or(now()));
  for (const Rank rank : members_.lost())
    (members_.is_vacant(rank) ? result.vacant : result.lost).push_back(rank);
  result.returned = progress_.returned();
  result.joined = progress_.joined();
  result.batches = batches_with_earlier();
  const auto losses = static_cast<std::int64_t>(result.lost.size());
  result.views = 1 + (config_.changes_members ? view_.installed() : losses);
  for (const Rank rank : gone_)
    if (!members_.is_lost(rank)) result.lost.push_back(rank);
  std::sort(result.lost.begin(), result.lost.end());
  if (!reports_.has_models(members_)) return result;
  add_reports(result, reports_.reports(), progress_, members_);
  if (!average_due())
    add_models(result,
               average_ ? *average_ : average_here(last_models(reports_.reports(), members_)));
  return result;
}

World SupervisorState::world() const {
  World world;
  world.processes = members_.processes();
  world.ranks = std::max(members_.ranks(), static_cast<std::int32_t>(crew_.peers().size()));
  world.servers = members_.servers();
  world.spare = world.ranks - members_.ranks();
  world.parameters = config_.parameters;
  world.buffers = config_.buffers;
  return world;
}

template <class Message>
bool SupervisorState::admits(const Message& message) {
  return gate_.admits(check(message, world()), self_->clock().now(),
                      [this](const Error& error) { fail(error); });
}

bool SupervisorState::admits(const RankReport& report) {
  const bool with_model =
      stage_ == Stage::draining && reports_.in_round() && reports_.with_models();
  return gate_.admits(check(report, world(), with_model), self_->clock().now(),
                      [this](const Error& error) { fail(error); });
}

// A process that was stopped may continue once another one has its place, and report the end of its
// links, in the name of ranks that are the other one's now.
bool SupervisorState::hears_former_actor() const {
  const caf::strong_actor_ptr& sender = self_->current_sender();
  return sender && crew_.is_former(caf::actor_cast<caf::actor_addr>(sender));
}

// Of an actor of another process: whether its rank, or its process, is one that the run still has.
bool SupervisorState::is_of_the_run(const caf::actor_addr& actor) const {
  if (const Rank rank = crew_.rank_behind(actor); rank >= 0) return !members_.is_lost(rank);
  const std::int32_t process = crew_.process_behind(actor);
  return process > 0 && !members_.is_process_lost(process);
}

// CAF gives a sender of another process the node of that process, since BaspGuard refuses messages
// in the name of a third one, and none where it was not named.
void SupervisorState::obey(std::function<void()> order, std::optional<EarlyOrders::Kind> early) {
  const caf::strong_actor_ptr& sender = self_->current_sender();
  if (hears_former_actor()) return;
  const bool is_local = sender && sender->node() == self_->node();
  if (is_local || (sender && is_of_the_run(caf::actor_cast<caf::actor_addr>(sender))))
    return order();
  const char* why = "an order of an actor that is none of the run's";
  if (sender && crew_.empty()) {
    const auto address = caf::actor_cast<caf::actor_addr>(sender);
    if (!early || early_orders_.add(*early, sender->node(), address, std::move(order))) return;
    why = "an order before the run begins, while as many wait as have room";
  }
  gate_.admits(Error{Errc::protocol, why}, self_->clock().now());
}

void SupervisorState::obey_early_orders() {
  for (const auto& order :
       early_orders_.take([this](const caf::actor_addr& actor) { return is_of_the_run(actor); }))
    order();
}

namespace {

// A handler of a message that fits the run; any other is left out: see SupervisorState::admits().
template <class Message>
auto admitted(SupervisorState& state, void (SupervisorState::*handle)(Message)) {
  return [&state, handle](Message message) {
    if (!state.hears_former_actor() && state.admits(message))
      (state.*handle)(std::forward<Message>(message));
  };
}

}  // namespace

SupervisorActor::behavior_type supervisor(SupervisorActor::stateful_pointer<SupervisorState> self,
                                          SupervisorConfig config) {
  SupervisorState& state = self->state;
  state.init(self, std::move(config));
  ignore_unexpected_messages(*self);
  self->set_down_handler([&state](const caf::down_msg& down) { state.on_down(down); });
  self->set_exception_handler([&state](std::exception_ptr& problem) -> caf::error {
    state.on_exception(problem);
    return caf::exit_reason::unhandled_exception;
  });
  return {
      [&state](BeginRun& crew) { state.begin(std::move(crew)); },
      admitted(state, &SupervisorState::on_step),
      admitted(state, &SupervisorState::on_finished),
      admitted(state, &SupervisorState::on_snapshot),
      admitted(state, &SupervisorState::on_stored),
      admitted(state, &SupervisorState::on_report),
      [&state](const RankFailed& failed) {
        state.obey([&state, failed] { state.on_failed(failed); }, EarlyOrders::Kind::failure);
      },
      [&state](const EpochEvaluated& evaluated) { state.on_evaluated(evaluated); },
      [&state](Progress) { state.on_progress(); },
      [&state](const CheckpointWritten& written) { state.on_written(written); },
      [&state](StopRequested) {
        state.obey([&state] { state.on_stop_requested(); }, EarlyOrders::Kind::stop);
      },
      // Not early: no rank trains yet, and there is no state to save.
      [&state](CheckpointRequested) { state.obey([&state] { state.on_checkpoint_requested(); }); },
      [&state](Watchdog) { state.on_watchdog(); },
      [&state](CollectAgain) { state.collect(); },
      admitted(state, &SupervisorState::on_traffic),
      admitted(state, &SupervisorState::on_view_closed),
      admitted(state, &SupervisorState::on_waits),
      [&state](AskTrafficAgain) { state.ask_for_traffic(); },
      admitted(state, &SupervisorState::on_settings_checked),
      [&state](SettingsTimeOver over) { state.on_settings_time_over(over); },
      admitted(state, &SupervisorState::on_model_shared),
      [&state](AveragedModels& averaged) { state.on_averaged(averaged); },
      [&state](AskPlace ask) { return state.on_ask_place(ask); },
      [&state](AskVacancy) { return state.on_ask_vacancy(); },
      [&state](ProcessReturned& returned) { state.on_process_returned(returned); },
      [&state](AskRunState) { return state.on_ask_state(); },
      [&state](const ControlRequest& request) { return state.on_control(request); },
      [&state](const TraceClosed& closed) { state.on_trace_closed(closed); },
      [&state](const TraceRefused& refused) { state.on_trace_refused(refused); },
      admitted(state, &SupervisorState::on_process_closed),
      admitted(state, &SupervisorState::on_link_lost),
      [&state](AskAgain again) { state.ask_whether_alive(again.process); },
      admitted(state, &SupervisorState::on_snapshot_refused),
      [&state](CompareClocks again) { state.compare_clocks(again); },
      admitted(state, &SupervisorState::on_figures),
  };
}

}  // namespace grapevine
