// Supervisor: starts the ranks of a run, watches them, and ends it.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <caf/send.hpp>

#include "actors/protocol/run.hpp"
#include "actors/run/control/control_request.hpp"
#include "actors/run/control/live_settings.hpp"
#include "actors/run/control/run_state.hpp"
#include "actors/run/run_observer.hpp"
#include "actors/run/supervision/checkpoint_rounds.hpp"
#include "actors/run/supervision/crew.hpp"
#include "actors/run/supervision/early_orders.hpp"
#include "actors/run/supervision/final_reports.hpp"
#include "actors/run/supervision/losses/link_suspects.hpp"
#include "actors/run/supervision/losses/silent_processes.hpp"
#include "actors/run/supervision/run_closing.hpp"
#include "actors/run/supervision/run_members.hpp"
#include "actors/run/supervision/run_result.hpp"
#include "actors/run/supervision/training_progress.hpp"
#include "actors/run/supervision/view_change.hpp"
#include "actors/run/supervision/waits/wait_watch.hpp"
#include "actors/run/supervision/wiring/wiring_change.hpp"
#include "actors/run/validate.hpp"
#include "algorithms/horizon.hpp"

namespace grapevine {

struct SupervisorConfig {
  std::int32_t ranks = 1;                      // servers included
  std::int32_t servers = 0;                    // the last ranks: they take no steps
  std::int64_t parameters = -1, buffers = -1;  // of the model; -1: not checked
  bool tolerates_worker_loss = false;          // a run continues without lost workers,
  std::int32_t min_workers = 1;                // as long as so many of them remain
  bool changes_members = false;  // by views, see ViewChange; else roles continue alone
  // Parameter servers that a later wiring may have at most. spawn_server makes the actor of one and
  // attaches it to the transport; null: no later wiring has servers.
  std::int32_t most_servers = 0;
  std::function<PeerActor(Rank, const SupervisorActor&)> spawn_server;
  ViewChange::Models models;                                  // of the wiring
  std::size_t counts_per_message = ViewCounts::kMostNumbers;  // of a view: see split_counts()
  Horizon horizon;                                            // of the members
  TrainingRanks continuing;            // that continue from a checkpoint; the other ranks join them
  std::int64_t view = 0;               // theirs, and
  std::int64_t first_batch = 0;        // its first batch: see SavedView
  std::map<Rank, std::int64_t> taken;  // batches that its members had taken in it
  BatchEpochs batches;                 // of the whole run
  std::vector<Rank> absent;            // ranks without a state there; others may be members
  std::vector<Rank> vacant;            // places that no rank has at the start, ascending
  std::vector<FormerLife> former;      // of it
  BatchTally earlier_batches;          // of it
  std::vector<BatchRun> ahead;         // of it: see BatchesOfLost
  std::vector<RankFigures> figures;    // of its ranks, until they report others
  // Reports a lost process to the transport of this process; null: single process. Must not block.
  std::function<void(std::int32_t process)> process_down;
  // The same for a lost process that is about to return.
  std::function<void(const ExpectProcess& expected)> expect_process;
  std::shared_ptr<RunObserver> observer;
  double checkpoint_every_epochs = 0;  // 0: only at the end and on request
  bool checkpoints = false;            // false: no folder to write to
  std::string checkpoint_folder;       // absolute
  // The folder holds results of another run: nothing is written there before the first step.
  bool output_in_use = false;
  // Without any step, after which the run fails: at least so long, and longer where steps usually
  // are; and before the first step of any rank. None: as long as later.
  Duration timeout{std::chrono::seconds(300)};
  std::optional<Duration> first_timeout;
  std::optional<Duration> stall_abort;  // ends a run with a wait of this length: WaitLimits
  // Of a process that answers nothing while others wait: see SilentProcesses. None: only `silence`.
  std::optional<Duration> lost_after;
  double total_epochs = 0;     // by the clock of the algorithm
  double resumed_least = 0;    // epochs of the slowest and the fastest rank in
  double resumed_most = 0;     // the checkpoint that this run resumed from
  Duration elapsed_before{0};  // training time behind that checkpoint
  std::string resumed_from;    // what --resume takes to continue from there again, or empty
  std::string out;             // the output folder, for messages
  Duration silence{std::chrono::seconds(60)};  // of a process to which a link is lost: it is lost
  ChangeParts change;                          // null: settings do not change
  std::vector<ScheduledChange> schedule;       // ascending; what lies behind the start is done
  std::int64_t run_start_ns = 0;
  std::int64_t trace_zero_ns = 0;  // of the actor system's clock
};

// The actor connects state machines, each in a file of actors/run/supervision/, which decide and
// send nothing. The messages of checkpoints, of losses and of changes of members are handled in
// supervisor_checkpoints.cpp, losses/ and supervisor_views.cpp there, those of the
// actor Control in supervisor_control.cpp.
class SupervisorState {
 public:
  const char* name = "supervisor";

