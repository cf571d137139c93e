#include "apps/launch/child_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

namespace grapevine {
namespace {

constexpr std::size_t kPiece = 1 << 16;
// A pipe of Linux holds no more than this by default limits (pipe-max-size).
constexpr std::size_t kPiecesOfAPipe = 16;
// Longer lines are cut, so that memory stays bounded.
constexpr std::size_t kLongestLine = 1 << 20;
// A killed process that has not ended by then is in the kernel's hands: it is not waited for.
constexpr int kReapTimeoutMs = 5000;

// Before raise_descriptor_limit(). Nothing: it was not raised.
std::optional<rlimit> descriptor_limit;

Error failure(const std::string& what, int error) {
  const char* const remedy = error == EMFILE ? ": raise the limit (ulimit -n)" : "";
  return {Errc::io, what + ": " + std::strerror(error) + remedy};
}

DescriptorPair open_input(bool writable) {
  if (!writable)
    return {FileDescriptor(), FileDescriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC))};
  return descriptor_pair(
      [](int* ends) { return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends); });
}

struct Plumbing {
  DescriptorPair in;     // a socket pair: writing to a dead child must not raise SIGPIPE here
  DescriptorPair out;    // read, write
  DescriptorPair err;    // read, write
  DescriptorPair start;  // the child's errno where it could not become the program

  bool open(bool with_input) {
    in = open_input(with_input);
    if (in[1].get() < 0) return false;
    for (DescriptorPair* pipe : {&out, &err, &start}) {
      *pipe = descriptor_pair([](int* ends) { return ::pipe2(ends, O_CLOEXEC); });
      if ((*pipe)[0].get() < 0) return false;
    }
    return true;
  }
};

std::vector<std::string> merged_environment(const std::vector<std::string>& over) {
  const auto key = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
  std::vector<std::string> result;
  std::copy_if(over.begin(), over.end(), std::back_inserter(result),
               [](const std::string& entry) { return entry.find('=') != std::string::npos; });
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string own = key(*entry);
    if (std::none_of(over.begin(), over.end(),
                     [&](const std::string& other) { return key(other) == own; }))
      result.emplace_back(*entry);
  }
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> result;
  for (std::string& string : strings) result.push_back(string.data());
  result.push_back(nullptr);
  return result;
}

// In the child, between fork and exec: system calls only, for other threads may have held locks.
[[noreturn]] void become(const Plumbing& plumbing, pid_t parent, char* const* arguments,
                         char* const* environment) {
  ::setpgid(0, 0);
  ::signal(SIGPIPE, SIG_DFL);  // which programs expect
  if (descriptor_limit) ::setrlimit(RLIMIT_NOFILE, &*descriptor_limit);
  ::signal(SIGUSR1, SIG_IGN);  // until the program handles it: it must not end what starts
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);  // it died before it could be watched
  ::dup2(plumbing.in[1].get(), STDIN_FILENO);
  ::dup2(plumbing.out[1].get(), STDOUT_FILENO);
  ::dup2(plumbing.err[1].get(), STDERR_FILENO);
  ::execvpe(arguments[0], arguments, environment);
  const int error = errno;
  [[maybe_unused]] const ssize_t written = ::write(plumbing.start[1].get(), &error, sizeof error);
  ::_exit(127);
}

// Zero once the child has become its program (that closes the pipe).
int start_error(int descriptor) {
  int error = 0;
  ssize_t count = 0;
  while ((count = ::read(descriptor, &error, sizeof error)) < 0 && errno == EINTR) {
  }
  return count == sizeof error ? error : 0;
}

