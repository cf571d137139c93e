#include "actors/run/supervisor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "actors/record/close_trace.hpp"
#include "actors/record/resume_hint.hpp"
#include "messages/text/exception_line.hpp"
#include "net/loss_reason.hpp"

namespace grapevine {
namespace {

constexpr Duration kWatchInterval = std::chrono::seconds(5);
constexpr Duration kClosePatience = std::chrono::seconds(10);  // for traces to be written
constexpr Duration kCollectInterval = std::chrono::milliseconds(5);
constexpr Duration kAnswerPatience = std::chrono::seconds(2);  // of a process that may be gone

constexpr char kProcessEnded[] = "it ended or cannot be reached any more; its own output says why";

std::string in_seconds(Duration duration) {
  return std::to_string(static_cast<int>(to_seconds(duration))) + " s";
}

// A checkpoint is as far as its slowest rank.
std::string step_name(const std::map<Rank, RankSnapshot>& snapshots, std::int32_t workers) {
  Step slowest = std::numeric_limits<Step>::max();
  for (const auto& [rank, snapshot] : snapshots)
    if (rank < workers) slowest = std::min(slowest, snapshot.step);
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(slowest));
  return name;
}

}  // namespace

void SupervisorState::init(SupervisorActor::stateful_pointer<SupervisorState> self,
                           SupervisorConfig config) {
  self_ = self;
  config_ = std::move(config);
}

Timestamp SupervisorState::now() const {
  const auto since_epoch = self_->clock().now().time_since_epoch();
  return std::chrono::duration_cast<Duration>(since_epoch) - Duration(config_.run_start_ns);
}

// ---- the run ----

void SupervisorState::begin(BeginRun crew) {
  crew_ = std::move(crew);
  config_.run_start_ns += now().count();  // without the time of the rendezvous
  // An epoch that only some ranks had behind them at the checkpoint is not evaluated again.
  if (crew_.evaluator)
    evaluations_due_ = whole_epochs(config_.total_epochs) - whole_epochs(config_.resumed_most);
  if (config_.checkpoint_every_epochs > 0)
    epochs_checkpointed_ = whole_epochs(config_.resumed_least / config_.checkpoint_every_epochs);
  last_news_ = now();
  for (const PeerActor& peer : crew_.peers) {
    self_->monitor(peer);
    self_->send(peer, StartTraining{});
  }
  for (const ProcessAgentActor& agent : crew_.agents) self_->monitor(agent);
  if (!config_.resumed_from.empty()) tell_resume_from(config_.resumed_from);
  if (crew_.evaluator) self_->monitor(crew_.evaluator);
  if (crew_.writer) self_->monitor(crew_.writer);
  if (crew_.tracer) self_->monitor(crew_.tracer);
  self_->delayed_send(SupervisorActor{self_}, kWatchInterval, Watchdog{});
  if (stop_early_) on_stop_requested();
}

void SupervisorState::on_step(const StepReport& report) {
  last_news_ = now();
  if (stage_ == Stage::ended || (stopping_ && preserves_previous_run())) return;
  steps_[report.rank] = report.step;
  epochs_[report.rank] = report.epochs_done;
  samples_[report.rank] += report.samples;
  config_.observer->on_step(report);
  // The next run must not resume from a checkpoint after a failure.
  if (stage_ != Stage::running) return;
  if (!config_.checkpoints || config_.checkpoint_every_epochs <= 0 || cutting_ || writing_) return;
  if (static_cast<std::int32_t>(epochs_.size() + lost_.size()) < workers()) return;
  double behind = report.epochs_done;  // all ranks
  for (const auto& [rank, epochs] : epochs_) behind = std::min(behind, epochs);
  const std::int64_t due = whole_epochs(behind / config_.checkpoint_every_epochs);
  if (due <= epochs_checkpointed_ || whole_epochs(behind) >= config_.total_epochs) return;
  epochs_checkpointed_ = due;
  char name[32];
  std::snprintf(name, sizeof name, "epoch-%04lld", static_cast<long long>(whole_epochs(behind)));
  begin_cut(config_.checkpoint_every_epochs < 1 ? "" : name);
}

