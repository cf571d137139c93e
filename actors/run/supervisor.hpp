// Supervisor: starts the ranks of a run, watches them, and ends it.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/protocol.hpp"
#include "actors/run/model_average.hpp"
#include "actors/run/peer.hpp"
#include "actors/run/validate.hpp"

namespace grapevine {

struct RunResult {
  std::optional<Error> error;        // the run failed; the other members give its progress
  bool interrupted = false;          // stopped by request, with a checkpoint
  FrozenTensor z;                    // [d] mean of the ranks' de-biased models, or the servers' one
  FrozenTensor buffers;              // [b] mean, or empty
  double consensus_distance = 0;     // mean over ranks of |z_i - z|_2 / |z|_2
  double weight_sum = 0;             // of push-sum
  std::vector<Step> steps;           // by rank, of those that train
  Ledger ledger;                     // of all ranks
  std::vector<double> step_seconds;  // of all ranks; of long runs a sample
  std::map<Rank, StateDict> measures;  // of roles, by rank; none where a role has none
  std::vector<Rank> lost;              // ranks that died while the others continued
  // Of training, also before the checkpoint of a resumed run: to the last change of a model,
  // without the validations and the writing that follow.
  double seconds = 0;
  std::uint64_t trace_hash = 0;
  std::uint64_t trace_records = 0;  // behind that hash
  std::string checkpoint;           // the newest one written, or empty
  bool writing = false;             // one is still being written
};

// Receives the events of a run from the Supervisor, one call at a time, on any thread.
class RunObserver {
 public:
  virtual ~RunObserver() = default;
  virtual void on_step(const StepReport& report) = 0;
  virtual void on_validation(Epoch epoch, const Evaluation& evaluation) = 0;
  virtual void on_checkpoint(const std::string& path) = 0;
  virtual void on_warning(const std::string& message) = 0;
  // The last call.
  virtual void on_end(RunResult result) = 0;
};

struct SupervisorConfig {
  std::int32_t ranks = 1;                      // servers included
  std::int32_t servers = 0;                    // the last ranks: they take no steps
  std::int64_t parameters = -1, buffers = -1;  // of the model; -1: not checked
  bool tolerates_worker_loss = false;          // a run continues without lost workers
  // Reports a lost process to the transport of this process; null: single process. Must not block.
  std::function<void(std::int32_t process)> process_down;
  std::shared_ptr<RunObserver> observer;
  double checkpoint_every_epochs = 0;  // 0: only at the end and on request
  bool checkpoints = false;            // false: no folder to write to
  // The folder holds results of another run: nothing is written there before the first step.
  bool output_in_use = false;
  Duration patience{std::chrono::seconds(300)};  // without any step, after which the run fails
  double total_epochs = 0;                       // by the clock of the algorithm
  double resumed_least = 0;                      // epochs of the slowest and the fastest rank in
  double resumed_most = 0;                       // the checkpoint that this run resumed from
  Duration elapsed_before{0};                    // training time behind that checkpoint
  std::string resumed_from;                      // its path, or empty
  std::string out;                               // the output folder, for messages
  Duration silence{std::chrono::seconds(60)};    // of a process to which a link is lost: it is lost
  std::int64_t run_start_ns = 0;
};

class SupervisorState {
 public:
  const char* name = "supervisor";

  void init(SupervisorActor::stateful_pointer<SupervisorState> self, SupervisorConfig config);

  void begin(BeginRun crew);
  void on_step(const StepReport& report);
  void on_finished(RankFinished finished);
  void on_snapshot(RankSnapshot& snapshot);
  void on_snapshot_refused(const SnapshotRefused& refused);
  void on_report(RankReport& report);
  void on_failed(const RankFailed& failed);
  void on_progress();
  void on_link_lost(LinkLost lost);
  void ask_whether_alive(std::int32_t process);
  void on_no_answer(std::int32_t process, const caf::error& error);
  void on_evaluated(const EpochEvaluated& evaluated);
  void on_written(const CheckpointWritten& written);
  void on_stop_requested();
  void on_checkpoint_requested();
  void on_watchdog();
  void on_trace_closed(const TraceClosed& closed);
  void on_process_closed(ProcessClosed closed);
  void on_down(const caf::down_msg& down);
  void on_exception(const std::exception_ptr& problem);
  void collect();
  // Whether a message fits this run. Any other is logged; if a rank of the run sent it, the run
  // ends.
  template <class Message>
  bool admits(const Message& message);
  bool admits(const RankReport& report);

