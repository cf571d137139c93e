// Signals as flags that a loop asks for.
#pragma once
#include <chrono>

namespace grapevine {

// The text after kErrorStart in the last line of a process, or of a job, that a second Ctrl-C ends:
// there is no time for a checkpoint.
inline constexpr char kEndedAtOnce[] = "ended at once by a second Ctrl-C";

// While it lives: SIGINT, SIGTERM and SIGHUP (a closed terminal) ask to stop (a second SIGINT ends
// the process at once, by that signal, with the line kEndedAtOnce), SIGUSR1 asks for a checkpoint.
// A SIGHUP that the parent ignored stays ignored. One at a time per process.
class SignalFlags {
 public:
  SignalFlags();
  ~SignalFlags();
  SignalFlags(const SignalFlags&) = delete;
  SignalFlags& operator=(const SignalFlags&) = delete;

  bool stop_requested() const;
  // True once per SIGUSR1 or burst of them.
  bool take_checkpoint_request();
};

// While it lives, inside a SignalFlags: a request to stop, also an earlier one, ends the
// process at once, with that line on stderr; pending output of other threads is lost. For
// waits that nothing can cut short, such as reading a pipe, before there is anything to lose. One
// at a time per process.
class StopsAtOnce {
 public:
  // `line`: outlives this object; its end of line included.
  StopsAtOnce(const char* line, int exit_code);
  ~StopsAtOnce();
  StopsAtOnce(const StopsAtOnce&) = delete;
  StopsAtOnce& operator=(const StopsAtOnce&) = delete;
};

// For the last line of main: where the destructors of static objects and of libraries take longer
// than `timeout`, the process ends without them, and says so where it has not failed: a failure's
// last line is its error. (OpenBLAS asks for memory for ever where a limit leaves none.) A signal
// that asks to stop ends it then, too. The exit code stays that of the last line. It takes SIGALRM.
void limit_exit(int exit_code, std::chrono::seconds timeout);

}  // namespace grapevine