  void init(SupervisorActor::stateful_pointer<SupervisorState> self, SupervisorConfig config);

  void begin(BeginRun actors);
  void on_step(const StepReport& report);
  void on_figures(const RankFigures& figures);
  void on_finished(RankFinished finished);
  void on_snapshot(RankSnapshot& snapshot);
  void on_stored(const StateStored& stored);
  void on_snapshot_refused(const SnapshotRefused& refused);
  void on_report(RankReport& report);
  void on_failed(const RankFailed& failed) { fail(failed.error); }
  void on_progress();
  void on_link_lost(LinkLost lost);
  void ask_whether_alive(std::int32_t process);
  void compare_clocks(CompareClocks again);
  void on_evaluated(const EpochEvaluated& evaluated);
  void on_written(const CheckpointWritten& written);
  void on_stop_requested();
  void on_checkpoint_requested();
  void on_watchdog();
  void on_traffic(const Traffic& traffic);
  void on_view_closed(const ViewClosed& closed);
  void on_waits(const WaitReport& report);
  void ask_for_traffic();
  void on_settings_checked(const SettingsChecked& checked);
  void on_settings_time_over(SettingsTimeOver over);
  void on_model_shared(const ModelShared& shared);
  void on_averaged(AveragedModels& averaged);
  Place on_ask_place(AskPlace ask);
  Vacancy on_ask_vacancy() const;
  void on_process_returned(ProcessReturned& returned);
  void on_trace_closed(const TraceClosed& closed);
  void on_trace_refused(const TraceRefused& refused);
  void on_process_closed(ProcessClosed closed);
  RunState on_ask_state() const;
  caf::result<ControlReply> on_control(const ControlRequest& request);
  void on_down(const caf::down_msg& down);
  void on_exception(const std::exception_ptr& problem);
  void collect();
  // Whether a message fits this run. Any other is logged; if a rank of the run sent it, the run
  // ends.
  template <class Message>
  bool admits(const Message& message);
  bool admits(const RankReport& report);
  // Whether the message at hand is one of an actor whose place another one has taken.
  bool hears_former_actor() const;
  // Does what the message at hand orders, if its sender is an actor of this process or of the crew;
  // the run has no crew before it begins, and orders of other processes wait until then, if they
  // are of an `early` kind. Others are logged and ignored: orders end a run or make it write, and
  // name no rank that could be checked.
  void obey(std::function<void()> order, std::optional<EarlyOrders::Kind> early = std::nullopt);

 private:
  // running -> (draining: all ranks finished, last messages and writes finish) -> closing -> ended
  enum class Stage { running, draining, closing, ended };

  Timestamp now() const;
  std::int64_t trace_now() const;
  void compare_all_clocks();
  void compare_clock_of(std::int32_t process);
  void watch_later();
  void obey_early_orders();
  bool is_of_the_run(const caf::actor_addr& actor) const;
  bool preserves_previous_run() const;
  void begin_checkpoint(std::int64_t cut);
  void begin_final_checkpoint(const std::string& name);
  void give_up_checkpoint();
  void abandon_checkpoint();
  void cancel_checkpoint();
  void interrupt_checkpoint();
  void resume_checkpoint();
  void drain_if_finished();
  void evaluate_reports();
  void average_models();
  bool average_due() const;
  void end_if_finished();
  void fail(Error error);
  void close();
  void end_if_closed();
  void end();
  World world() const;
  std::string missing_states() const;
  std::string awaited() const;
  std::string last_resumable() const;
  std::string resume_hint_now() const;
  void report_resume_from(const std::string& path);

