// The signals that ask a verb to stop, or to save.
#pragma once
#include <csignal>
#include <initializer_list>

namespace grapevine {

// `handler` for SIGINT, SIGTERM, SIGUSR1 and SIGHUP (a closed terminal); SIG_DFL takes it away.
// Interrupted system calls are restarted. A SIGHUP that the parent ignored, as nohup does, stays
// ignored.
inline void handle_stop_signals(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) ::sigaction(number, &action, nullptr);
  struct sigaction hang_up {};
  const bool known = ::sigaction(SIGHUP, nullptr, &hang_up) == 0;
  if (known && hang_up.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
}

}  // namespace grapevine
