// Process: runs a program as a user would, for tests of the command line. Header-only.
//
//   const ProcessResult result = run_process({"train", "--steps", "10", "--json"});
//   EXPECT_EQ(result.exit_code, 0) << result.err;
//
// or, for a program that a test watches and signals:
//   Process node({"node", "--listen", "127.0.0.1:0"});
//   ASSERT_TRUE(node.wait_for_output("listening"));
//   node.signal(SIGTERM);
//   const ProcessResult result = node.wait();
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

extern char** environ;

namespace grapevine {

struct ProcessResult {
  int exit_code = -1;      // -1 where a signal ended it
  int signal = 0;          // the signal that ended it, 0 where it exited
  bool timed_out = false;  // it was killed because its time was up
  std::string out;
  std::string err;

  // The last line of a text, without its newline: "error: …" of err, the object of --json in out.
  static std::string last_line(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text.substr(text.rfind('\n') + 1);
  }
  // For `EXPECT_… << result.describe()`.
  std::string describe() const {
    return "exit code " + std::to_string(exit_code) + ", signal " + std::to_string(signal) +
           (timed_out ? ", killed: out of time" : "") + "\n--- stdout\n" + out + "\n--- stderr\n" +
           err;
  }
};

struct ProcessOptions {
  std::string program = GRAPEVINE_EXECUTABLE;
  std::filesystem::path directory;       // empty: the caller's
  std::vector<std::string> environment;  // "KEY=VALUE" sets, "KEY" removes
  // Far more than a healthy run needs: it only ends what hangs.
  std::chrono::milliseconds timeout = std::chrono::seconds(300);
};

// One child, leader of its own process group; stdin is /dev/null. The destructor kills the group
// and reaps the child, so that no test leaves a process behind. The system kills the child when the
// thread that has started it ends, also where the tests crash or are killed. Not thread-safe.
// Throws std::system_error where the program cannot be started at all.
class Process {
 public:
  explicit Process(const std::vector<std::string>& arguments, ProcessOptions options = {})
      : options_(std::move(options)),
        deadline_(std::chrono::steady_clock::now() + options_.timeout) {
    start(arguments);
  }
  ~Process() {
    if (!ended_) {
      kill_group();
      reap();
    }
    for (const int descriptor : {out_, err_, pidfd_}) {
      if (descriptor >= 0) ::close(descriptor);
    }
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // To the process alone, or with its children. Nothing happens where it has ended.
  void signal(int number) const {
    if (!ended_) ::kill(pid_, number);
  }
  void signal_group(int number) const {
    if (!ended_) ::kill(-pid_, number);
  }

  // Until stdout or stderr contains `text`; false where it ended or ran out of time without it.
  bool wait_for_output(const std::string& text) {
    const auto seen = [&] {
      return result_.out.find(text) != std::string::npos ||
             result_.err.find(text) != std::string::npos;
    };
    while (!seen() && !ended_) pump();
    return seen();
  }

  // wait_for_output() waits for what is written from now on.
  void forget_output() {
    result_.out.clear();
    result_.err.clear();
  }

  // What was written so far, without waiting for more than the last pump() saw.
  const ProcessResult& so_far() const { return result_; }

  // Until it ends; kills it (and its children) when its time is up.
  ProcessResult wait() {
    while (!ended_) pump();
    return result_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  static void check(int error, const std::string& what) {
    if (error != 0) throw std::system_error(error, std::generic_category(), what);
  }

  // Of the program, or of the scripts: what a developer or CI has set must not change a test.
  static bool is_option(const std::string& entry) { return entry.rfind("GRAPEVINE_", 0) == 0; }

  // What is inherited but options, with what the test sets.
  std::vector<std::string> environment() const {
    std::vector<std::string> result;
    const auto key = [](const std::string& entry) { return entry.substr(0, entry.find('=')); };
    for (char** entry = environ; *entry != nullptr; ++entry) {
      const bool replaced =
          is_option(*entry) ||
          std::any_of(options_.environment.begin(), options_.environment.end(),
                      [&](const std::string& own) { return key(own) == key(*entry); });
      if (!replaced) result.emplace_back(*entry);
    }
    for (const std::string& own : options_.environment) {
      if (own.find('=') != std::string::npos) result.push_back(own);
    }
    return result;
  }

  static std::vector<char*> pointers(std::vector<std::string>& strings) {
    std::vector<char*> result;
    for (std::string& string : strings) result.push_back(string.data());
    result.push_back(nullptr);
    return result;
  }

  void start(const std::vector<std::string>& arguments) {
    std::array<int, 2> out{};
    std::array<int, 2> err{};
    check(::pipe2(out.data(), O_CLOEXEC) == 0 ? 0 : errno, "pipe");
    out_ = out[0];
    check(::pipe2(err.data(), O_CLOEXEC) == 0 ? 0 : errno, "pipe");
    err_ = err[0];
    const int error = spawn(arguments, out[1], err[1]);
    ::close(out[1]);
    ::close(err[1]);
    if (error != 0) {
      ended_ = true;  // nothing to kill
      ::close(out_);
      ::close(err_);
      check(error, "cannot start " + options_.program);
    }
    pidfd_ = static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0));
    check(pidfd_ < 0 ? errno : 0, "pidfd_open");
    for (const int descriptor : {out_, err_}) ::fcntl(descriptor, F_SETFL, O_NONBLOCK);
  }