void SupervisorState::on_finished(RankFinished finished) {
  last_news_ = now();
  finished_.insert(finished.rank);
  drain_if_finished();
}

void SupervisorState::drain_if_finished() {
  if (static_cast<std::int32_t>(finished_.size()) == config_.ranks && stage_ == Stage::running)
    drain();
}

void SupervisorState::on_evaluated(const EpochEvaluated& evaluated) {
  last_news_ = now();
  --evaluations_due_;
  if (!evaluated.error.empty())
    config_.observer->on_warning("validation of epoch " + std::to_string(evaluated.epoch) + ": " +
                                 evaluated.error);
  else
    config_.observer->on_validation(evaluated.epoch, evaluated.evaluation);
  end_if_finished();
}

void SupervisorState::on_progress() { last_news_ = now(); }

void SupervisorState::on_failed(const RankFailed& failed) { fail(failed.error); }

// The last resort: the observer still receives the end of the run.
void SupervisorState::on_exception(const std::exception_ptr& problem) {
  if (std::exchange(stage_, Stage::ended) == Stage::ended) return;
  RunResult result;
  result.error = Error{Errc::failed, "the supervisor failed: " + exception_line(problem)};
  config_.observer->on_end(std::move(result));
  for (const PeerActor& peer : crew_.peers) self_->send_exit(peer, caf::exit_reason::user_shutdown);
}

// No wait is unbounded: a run in which no rank takes a step has failed.
void SupervisorState::on_watchdog() {
  if (stage_ == Stage::ended) return;
  if (stage_ == Stage::closing && now() - closing_since_ >= kClosePatience) {
    config_.observer->on_warning(unclosed());
    return end();
  }
  self_->delayed_send(SupervisorActor{self_}, kWatchInterval, Watchdog{});
  if (cutting_ && now() - cut_news_ > config_.patience) give_up_cut();
  if (stage_ != Stage::closing && now() - last_news_ > config_.patience)
    return fail({Errc::timeout, "no rank made progress for " + in_seconds(config_.patience) + "; " +
                                    missing_states() + last_steps() +
                                    "; give a larger --timeout where a step takes that long"});
}

std::string SupervisorState::missing_states() const {
  std::string text;
  if (collecting_) text += "the last state is missing of " + without(reports_) + "; ";
  if (cutting_) text += "the state for a checkpoint is missing of " + without(snapshots_) + "; ";
  return text;
}

// The ranks that are not lost and have not answered.
template <class Answers>
std::string SupervisorState::without(const Answers& answers) const {
  std::string list;
  for (Rank rank = 0; rank < config_.ranks; ++rank)
    if (answers.count(rank) == 0 && lost_.count(rank) == 0)
      list += (list.empty() ? "rank " : ", ") + std::to_string(rank);
  return list;
}

std::string SupervisorState::last_steps() const {
  if (steps_.empty()) return "none has finished a step";
  std::string list = "last steps by rank: ";
  for (Rank rank = 0; rank < workers(); ++rank) {
    const auto step = steps_.find(rank);
    list += (rank == 0 ? "" : ", ") + std::to_string(rank) + ":" +
            (step == steps_.end() ? "none" : std::to_string(step->second));
  }
  return list;
}

// ---- checkpoints ----

void SupervisorState::begin_cut(std::string name) {
  cutting_ = true;
  cut_name_ = std::move(name);
  snapshots_.clear();
  ++cut_id_;
  cut_news_ = now();
  // Progress is no longer measured in steps: the cut has its own patience.
  if (stage_ == Stage::draining) last_news_ = cut_news_;
  for (const PeerActor& peer : crew_.peers) self_->send(peer, TakeSnapshot{cut_id_});
}

void SupervisorState::on_snapshot(RankSnapshot& snapshot) {
  last_news_ = now();
  if (snapshot.id != cut_id_ || !cutting_) return;
  cut_news_ = last_news_;
  const Rank rank = snapshot.rank;
  snapshots_.emplace(rank, std::move(snapshot));
  if (static_cast<std::int32_t>(snapshots_.size()) < config_.ranks) return;
  cutting_ = false;
  writing_ = true;
  if (cut_name_.empty()) cut_name_ = step_name(snapshots_, workers());
  WriteCheckpoint write{cut_id_, cut_name_, {}};
  for (auto& [by, one] : std::exchange(snapshots_, {})) write.ranks.push_back(std::move(one));
  self_->send(crew_.writer, std::move(write));
}

