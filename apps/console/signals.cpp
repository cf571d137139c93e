#include "apps/console/signals.hpp"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstring>
#include <initializer_list>
#include <string>

#include "apps/console/stop_signals.hpp"
#include "messages/exit_code.hpp"

namespace grapevine {
namespace {

volatile std::sig_atomic_t stop_flag = 0;
volatile std::sig_atomic_t interrupted = 0;
volatile std::sig_atomic_t checkpoint_flag = 0;

// Of the StopsAtOnce that lives; null: none does.
std::atomic<const char*> last_line = nullptr;
static_assert(std::atomic<const char*>::is_always_lock_free, "a signal handler reads it");
volatile std::sig_atomic_t exit_code = 0;

// A reader that takes nothing must not hold the end up.
void write_last(const char* line) {
  pollfd err{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&err, 1, 0) == 1)
    if (::write(STDERR_FILENO, line, std::strlen(line)) < 0) {
    }
}

void end_at_once(const char* line) {
  write_last(line);
  ::_exit(exit_code);
}

// After the first SIGINT. On a terminal the cursor may be behind a progress bar, or "^C".
// Never destroyed: a signal may come while the process ends.
const std::string& second_line =
    *new std::string(std::string("\n") + kErrorStart + kEndedAtOnce + "\n");
volatile std::sig_atomic_t on_terminal = 0;

void on_signal(int number) {
  if (number == SIGUSR1) {
    checkpoint_flag = 1;
    return;
  }
  if (const char* line = last_line.load()) end_at_once(line);
  if (number == SIGINT && interrupted != 0) {
    write_last(second_line.c_str() + (on_terminal != 0 ? 0 : 1));
    std::signal(SIGINT, SIG_DFL);  // asked twice: now
    std::raise(SIGINT);
  }
  if (number == SIGINT) interrupted = 1;  // a SIGTERM before it, from a launcher, does not count
  stop_flag = 1;
}

// What the process had to do is done, and its last line is written.
void on_late_signal(int number) {
  if (number != SIGUSR1) ::_exit(exit_code);
}

// The last line of a failure is its error.
void on_alarm(int /*signal*/) {
  end_at_once(exit_code != 0 ? ""
                             : "warning: a library does not end: this process ends without it\n");
}

}  // namespace

SignalFlags::SignalFlags() {
  stop_flag = 0;
  interrupted = 0;
  checkpoint_flag = 0;
  on_terminal = ::isatty(STDERR_FILENO);
  handle_stop_signals(on_signal);
}

SignalFlags::~SignalFlags() { handle_stop_signals(SIG_DFL); }

bool SignalFlags::stop_requested() const { return stop_flag != 0; }

bool SignalFlags::take_checkpoint_request() {
  if (checkpoint_flag == 0) return false;
  checkpoint_flag = 0;
  return true;
}

StopsAtOnce::StopsAtOnce(const char* line, int code) {
  exit_code = code;
  last_line = line;
  if (stop_flag != 0) end_at_once(line);  // asked for before
}

StopsAtOnce::~StopsAtOnce() { last_line = nullptr; }

void limit_exit(int code, std::chrono::seconds timeout) {
  exit_code = code;
  handle_stop_signals(on_late_signal);
  std::signal(SIGALRM, on_alarm);
  ::alarm(static_cast<unsigned>(timeout.count()));
}

}  // namespace grapevine