void wait_for(pid_t pid, int& status) {
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace

Expected<std::string> job_program() {
  if (const char* other = std::getenv("GRAPEVINE_LAUNCH_PROGRAM")) return std::string(other);
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Error{Errc::io, "/proc/self/exe: " + error.message()};
  return self.string();
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  if (::setrlimit(RLIMIT_NOFILE, &raised) == 0) descriptor_limit = limit;
}

void LineBuffer::append(const char* bytes, std::size_t count, const OnLine& on_line) {
  part_.append(bytes, count);
  std::size_t begin = 0;
  for (std::size_t end; (end = part_.find('\n', begin)) != std::string::npos; begin = end + 1)
    on_line(part_.substr(begin, end - begin));
  part_.erase(0, begin);
  if (part_.size() > kLongestLine) finish(on_line);
}

void LineBuffer::finish(const OnLine& on_line) {
  if (!part_.empty()) on_line(part_);
  part_.clear();
}

Expected<std::unique_ptr<ChildProcess>> ChildProcess::start(const ChildCommand& command) {
  Plumbing plumbing;
  const std::string what = "cannot start " + command.arguments.front();
  if (!plumbing.open(command.signals_by_input)) return failure(what, errno);
  std::vector<std::string> arguments = command.arguments;
  std::vector<std::string> variables = merged_environment(command.environment);
  const std::vector<char*> argument_pointers = pointers(arguments);
  const std::vector<char*> variable_pointers = pointers(variables);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return failure(what, errno);
  if (pid == 0) become(plumbing, parent, argument_pointers.data(), variable_pointers.data());
  std::unique_ptr<ChildProcess> child(new ChildProcess);
  child->pid_ = pid;
  plumbing.start[1].reset();
  if (const int error = start_error(plumbing.start[0].get()); error != 0)
    return failure(what, error);
  child->end_.reset(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (child->end() < 0) return failure(what + ": pidfd_open", errno);
  if (command.signals_by_input) {
    child->in_ = std::move(plumbing.in[0]);
    child->say(command.first_line);
  }
  child->out_.descriptor = std::move(plumbing.out[0]);
  child->err_.descriptor = std::move(plumbing.err[0]);
  for (const int descriptor : {child->out(), child->err()})
    ::fcntl(descriptor, F_SETFL, O_NONBLOCK);
  return child;
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  kill_group();
  pollfd ended{end(), POLLIN, 0};
  int ready = 1;
  if (end() >= 0)
    while ((ready = ::poll(&ended, 1, kReapTimeoutMs)) < 0 && errno == EINTR) {
    }
  int status = 0;
  if (ready != 0) wait_for(pid_, status);
}

bool ChildProcess::read(Stream& stream, const LineBuffer::OnLine& on_line) {
  std::array<char, kPiece> piece;
  if (stream.descriptor.get() < 0) return false;
  const ssize_t count = ::read(stream.descriptor.get(), piece.data(), piece.size());
  if (count > 0) stream.lines.append(piece.data(), static_cast<std::size_t>(count), on_line);
  if (count == 0) finish(stream, on_line);
  return count > 0;
}

void ChildProcess::finish(Stream& stream, const LineBuffer::OnLine& on_line) {
  stream.lines.finish(on_line);
  stream.descriptor.reset();
}

void ChildProcess::signal(int number) {
  if (pid_ < 0) return;
  if (in_.get() < 0) {
    ::kill(pid_, number);
    return;
  }
  say(::sigabbrev_np(number));
}

void ChildProcess::say(const std::string& text) {
  const std::string line = text + "\n";
  // A process that has closed its input or is stuck must end anyway; SIGKILL to the group ends it.
  [[maybe_unused]] const ssize_t sent =
      ::send(in_.get(), line.data(), line.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ChildProcess::kill_group() {
  if (pid_ > 0) ::kill(-pid_, SIGKILL);
}

std::optional<ProcessEnd> ChildProcess::reap(const LineBuffer::OnLine& on_out,
                                             const LineBuffer::OnLine& on_err) {
  siginfo_t info{};
  if (::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid != pid_)
    return std::nullopt;
  kill_group();  // before the number is free for others
  int status = 0;
  wait_for(pid_, status);
  pid_ = -1;
  // Processes that it started outside its group may still hold the pipes: their end is not awaited.
  for (std::size_t i = 0; i < kPiecesOfAPipe && read(out_, on_out); ++i) {
  }
  for (std::size_t i = 0; i < kPiecesOfAPipe && read(err_, on_err); ++i) {
  }
  finish(out_, on_out);
  finish(err_, on_err);
  in_.reset();
  end_.reset();
  if (WIFEXITED(status)) return ProcessEnd{WEXITSTATUS(status), 0};
  return ProcessEnd{-1, WTERMSIG(status)};
}

}  // namespace grapevine