// A lost snapshot must not prevent later checkpoints.
void SupervisorState::give_up_cut() {
  config_.observer->on_warning("a checkpoint is given up: no state came from " +
                               without(snapshots_) + " for " + in_seconds(config_.patience));
  cutting_ = false;
  snapshots_.clear();
  end_if_finished();
}

// A failed checkpoint does not end training.
void SupervisorState::on_snapshot_refused(const SnapshotRefused& refused) {
  if (refused.id != cut_id_ || !cutting_) return;
  config_.observer->on_warning("no further checkpoints: " + one_line(refused.reason));
  config_.checkpoints = false;
  cutting_ = false;
  snapshots_.clear();
  end_if_finished();
}

void SupervisorState::on_written(const CheckpointWritten& written) {
  last_news_ = now();
  writing_ = false;
  if (!written.error.empty()) return fail({Errc::io, "checkpoint: " + written.error});
  result_.checkpoint = written.path;
  tell_resume_from(run_folder_of(written.path));
  config_.observer->on_checkpoint(written.path);
  // The next run must not resume from a checkpoint after a failure.
  if (stage_ == Stage::draining && stopping_ && !final_cut_begun_ && config_.checkpoints) {
    final_cut_begun_ = true;
    return begin_cut("");
  }
  end_if_finished();
}

// Other processes need the path if process 0 is lost.
void SupervisorState::tell_resume_from(const std::string& path) {
  for (const ProcessAgentActor& agent : crew_.agents) self_->send(agent, ResumeFrom{path});
}

void SupervisorState::on_checkpoint_requested() {
  if (crew_.peers.empty()) return;  // no rank trains yet: there is no state to save
  if (stage_ != Stage::running) return;
  if (!config_.checkpoints)
    return config_.observer->on_warning("no checkpoint: the run has no output folder");
  if (preserves_previous_run())
    return config_.observer->on_warning(
        "no checkpoint: no step was taken yet, and the folder holds another run's");
  if (!cutting_ && !writing_) begin_cut("");
}

// A run without a step must not replace the results of another run.
bool SupervisorState::preserves_previous_run() const {
  return config_.output_in_use && steps_.empty();
}

// Ends early: one last checkpoint, then the models as they are. Where training is over already,
// validations that are still due are left out.
void SupervisorState::on_stop_requested() {
  if (stage_ == Stage::draining && std::exchange(evaluations_due_, 0) > 0) return end_if_finished();
  if (stage_ != Stage::running || stopping_) return;
  if (crew_.peers.empty()) {
    stop_early_ = true;  // once all processes have joined
    return;
  }
  stopping_ = true;
  result_.interrupted = true;
  evaluations_due_ = 0;
  stage_ = Stage::draining;
  balanced_ = true;  // messages in flight are in the checkpoint
  trained_at_ = now();
  with_models_ = true;
  collect();
  if (!config_.checkpoints || preserves_previous_run()) {
    final_cut_begun_ = true;
  } else if (!cutting_ && !writing_) {
    final_cut_begun_ = true;
    begin_cut("");
  }
}

// ---- the end ----

// All ranks took their last step. Late messages still change models: collect until all sent
// messages have been received.
void SupervisorState::drain() {
  stage_ = Stage::draining;
  collect();
}

void SupervisorState::collect() {
  if (stage_ != Stage::draining) return;
  collecting_ = true;
  reports_.clear();
  for (const PeerActor& peer : crew_.peers) self_->send(peer, Collect{with_models_});
}

void SupervisorState::on_report(RankReport& report) {
  if (stage_ != Stage::draining || !collecting_) return;
  const Rank rank = report.rank;
  if (lost_.count(rank) > 0) return;
  reports_[rank] = std::move(report);
  weigh_reports();
}

