#include "apps/console/signal_pipe.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <initializer_list>

#include "apps/console/stop_signals.hpp"
#include "net/file_descriptor.hpp"

namespace grapevine {
namespace {

DescriptorPair ends;  // read, write

void write_to_pipe(int number) {
  const int saved = errno;
  const auto byte = static_cast<unsigned char>(number == SIGHUP ? SIGTERM : number);
  // A full pipe holds thousands of unread ones: another adds nothing.
  [[maybe_unused]] const ssize_t written = ::write(ends[1].get(), &byte, 1);
  errno = saved;
}

}  // namespace

SignalPipe::SignalPipe() {
  ends = descriptor_pair([](int* pair) { return ::pipe2(pair, O_CLOEXEC | O_NONBLOCK); });
  handle_stop_signals(write_to_pipe);
}

SignalPipe::~SignalPipe() {
  handle_stop_signals(SIG_DFL);
  ends = {};
}

int SignalPipe::descriptor() const { return ends[0].get(); }

std::vector<int> SignalPipe::take() {
  std::vector<int> result;
  std::array<unsigned char, 256> bytes;
  const ssize_t count = ::read(ends[0].get(), bytes.data(), bytes.size());
  for (ssize_t i = 0; i < count; ++i) result.push_back(bytes[static_cast<std::size_t>(i)]);
  return result;
}

}  // namespace grapevine