 private:
  // running -> (draining: all ranks finished, last messages and writes finish) -> closing -> ended
  enum class Stage { running, draining, closing, ended };

  Timestamp now() const;
  bool preserves_previous_run() const;
  void begin_cut(std::string name);
  void give_up_cut();
  void drain();
  void end_if_finished();
  void fail(Error error);
  void close();
  std::string unclosed() const;
  void end_if_closed();
  void end();
  World world() const;
  std::int32_t workers() const { return config_.ranks - config_.servers; }
  std::int32_t process_of(Rank rank) const;
  std::int32_t process_behind(const caf::actor_addr& agent) const;
  std::string last_steps() const;
  std::string missing_states() const;
  template <class Answers>
  std::string without(const Answers& answers) const;
  std::string resume_hint_now() const;
  void tell_resume_from(const std::string& path);
  bool sends_much() const;
  void fail_over_link(const LinkLost& lost);
  std::int32_t dispensable_process(const LinkLost& lost) const;
  void drop_process(std::int32_t process, const Error& error);
  void on_process_down(std::int32_t process);
  void tell_process_lost(std::int32_t process);
  bool on_rank_down(Rank rank, const std::string& why);
  void lose(Rank rank);
  void weigh_reports();
  void drain_if_finished();
  template <class Handle>
  void dismiss(const Handle& actor);
  RunResult average() const;

  SupervisorActor::stateful_pointer<SupervisorState> self_ = nullptr;
  SupervisorConfig config_;
  BeginRun crew_;
  Stage stage_ = Stage::running;
  RunResult result_;

  std::map<Rank, Step> steps_;            // newest step reported
  std::map<Rank, double> epochs_;         // behind each rank then
  std::map<Rank, std::int64_t> samples_;  // of the steps reported
  std::set<Rank> finished_;               // or lost
  std::set<Rank> lost_;
  std::set<std::int32_t> lost_processes_;
  // Processes to which another one has lost its link, as first reported: each is asked whether it
  // lives, until it answers (then only the link broke) or is lost: its connection to the head ends,
  // or it answers no question for a whole `silence`.
  struct Suspect {
    LinkLost lost;
    std::optional<Timestamp> silent_since;  // none: all questions were answered
  };
  std::map<std::int32_t, Suspect> suspects_;
  Timestamp last_news_{0};
  std::int64_t epochs_checkpointed_ = 0;
  std::int64_t evaluations_due_ = 0;

  // The cut in progress; one at a time.
  std::int64_t cut_id_ = 0;
  std::string cut_name_;  // empty: named after the slowest rank's steps
  bool cutting_ = false;
  Timestamp cut_news_{0};  // its beginning, or its newest snapshot
  bool writing_ = false;
  bool stopping_ = false;
  bool stop_early_ = false;  // requested before the run began
  std::map<Rank, RankSnapshot> snapshots_;

  bool final_cut_begun_ = false;
  std::map<Rank, RankReport> reports_;
  bool collecting_ = false;
  std::int64_t last_sent_ = -1;  // messages in all, where all had been received
  bool with_models_ = false;     // nothing is in flight any more: the next reports are the last
  bool balanced_ = false;
  std::optional<Timestamp> trained_at_;  // when models changed no more

  bool trace_open_ = false;
  std::set<std::int32_t> open_processes_;  // that still close down
  Timestamp closing_since_{0};

  Gate gate_;
};

SupervisorActor::behavior_type supervisor(SupervisorActor::stateful_pointer<SupervisorState> self,
                                          SupervisorConfig config);

}  // namespace grapevine
