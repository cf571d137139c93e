// Signals as bytes of a pipe, for a poll() loop that must distinguish them.
#pragma once
#include <vector>

namespace grapevine {

// While it lives, SIGINT, SIGTERM, SIGUSR1 and SIGHUP do nothing but make descriptor() readable;
// SIGHUP (a closed terminal) is read as SIGTERM, and stays ignored where the parent ignored it. (A
// signalfd would need them blocked in every thread, those of the math libraries too.) One at a time
// per process, and none beside a SignalFlags.
class SignalPipe {
 public:
  SignalPipe();
  ~SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  // Negative where the system had no pipe left: then no signal is seen.
  int descriptor() const;
  // The signals since the last call, in order.
  std::vector<int> take();
};

}  // namespace grapevine
