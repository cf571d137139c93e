#include "apps/simulate/forked_call.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "messages/text/exception_line.hpp"
#include "messages/text/number_text.hpp"
#include "messages/text/signal_name.hpp"

namespace grapevine {
namespace {

using Clock = std::chrono::steady_clock;

struct Child {
  std::int64_t number = 0;
  pid_t pid = -1;
  int pipe = -1;  // the end from which its text comes
  Clock::time_point deadline;
  std::string text;
  bool late = false;
};

void write_all(int descriptor, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t written = ::write(descriptor, text.data() + at, text.size() - at);
    if (written < 0 && errno != EINTR) return;
    if (written > 0) at += static_cast<std::size_t>(written);
  }
}

[[noreturn]] void be_child(pid_t parent, int descriptor, const std::function<std::string()>& call) {
  // A parent that a signal ends leaves no child behind.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) std::_Exit(1);
  // The handlers of the parent are not for its children.
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) std::signal(signal, SIG_DFL);
  int code = 0;
  try {
    write_all(descriptor, call());
  } catch (...) {
    write_all(descriptor, exception_line(std::current_exception()));
    code = 1;
  }
  ::close(descriptor);
  std::_Exit(code);
}

Expected<Child> start(std::int64_t number, Duration timeout,
                      const std::function<std::string()>& call) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    return Error{Errc::failed, std::string("no pipe for a process: ") + std::strerror(errno)};
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) {
    ::close(ends[0]);
    ::close(ends[1]);
    return Error{Errc::failed, std::string("no process can be started: ") + std::strerror(errno)};
  }
  if (pid == 0) {
    ::close(ends[0]);
    be_child(parent, ends[1], call);
  }
  ::close(ends[1]);
  Child child;
  child.number = number;
  child.pid = pid;
  child.pipe = ends[0];
  child.deadline = Clock::now() + timeout;
  return child;
}

ForkedEnd reap(const Child& child, Duration timeout) {
  int status = 0;
  while (::waitpid(child.pid, &status, 0) < 0 && errno == EINTR) {
  }
  ::close(child.pipe);
  if (child.late)
    return {Error{Errc::timeout, "no end after " + seconds_text(timeout) + " of real time"}};
  if (WIFSIGNALED(status))
    return {Error{Errc::failed, "its process died by " + signal_name(WTERMSIG(status))}};
  if (WEXITSTATUS(status) != 0) return {Error{Errc::failed, child.text}};
  return {child.text};
}

// Reads what has come. True: the child has closed its end.
bool read_more(Child& child) {
  char buffer[4096];
  const ssize_t got = ::read(child.pipe, buffer, sizeof buffer);
  if (got > 0) child.text.append(buffer, static_cast<std::size_t>(got));
  return got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
}

// Waits until some child has written or is late. Returns those that have ended.
std::vector<Child> wait_for_ends(std::vector<Child>& running) {
  std::vector<pollfd> polled;
  for (const Child& child : running) polled.push_back({child.pipe, POLLIN, 0});
  ::poll(polled.data(), polled.size(), 200);
  std::vector<Child> ended, remaining;
  for (std::size_t i = 0; i < running.size(); ++i) {
    Child& child = running[i];
    const bool done = polled[i].revents != 0 && read_more(child);
    if (!done && !child.late && Clock::now() > child.deadline) {
      child.late = true;
      ::kill(child.pid, SIGKILL);
    }
    (done ? ended : remaining).push_back(std::move(child));
  }
  running = std::move(remaining);
  return ended;
}

}  // namespace

Expected<void> run_forked(std::int64_t count, std::int64_t processes, Duration timeout,
                          const std::function<std::string(std::int64_t)>& call,
                          const std::function<bool(std::int64_t, const ForkedEnd&)>& ended) {
  std::vector<Child> running;
  bool starts = true;
  for (std::int64_t next = 0; (starts && next < count) || !running.empty();) {
    while (starts && next < count && static_cast<std::int64_t>(running.size()) < processes) {
      auto child = start(next, timeout, [&call, next] { return call(next); });
      if (!child && running.empty()) return child.error();
      if (!child) break;
      running.push_back(*std::move(child));
      ++next;
    }
    for (const Child& child : wait_for_ends(running))
      starts = ended(child.number, reap(child, timeout)) && starts;
  }
  return {};
}

}  // namespace grapevine