void SupervisorState::weigh_reports() {
  if (static_cast<std::int32_t>(reports_.size() + lost_.size()) < config_.ranks) return;
  collecting_ = false;
  if (with_models_) {
    balanced_ = true;
    return end_if_finished();
  }
  // Reports are of different moments: nothing is in flight once two rounds of reports are equal
  // (Mattern 1987, the four counter method).
  std::int64_t sent = 0, received = 0;
  for (const auto& [r, one] : reports_) {
    sent += one.ledger.sent;
    received += one.ledger.received;
  }
  with_models_ = sent == received && sent == last_sent_;
  last_sent_ = sent == received ? sent : -1;
  if (with_models_) {
    trained_at_ = now();
    return collect();
  }
  self_->delayed_send(SupervisorActor{self_}, kCollectInterval, CollectAgain{});
}

void SupervisorState::end_if_finished() {
  if (stage_ != Stage::draining || collecting_ || !balanced_ || cutting_ || writing_) return;
  if (config_.checkpoints && !final_cut_begun_) {
    final_cut_begun_ = true;
    return begin_cut(stopping_ ? "" : "final");
  }
  if (evaluations_due_ > 0) return;
  close();
}

void SupervisorState::fail(Error error) {
  if (stage_ == Stage::closing || stage_ == Stage::ended) return;
  if (error.code == Errc::peer_down) error.message += resume_hint_now();
  result_.error = std::move(error);
  if (!trained_at_) trained_at_ = now();
  cutting_ = false;  // the next run must not resume from the state of a failure
  close();
}

std::string SupervisorState::resume_hint_now() const {
  if (!result_.checkpoint.empty()) return resume_hint(run_folder_of(result_.checkpoint));
  return writing_ ? writing_hint(config_.out) : resume_hint(config_.resumed_from);
}

// Traces first, here and in the other processes; the watchdog ends the wait for missing answers.
void SupervisorState::close() {
  stage_ = Stage::closing;
  closing_since_ = now();
  if (crew_.tracer) {
    trace_open_ = true;
    close_trace(self_, crew_.tracer, crew_.peers, result_.error.has_value());
  }
  for (std::size_t i = 0; i < crew_.agents.size(); ++i)
    if (const auto process = static_cast<std::int32_t>(i) + 1; lost_processes_.count(process) == 0)
      open_processes_.insert(process);
  const RunEnded ended{result_.error.has_value(), result_.error.value_or(Error{}),
                       result_.interrupted, result_.checkpoint};
  for (const ProcessAgentActor& agent : crew_.agents) self_->send(agent, ended);
  end_if_closed();
}

void SupervisorState::on_trace_closed(const TraceClosed& closed) {
  result_.trace_hash = closed.hash;
  result_.trace_records = closed.records;
  if (const std::string problem = trace_problem(closed); !problem.empty())
    config_.observer->on_warning(problem);
  trace_open_ = false;
  end_if_closed();
}

void SupervisorState::on_process_closed(ProcessClosed closed) {
  open_processes_.erase(closed.process);
  end_if_closed();
}

// The trace and the processes for which close() still waits.
std::string SupervisorState::unclosed() const {
  std::string open = trace_open_ ? "the trace" : "";
  for (const std::int32_t process : open_processes_)
    open += (open.empty() ? "process " : ", process ") + std::to_string(process);
  return "after " + in_seconds(kClosePatience) + " still not closed: " + open +
         "; its last trace records may be missing";
}

void SupervisorState::end_if_closed() {
  if (stage_ == Stage::closing && !trace_open_ && open_processes_.empty()) end();
}

// ---- losses ----

// An actor of this process, or another process, has ended.
void SupervisorState::on_down(const caf::down_msg& down) {
  if (const std::int32_t process = process_behind(down.source); process > 0)
    return on_process_down(process);
  if (stage_ == Stage::closing) return;
  for (Rank rank = 0; rank < static_cast<Rank>(crew_.peers.size()); ++rank) {
    if (crew_.peers[static_cast<std::size_t>(rank)].address() != down.source) continue;
    if (lost_processes_.count(process_of(rank)) > 0) return;  // the transports have reported it
    const std::string why = process_of(rank) == 0
                                ? "its actor ended: " + caf::to_string(down.reason)
                                : std::string(kProcessEnded);
    if (!on_rank_down(rank, why)) return;
    for (const PeerActor& peer : crew_.peers) self_->send(peer, PeerLost{rank, ""});
    return;
  }
  fail({Errc::failed, "an actor ended unexpectedly: " + caf::to_string(down.reason)});
}

