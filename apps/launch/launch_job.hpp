// LaunchJob: the processes of one job, from their start to the end of the last one.
#pragma once
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/console/command.hpp"
#include "apps/console/line_writer.hpp"
#include "apps/console/signal_pipe.hpp"
#include "apps/launch/child_group.hpp"
#include "apps/launch/job_verdict.hpp"
#include "apps/launch/launch_plan.hpp"
#include "messages/expected.hpp"

namespace grapevine {

struct LaunchJobOptions {
  bool survivors_continue = false;  // else a dead process ends the others
  // With it: so often in all, a process other than 0 that is killed or loses a link is started
  // again, and joins the others.
  int restarts = 0;
  // Process 0 reports the begin of the run: see kReportBeginVariable. Until then the others wait
  // for each process, and one that fails ends them. Else the run has begun.
  bool reports_begin = false;
  // Rank 0's stdout goes to stdout as it is, all others' to stderr. Else this holds for lines that
  // begin with '{'.
  bool plain_output = false;
  std::chrono::milliseconds grace = std::chrono::seconds(60);  // between SIGTERM and SIGKILL
  // The most of it for processes other than 0 once one was lost, as they find that by themselves.
  // Process 0 still has files to write.
  std::chrono::milliseconds lost_grace = std::chrono::seconds(10);
  std::chrono::milliseconds notice = std::chrono::seconds(5);  // until a wait is reported
  // From the end of process 0 to SIGTERM for processes that were started again: one that has joined
  // the run ends by itself, another one finds nothing to join.
  std::chrono::milliseconds joins_timeout = std::chrono::seconds(2);
  // False: the processes are in the run of another job, which outlives process 0 of this one.
  bool ends_with_head = true;
  // Of a run that ends with process 0: from there to SIGKILL for all others, which may be frozen.
  // 0: they may run on.
  std::chrono::milliseconds after_head{0};
};

struct LaunchedCommand {
  LaunchPlace placement;
  ChildCommand command;
};

// Every line of a process is printed whole, after "[process] ". Where nothing reads them,
// the processes wait with their next ones, as on a pipe; this job does not. SIGINT, SIGTERM and
// SIGUSR1 are forwarded to all processes; after the first two they have the grace period to end,
// and a second SIGINT kills them. The destructor kills the remaining processes. One thread, and one
// that writes.
class LaunchJob {
 public:
  LaunchJob(LaunchJobOptions options, SignalPipe& signals, Console& console)
      : options_(options),
        signals_(signals),
        writer_(console, kNoBound, write_plain_line),
        children_([this](std::size_t child, bool to_err, const std::string& line) {
          Member& member = members_[member_of_[child]];
          to_err ? print_err(member, line) : print_out(member, line);
        }),
        verdict_(options_.survivors_continue, !options_.reports_begin) {}

  // Errors (io): a process could not be started; those before it are killed with this object.
  Expected<void> start(const std::vector<LaunchedCommand>& commands);

  // Until the last one has ended. Errors: JobVerdict's. All lines of the processes are written when
  // this returns, but where stop_requested() and nothing reads them.
  Expected<void> wait();

  // 128 + n where signal n has ended the job's only process, or a second SIGINT all processes;
  // after wait().
  std::optional<int> exit_code() const;

  // A process on another host may run on for kEndOverSsh: only the connection to it has ended.
  // Where it was asked to end before, this holds for process 0, as the signal may have ended
  // another one, and where ssh was killed, as it had not reported the end of the process after
  // SIGKILL. After wait().
  bool lost_connection() const;

  // By a signal: the job is not to be started again.
  bool stop_requested() const { return verdict_.stop_requested(); }

 private:
  struct Member {
    LaunchPlace placement;
    ChildCommand command;
    ChildProcess* process = nullptr;
    std::optional<ProcessEnd> end;  // once it is reaped, or given up
    bool asked = false;             // by then it had been asked to end
    bool restarted = false;         // to join a run that the others continue
    HeldError held;
    GracePeriod grace;
    std::optional<Timestamp> cut_at;  // ssh was asked to kill it, and is killed itself then
  };

  static constexpr std::size_t kNoBound = std::numeric_limits<std::size_t>::max();

  bool running() const;
  bool is_to_end() const { return verdict_.ending() || verdict_.stop_requested(); }
  std::vector<ChildGroup::Ended> poll_once();
  void collect(const std::vector<ChildGroup::Ended>& ended);
  void on_end(Member& member);
  bool run_has_ended() const;
  void on_head_end();
  static MemberEnd end_of(const Member& member);
  bool start_again(Member& member, const std::string& why);
  void forward_signals();
  void ask_to_end(bool lost, bool first);
  void end_what_joins();
  void enforce_grace();
  void say_what_is_awaited(Timestamp now);
  void kill(Member& member);
  void give_up(Member& member);
  std::chrono::milliseconds poll_timeout() const;

  void print_out(const Member& member, std::string line);
  void print_err(Member& member, std::string line);
  void print_prefixed(const Member& member, const std::string& line);
  void release_held(Member& member);
  void say(const std::string& text);

  const LaunchJobOptions options_;
  SignalPipe& signals_;
  LineWriter writer_;
  std::vector<Member> members_;         // by rank
  std::vector<std::size_t> member_of_;  // by the number of the child
  int restarted_ = 0;
  ChildGroup children_;
  JobVerdict verdict_;
  std::optional<Timestamp> notice_at_;  // from then on people are to know of the wait
  std::optional<Timestamp> joins_end_;  // then processes that were started again are to end
  bool interrupted_ = false;            // by a SIGINT
};

}  // namespace grapevine
