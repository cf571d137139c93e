// JobVerdict: how a job ends, from how its processes end. No clock, no I/O.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "actors/cluster/process_supervision.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// The end of a process.
struct MemberEnd {
  std::int32_t rank = 0;
  ProcessEnd end;
  bool cut_off = false;    // by a signal, or ssh has lost the connection to it
  bool killed = false;     // this job has sent it SIGKILL
  bool restarted = false;  // it was started again, to join a run that the others continue
  std::string said;        // its last error line, without "error: "; may be empty
  std::string text;        // "process 3 on node1 exited with code 1"
};

// What the end of a process asks for.
struct Ruling {
  enum class Then {
    nothing,
    report,      // `text`; the others continue
    restart,     // where that is allowed and possible: then restarted(), else not_restarted()
    end_others,  // they get SIGTERM, unless they have got it
  };
  Then then = Then::nothing;
  bool repeats = false;  // the job's error says the same as the process: that line is not printed
  bool lost = false;     // with end_others: a process was lost
  bool first = false;    // with end_others: no end before this one has ended the others
};

// The errors of a job, the first one unless a later one counts more:
//  - bad_input: a process found its input bad, with its error. It ends the job with any options,
//    since nothing has been trained by then, but for a process that was started again.
//  - peer_down: a process was killed, or the connection to it was lost, or it has lost another one,
//    which it names. A process that was killed counts more than those that lost it.
//  - stopped: by request, with a checkpoint, as process 0 alone reports it. Where the survivors
//    continue, it counts more than all but bad input, unless this job has ended the others.
//  - failed: a process ended in another way.
// Where the survivors continue, the end of process 0 counts more than one of another process
// before: with success, the job has succeeded. How processes end that were asked to is ignored,
// unless the others have reported their loss, or a request has stopped the run.
// Processes that a second Ctrl-C has killed have failed (kEndedAtOnce), unless process 0 had
// stopped with its checkpoint before. A process that this job had to kill behind process 0, which
// has ended with success, counts for nothing. Before the run has begun the others wait for each
// process: one that fails then ends the job with any options, but for a process that was killed and
// is started again.
class JobVerdict {
 public:
  // `begun`: the run has begun, as far as anybody will say.
  explicit JobVerdict(bool survivors_continue, bool begun = true)
      : survivors_continue_(survivors_continue), begun_(begun) {}

  // A request to stop was forwarded to all processes.
  void stop() { stop_requested_ = true; }
  // A second request has killed all processes. A failure from before it counts more.
  void stop_at_once() {
    failed_before_ = failed_before_ || (failure_ && !stopped_early_);
    at_once_ = true;
  }
  // Process 0 has ended. Before the rulings on ends that were found with it.
  void head_ended(const ProcessEnd& end) { head_ = end; }
  // REQUIRES: of ends that were found together, those of processes that were cut off come first.
  Ruling ended(const MemberEnd& member);
  // All processes have joined.
  void begin() { begun_ = true; }
  // The process that Ruling::Then::restart was for was started again, or was not. The ruling is
  // that of its end then.
  void restarted();
  Ruling not_restarted();
  // A process does not end after SIGKILL: the job ends without it.
  void given_up(const MemberEnd& member);

  bool ending() const { return ending_; }  // the others were asked to end after a failure
  bool stop_requested() const { return stop_requested_; }
  bool at_once() const { return at_once_; }
  bool begun() const { return begun_; }
  const std::optional<Error>& failure() const { return failure_; }  // so far
  // Once all have ended: the failure that counts, with the hint of how to resume that a process
  // gave.
  Expected<void> result() const;

 private:
  Ruling on_bad_input(const MemberEnd& member);
  Ruling on_said_end(const MemberEnd& member);
  Ruling on_failure(const MemberEnd& member);
  Ruling end_others(bool lost);
  static Ruling others_continue();
  bool asked_for(const MemberEnd& member) const;
  bool is_left_over(const MemberEnd& member) const;
  bool ends_the_run(const MemberEnd& member) const;

  const bool survivors_continue_;
  bool begun_;
  std::optional<ProcessEnd> head_;
  std::optional<Error> failure_;  // the first one, or one that counts more
  std::string hint_;              // of resuming, from the error of a process
  bool killed_ = false;  // `failure_` is the end of a process by a signal that was not this job's
  bool ending_ = false;
  bool stop_requested_ = false;
  bool at_once_ = false;
  bool stopped_early_ = false;  // `failure_` is that the job was stopped before it trained
  bool failed_before_ = false;  // a process, before at_once_
};

}  // namespace grapevine