// The process of that agent; 0: it is not an agent.
std::int32_t SupervisorState::process_behind(const caf::actor_addr& agent) const {
  for (std::size_t i = 0; i < crew_.agents.size(); ++i)
    if (crew_.agents[i].address() == agent) return static_cast<std::int32_t>(i) + 1;
  return 0;
}

void SupervisorState::on_process_down(std::int32_t process) {
  // A process that has announced its end ended as it should.
  if (stage_ == Stage::closing && open_processes_.erase(process) == 0) return;
  tell_process_lost(process);
  if (stage_ == Stage::closing) return end_if_closed();
  for (Rank rank = 0; rank < config_.ranks; ++rank)
    if (process_of(rank) == process && lost_.count(rank) == 0 && !on_rank_down(rank, kProcessEnded))
      return;
}

// Reports to every transport, so that none waits for the process. Transports report to their ranks,
// after the messages of the lost ranks that have arrived.
void SupervisorState::tell_process_lost(std::int32_t process) {
  if (!lost_processes_.insert(process).second) return;
  suspects_.erase(process);
  if (config_.process_down) config_.process_down(process);
  for (std::size_t i = 0; i < crew_.agents.size(); ++i)
    if (lost_processes_.count(static_cast<std::int32_t>(i) + 1) == 0)
      self_->send(crew_.agents[i], ProcessLost{process});
}

// False where that ends the run.
bool SupervisorState::on_rank_down(Rank rank, const std::string& why) {
  if (lost_.count(rank) > 0) return true;
  const std::string process =
      crew_.agents.empty() ? "" : " of process " + std::to_string(process_of(rank));
  const std::string who = "rank " + std::to_string(rank) + process + " is gone: ";
  if (!config_.tolerates_worker_loss || rank >= workers()) {
    fail({Errc::peer_down, who + why});
    return false;
  }
  config_.observer->on_warning(who +
                               "the other ranks continue without it and write no more checkpoints");
  lose(rank);
  return true;
}

// The end of a process breaks its links, too, and is reported here a moment later. So the process
// is asked whether it lives.
void SupervisorState::on_link_lost(LinkLost lost) {
  if (stage_ != Stage::running && stage_ != Stage::draining) return;
  for (const Rank rank : {lost.reporter, lost.peer})
    if (lost_.count(rank) > 0 || lost_processes_.count(process_of(rank)) > 0) return;
  const std::int32_t process = process_of(lost.peer);
  lost.reason = one_line(std::move(lost.reason));
  if (process == 0) return fail_over_link(lost);  // this one
  if (suspects_.emplace(process, Suspect{std::move(lost), std::nullopt}).second)
    ask_whether_alive(process);
}

// Repeated until the process answers or is lost.
void SupervisorState::ask_whether_alive(std::int32_t process) {
  if (stage_ == Stage::closing || suspects_.count(process) == 0) return;
  self_->request(crew_.agents[static_cast<std::size_t>(process) - 1], kAnswerPatience, Ping{})
      .then(
          [this, process](Pong) {
            const auto suspect = suspects_.find(process);
            if (stage_ == Stage::closing || suspect == suspects_.end()) return;
            const LinkLost lost = std::move(suspect->second.lost);
            suspects_.erase(suspect);
            if (lost_processes_.count(process_of(lost.reporter)) == 0) fail_over_link(lost);
          },
          [this, process](const caf::error& error) { on_no_answer(process, error); });
}

