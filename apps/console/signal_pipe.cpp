#include "apps/console/signal_pipe.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <initializer_list>

#include "apps/console/stop_signals.hpp"

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

}  // namespace

SignalPipe::SignalPipe() {
  if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) ends = {-1, -1};
  handle_stop_signals(write_to_pipe);
}

SignalPipe::~SignalPipe() {
  handle_stop_signals(SIG_DFL);
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