  // Returns why the program was not started; 0: it was.
  int spawn(const std::vector<std::string>& arguments, int out, int err) {
    std::vector<std::string> command{options_.program};
    command.insert(command.end(), arguments.begin(), arguments.end());
    std::vector<std::string> variables = environment();
    const std::vector<char*> argv = pointers(command), envp = pointers(variables);
    std::array<int, 2> failure{};  // the child's errno; closed without one by the program's start
    check(::pipe2(failure.data(), O_CLOEXEC) == 0 ? 0 : errno, "pipe");
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ == 0) become(parent, argv.data(), envp.data(), {out, err, failure[1]});
    int error = pid_ < 0 ? errno : 0;
    ::close(failure[1]);
    while (::read(failure[0], &error, sizeof error) < 0 && errno == EINTR) {
    }
    ::close(failure[0]);
    if (pid_ > 0 && error != 0) ::waitpid(pid_, nullptr, 0);
    return error;
  }

  // In the child: system calls only, as other threads of the parent may have held locks.
  [[noreturn]] void become(pid_t parent, char* const* argv, char* const* envp,
                           const std::array<int, 3>& descriptors) const {
    const auto [out, err, failure] = descriptors;
    ::setpgid(0, 0);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(127);  // it has died before
    const int in = ::open("/dev/null", O_RDONLY);
    const bool moves = !options_.directory.empty();
    if (in >= 0 && ::dup2(in, 0) == 0 && ::dup2(out, 1) == 1 && ::dup2(err, 2) == 2 &&
        (!moves || ::chdir(options_.directory.c_str()) == 0)) {
      if (in != 0) ::close(in);
      ::execve(argv[0], argv, envp);
    }
    const int error = errno;
    [[maybe_unused]] const ssize_t written = ::write(failure, &error, sizeof error);
    ::_exit(127);
  }

  // Waits for output or the end, whichever is first, and takes it in.
  void pump() {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - Clock::now());
    if (left.count() <= 0) {
      result_.timed_out = true;
      const std::string where = threads();
      kill_group();
      reap();
      result_.err += where;
      return;
    }
    std::array<pollfd, 3> waits{{{out_, POLLIN, 0}, {err_, POLLIN, 0}, {pidfd_, POLLIN, 0}}};
    ::poll(waits.data(), waits.size(),
           static_cast<int>(std::min<std::int64_t>(left.count(), 1000)));
    if (waits[0].revents != 0) drain(out_, result_.out);
    if (waits[1].revents != 0) drain(err_, result_.err);
    // A child of the child may hold the pipes open for longer: its end is not waited for.
    if (waits[2].revents != 0) {
      kill_group();
      reap();
    }
  }

  // Reads what is there. At the end of the stream the descriptor is closed, and poll() skips it.
  static void drain(int& descriptor, std::string& text) {
    std::array<char, 1 << 16> buffer;
    while (descriptor >= 0) {
      const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
      if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return;
      if (count == 0) {
        ::close(descriptor);
        descriptor = -1;
      }
    }
  }

  // What its threads wait in: their names and system calls (/proc/PID/task/*/syscall: number,
  // arguments).
  std::string threads() const {
    std::string text = "--- threads when its time was up\n";
    std::error_code ended;
    const std::filesystem::path tasks = "/proc/" + std::to_string(pid_) + "/task";
    for (const auto& task : std::filesystem::directory_iterator(tasks, ended)) {
      std::string name, call;
      std::getline(std::ifstream(task.path() / "comm"), name);
      std::getline(std::ifstream(task.path() / "syscall"), call);
      text += name + ": " + call + "\n";
    }
    return text;
  }

  void kill_group() const { ::kill(-pid_, SIGKILL); }

  void reap() {
    int status = 0;
    while (::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    ended_ = true;
    drain(out_, result_.out);
    drain(err_, result_.err);
    if (WIFEXITED(status)) result_.exit_code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result_.signal = WTERMSIG(status);
  }

  const ProcessOptions options_;
  const Clock::time_point deadline_;
  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  int pidfd_ = -1;  // readable once the process has ended
  bool ended_ = false;
  ProcessResult result_;
};

inline ProcessResult run_process(const std::vector<std::string>& arguments,
                                 ProcessOptions options = {}) {
  return Process(arguments, std::move(options)).wait();
}

// A fresh folder that goes away with the object: `TemporaryDirectory folder; folder.path() / "x"`.
class TemporaryDirectory {
 public:
  TemporaryDirectory() {
    std::string name = (std::filesystem::temp_directory_path() / "grapevine-test-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw std::system_error(errno, std::generic_category(), name);
    }
    path_ = name;
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace grapevine