// The heartbeats of its connection to the head allow time for whole checkpoints. They would detect
// a stopped process far later.
void SupervisorState::on_no_answer(std::int32_t process, const caf::error& error) {
  const auto found = suspects_.find(process);
  if (stage_ == Stage::closing || found == suspects_.end()) return;
  std::optional<Timestamp>& since = found->second.silent_since;
  const bool first = !since;
  if (first || sends_much()) since = now();
  if (now() - *since >= config_.silence) return on_process_down(process);
  if (first && error == caf::sec::request_timeout)
    config_.observer->on_warning(
        fmt::format("process {}, to which rank {} has lost its link, does not answer: it counts as "
                    "lost after {}",
                    process, found->second.lost.reporter, in_seconds(config_.silence)));
  self_->delayed_send(SupervisorActor{self_}, kAnswerPatience, AskAgain{process});
}

// An answer may wait behind earlier messages.
bool SupervisorState::sends_much() const { return cutting_ || (collecting_ && with_models_); }

void SupervisorState::fail_over_link(const LinkLost& lost) {
  const auto name = [this](Rank rank) {
    return fmt::format("rank {} (process {})", rank, process_of(rank));
  };
  std::string advice = "look at the network between them";
  if (is_error_here(lost.reason))
    advice = "look at the output of process " + std::to_string(process_of(lost.reporter));
  if (is_malformed(lost.reason)) advice = "see whether both run the same version";
  const Error error{Errc::peer_down, "link between " + name(lost.reporter) + " and " +
                                         name(lost.peer) + " was lost: " + lost.reason +
                                         "; both processes live: " + advice};
  if (const std::int32_t process = dispensable_process(lost); process > 0)
    return drop_process(process, error);
  fail(error);
}

// The process at an end of that link without which the run can continue. 0: neither.
std::int32_t SupervisorState::dispensable_process(const LinkLost& lost) const {
  if (!config_.tolerates_worker_loss) return 0;
  for (const Rank rank : {lost.peer, lost.reporter})
    if (const std::int32_t process = process_of(rank);
        process > 0 && process != process_of(config_.ranks - 1))  // of the servers
      return process;
  return 0;
}

// The process lives; it ends when it receives this.
void SupervisorState::drop_process(std::int32_t process, const Error& error) {
  config_.observer->on_warning("process " + std::to_string(process) +
                               " is dropped: " + error.message);
  const RunEnded dropped{true, error, false, result_.checkpoint};
  self_->send(crew_.agents[static_cast<std::size_t>(process) - 1], dropped);
  on_process_down(process);
}

// Servers are ranks of the last process.
std::int32_t SupervisorState::process_of(Rank rank) const {
  const auto processes = static_cast<std::int32_t>(crew_.agents.size()) + 1;
  return std::min(rank / std::max(1, workers() / processes), processes - 1);
}

// A checkpoint without one of the ranks could not be resumed: the ones before its end stay.
void SupervisorState::lose(Rank rank) {
  last_news_ = now();
  lost_.insert(rank);
  finished_.insert(rank);
  epochs_.erase(rank);
  reports_.erase(rank);
  config_.checkpoints = false;
  cutting_ = false;
  drain_if_finished();
  if (stage_ != Stage::draining) return;
  if (collecting_)
    weigh_reports();
  else
    end_if_finished();
}

template <class Handle>
void SupervisorState::dismiss(const Handle& actor) {
  if (!actor) return;
  self_->demonitor(actor.address());
  self_->send_exit(actor, caf::exit_reason::user_shutdown);
}

void SupervisorState::end() {
  RunResult result = average();  // may run out of memory: then on_exception() reports
  stage_ = Stage::ended;
  result.writing = writing_;
  config_.observer->on_end(std::move(result));
  for (const PeerActor& peer : crew_.peers) {
    self_->demonitor(peer.address());
    self_->send_exit(peer, caf::exit_reason::user_shutdown);
  }
  // Other processes may hold references to these actors, so they would not end by themselves.
  dismiss(crew_.evaluator);
  dismiss(crew_.writer);
  dismiss(crew_.tracer);
  self_->quit();
}

