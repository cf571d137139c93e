// PseudoTerminal: a program in a terminal of its own, for tests. Header-only.
#pragma once
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <vector>

namespace grapevine {

// The destructor kills the program.
class PseudoTerminal {
 public:
  PseudoTerminal(const std::vector<std::string>& arguments, int rows, int columns,
                 const char* term = "xterm") {
    std::vector<std::string> command = {GRAPEVINE_EXECUTABLE};
    command.insert(command.end(), arguments.begin(), arguments.end());
    std::vector<char*> pointers;
    for (std::string& part : command) pointers.push_back(part.data());
    pointers.push_back(nullptr);
    winsize size{};
    size.ws_row = static_cast<unsigned short>(rows);
    size.ws_col = static_cast<unsigned short>(columns);
    int slave = -1;
    if (::openpty(&master_, &slave, nullptr, nullptr, &size) != 0) return;
    ::tcgetattr(slave, &before_);
    slave_ = slave;  // stays open, so that the terminal's settings outlive the program
    pid_ = ::fork();
    if (pid_ == 0) {
      ::login_tty(slave);
      ::setenv("TERM", term, 1);
      ::execv(pointers[0], pointers.data());
      ::_exit(127);
    }
  }
  ~PseudoTerminal() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      wait();
    }
    for (const int descriptor : {master_, slave_})
      if (descriptor >= 0) ::close(descriptor);
  }
  PseudoTerminal(const PseudoTerminal&) = delete;
  PseudoTerminal& operator=(const PseudoTerminal&) = delete;

  void press(const std::string& keys) const {
    if (::write(master_, keys.data(), keys.size()) < 0) return;
  }
  void resize(int rows, int columns) const {
    winsize size{};
    size.ws_row = static_cast<unsigned short>(rows);
    size.ws_col = static_cast<unsigned short>(columns);
    ::ioctl(master_, TIOCSWINSZ, &size);
  }
  void signal(int number) const { ::kill(pid_, number); }

  // Until it has written `text` since the last forget().
  bool wait_for(const std::string& text) {
    const auto deadline = Clock::now() + std::chrono::seconds(60);
    while (output_.find(text) == std::string::npos && Clock::now() < deadline && pump()) {
    }
    return output_.find(text) != std::string::npos;
  }
  void forget() { output_.clear(); }
  const std::string& output() const { return output_; }

  // Its exit code, or -1.
  int wait() {
    while (pid_ > 0) {
      pump();
      int status = 0;
      if (::waitpid(pid_, &status, WNOHANG) != pid_) continue;
      pid_ = -1;
      pump();
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    return code_;
  }
  // Whether the terminal echoes and reads lines, as it did.
  bool is_restored() const {
    termios now{};
    return ::tcgetattr(slave_, &now) == 0 && now.c_lflag == before_.c_lflag &&
           now.c_iflag == before_.c_iflag && now.c_oflag == before_.c_oflag;
  }

 private:
  using Clock = std::chrono::steady_clock;

  // Takes in what is there; false: the terminal has closed.
  bool pump() {
    pollfd waited{master_, POLLIN, 0};
    if (::poll(&waited, 1, 50) <= 0) return true;
    char buffer[4096];
    const ssize_t got = ::read(master_, buffer, sizeof buffer);
    if (got <= 0) return false;
    output_.append(buffer, static_cast<std::size_t>(got));
    return true;
  }

  int master_ = -1, slave_ = -1;
  termios before_{};
  pid_t pid_ = -1;
  int code_ = -1;
  std::string output_;
};

}  // namespace grapevine
