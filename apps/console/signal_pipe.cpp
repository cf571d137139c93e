#include "apps/console/signal_pipe.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <initializer_list>

namespace grapevine {
namespace {

std::array<int, 2> ends = {-1, -1};  // read, write

void write_to_pipe(int number) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(number == SIGHUP ? SIGTERM : number);
  // A full pipe holds thousands of unread ones: another adds nothing.
  [[maybe_unused]] const ssize_t written = ::write(ends[1], &byte, 1);
  errno = saved;
}

void set_pipe_handlers(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) ::sigaction(number, &action, nullptr);
  struct sigaction hang_up {};
  const bool known = ::sigaction(SIGHUP, nullptr, &hang_up) == 0;
  // Where the parent ignored it, as nohup does, it stays ignored.
  if (known && hang_up.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
}

}  // namespace

SignalPipe::SignalPipe() {
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) ends = {-1, -1};
  set_pipe_handlers(write_to_pipe);
}

SignalPipe::~SignalPipe() {
  set_pipe_handlers(SIG_DFL);
  for (int& end : ends) {
    if (end >= 0) ::close(end);
    end = -1;
  }
}

int SignalPipe::descriptor() const { return ends[0]; }

std::vector<int> SignalPipe::take() {
  std::vector<int> result;
  std::array<unsigned char, 256> bytes;
  const ssize_t count = ::read(ends[0], bytes.data(), bytes.size());
  for (ssize_t i = 0; i < count; ++i) result.push_back(bytes[static_cast<std::size_t>(i)]);
  return result;
}

}  // namespace grapevine