  void on_answer(std::int32_t process);
  void on_no_answer(std::int32_t process, const caf::error& error);
  void fail_over_link(const LinkLost& lost);
  void dismiss_process(std::int32_t process, const Error& error);
  void hear(Rank rank);
  void watch_silence();
  bool joins_long() const;
  // Between two words of the process; none: not known.
  std::optional<Duration> usual_silence(std::int32_t process) const;
  void on_pong(std::int32_t process);
  void lose_silent(const SilentProcesses::Silence& silence);
  void lose_silent_process(std::int32_t process, const std::string& reason);
  void watch_change();
  void on_process_down(std::int32_t process);
  void on_peer_down(Rank rank, const caf::error& reason);
  void report_process_lost(std::int32_t process);
  void end_links_to(std::int32_t process);
  std::optional<std::string> why_ends_without(const std::vector<Rank>& ranks) const;
  bool can_lose(std::int32_t process) const;
  bool on_rank_down(Rank rank, const std::string& why);
  void note_gone(const std::vector<Rank>& ranks);
  void fail_without(Rank rank, std::string why);
  void lose(Rank rank);
  void leave_places_vacant();
  void begin_wait_watch();
  void watch_waits();
  void fail_over_wait(const WaitWatch::Finding& finding);
  bool changes_views() const { return config_.changes_members && stage_ == Stage::running; }
  std::string why_no_view_without(const std::vector<Rank>& ranks) const;
  std::vector<Rank> arriving_ranks() const;
  void begin_view_change();
  const char* why_joins_are_refused() const;
  void expect_process(const AskPlace& granted, Place& place);
  void drop_return(std::int32_t process);
  void dismiss_late(const ProcessReturned& late);
  void report_joined(std::int32_t process, bool joins);
  void continue_view_change(ViewChange::Next next);
  void install_view();
  void report_change(const LiveSettings& changed);
  bool is_changing() const { return view_.in_progress() || wiring_.in_progress(); }
  std::vector<Rank> provide_servers();
  void begin_asking(const LiveSettings& changed);
  void take_settings();
  void begin_numbers();
  void follow_schedule();
  void report_missed_schedule();
  void end_change();
  void answer_wiring(ControlReply reply);
  void refuse_wiring(const std::string& why);
  void install_wiring(InstallView& view);
  void take_nodes(InstallView& view);
  void take_servers(std::int32_t servers);
  std::optional<std::int64_t> planned_batches() const;
  BatchTally batches_with_earlier() const;
  RunResult conclude() const;
  ControlReply on_stop_wanted();
  ControlReply on_checkpoint_wanted();
  std::string why_not_drained(Rank rank) const;
  bool fetches_models_without(Rank rank) const;
  bool has_rank_that_trains_beside(Rank rank) const;
  ControlReply on_drain(Rank rank);
  std::string why_not_set(const LiveSettings& changed) const;
  std::string why_not_fit(const LiveSettings& settings) const;
  static std::string why_not_among(const SharedParts& parts, std::vector<Rank> members,
                                   const Horizon& horizon);
  caf::result<ControlReply> on_set(const ControlRequest& request);

  SupervisorActor::stateful_pointer<SupervisorState> self_ = nullptr;
  SupervisorConfig config_;
  Crew crew_;

  Stage stage_ = Stage::running;
  bool stopping_ = false;
  bool stop_early_ = false;  // requested before the run began, or during a change of members
  EarlyOrders early_orders_;
  Timestamp last_news_{0};
  std::int64_t evaluations_due_ = 0;
  std::optional<Timestamp> trained_at_;  // when models changed no more
  RunResult result_;

  RunMembers members_;
  TrainingProgress progress_;
  CheckpointRounds checkpoints_;
  FinalReports reports_;
  std::int64_t average_round_ = 0;         // of orders to the ModelAverager
  std::optional<AveragedModels> average_;  // of the newest
  LinkSuspects suspects_;
  SilentProcesses silent_;
  WaitWatch waits_;
  ViewChange view_;
  Timestamp change_began_{0}, change_watched_{0};  // view_, where it is in progress
  BatchTally batches_so_far_;  // up to the present view, also before this run was resumed
  std::set<Rank> drained_;     // asked to leave
  std::set<Rank> gone_;        // with the run, which has failed
  LiveSettings settings_;      // that have changed
  LiveSettings newest_;        // of them, those of the view to come
  // Of the settings before: wiring_settings(), each once.
  std::vector<LiveSettings> earlier_wirings_;
  WiringChange wiring_;
  std::size_t scheduled_ = 0;  // of the schedule, those that are done or left out
  Timestamp schedule_after_{0};
  caf::typed_response_promise<ControlReply> asks_for_wiring_;  // pending: it waits for an answer
  std::optional<AskPlace> returning_;  // what was granted, until it is there
  Timestamp granted_at_{0};            // returning_
  RunClosing closing_;
  Gate gate_;
};

// Sends an order of this process (StopRequested, CheckpointRequested, RankFailed) in the name of
// the supervisor itself: one without a sender could be that of any program that reaches a port.
template <class Order>
void send_order(const SupervisorActor& supervisor, Order order) {
  caf::send_as(supervisor, supervisor, std::move(order));
}

SupervisorActor::behavior_type supervisor(SupervisorActor::stateful_pointer<SupervisorState> self,
                                          SupervisorConfig config);

}  // namespace grapevine