RunResult SupervisorState::average() const {
  RunResult result = result_;
  result.seconds = to_seconds(config_.elapsed_before + trained_at_.value_or(now()));
  result.lost.assign(lost_.begin(), lost_.end());
  if (!balanced_ || static_cast<std::int32_t>(reports_.size() + lost_.size()) < config_.ranks)
    return result;
  std::vector<FrozenTensor> models, slices, buffers;
  result.steps.assign(static_cast<std::size_t>(workers()), 0);
  for (const auto& [rank, step] : steps_)  // of lost ranks: up to their last report
    result.steps[static_cast<std::size_t>(rank)] = step + 1;
  for (const Rank rank : lost_)  // up to their last report
    if (const auto sample = samples_.find(rank); sample != samples_.end())
      result.ledger.samples += sample->second;
  for (const auto& [rank, report] : reports_) {
    result.ledger.merge(report.ledger);
    if (!report.measures.entries().empty()) result.measures[rank] = report.measures;
    if (rank >= workers()) {
      slices.push_back(report.z);
      continue;
    }
    models.push_back(report.z);
    buffers.push_back(report.buffers);
    result.weight_sum += report.w;
    result.steps[static_cast<std::size_t>(rank)] = report.step;
    result.step_seconds.insert(result.step_seconds.end(), report.step_seconds.begin(),
                               report.step_seconds.end());
  }
  result.z = slices.empty() ? mean_of(models) : concatenate(slices);
  result.buffers = mean_of(buffers);
  for (const FrozenTensor& model : models)
    result.consensus_distance +=
        relative_distance(model, result.z) / static_cast<double>(models.size());
  return result;
}

World SupervisorState::world() const {
  return {static_cast<std::int32_t>(crew_.agents.size()) + 1, config_.ranks, config_.servers,
          config_.parameters, config_.buffers};
}

template <class Message>
bool SupervisorState::admits(const Message& message) {
  return gate_.admits(check(message, world()), [this](const Error& error) { fail(error); });
}

bool SupervisorState::admits(const RankReport& report) {
  const bool with_model = stage_ == Stage::draining && collecting_ && with_models_;
  return gate_.admits(check(report, world(), with_model),
                      [this](const Error& error) { fail(error); });
}

SupervisorActor::behavior_type supervisor(SupervisorActor::stateful_pointer<SupervisorState> self,
                                          SupervisorConfig config) {
  SupervisorState& state = self->state;
  state.init(self, std::move(config));
  self->set_down_handler([&state](const caf::down_msg& down) { state.on_down(down); });
  self->set_exception_handler([&state](std::exception_ptr& problem) -> caf::error {
    state.on_exception(problem);
    return caf::exit_reason::unhandled_exception;
  });
  return {
      [&state](BeginRun& crew) { state.begin(std::move(crew)); },
      [&state](const StepReport& report) {
        if (state.admits(report)) state.on_step(report);
      },
      [&state](RankFinished finished) {
        if (state.admits(finished)) state.on_finished(finished);
      },
      [&state](RankSnapshot& snapshot) {
        if (state.admits(snapshot)) state.on_snapshot(snapshot);
      },
      [&state](RankReport& report) {
        if (state.admits(report)) state.on_report(report);
      },
      [&state](const RankFailed& failed) { state.on_failed(failed); },
      [&state](const EpochEvaluated& evaluated) { state.on_evaluated(evaluated); },
      [&state](Progress) { state.on_progress(); },
      [&state](const CheckpointWritten& written) { state.on_written(written); },
      [&state](StopRequested) { state.on_stop_requested(); },
      [&state](CheckpointRequested) { state.on_checkpoint_requested(); },
      [&state](Watchdog) { state.on_watchdog(); },
      [&state](CollectAgain) { state.collect(); },
      [&state](const TraceClosed& closed) { state.on_trace_closed(closed); },
      [&state](ProcessClosed closed) {
        if (state.admits(closed)) state.on_process_closed(closed);
      },
      [&state](LinkLost& lost) {
        if (state.admits(lost)) state.on_link_lost(std::move(lost));
      },
      [&state](AskAgain again) { state.ask_whether_alive(again.process); },
      [&state](const SnapshotRefused& refused) {
        if (state.admits(refused)) state.on_snapshot_refused(refused);
      },
  };
}

}  // namespace grapevine
