#include "apps/launch/inherited_signals.hpp"

#include <dlfcn.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>

namespace grapevine {
namespace {

// The struct of the kernel; the C library may not be ready, nor a sanitizer's interceptors.
struct KernelAction {
  void (*handler)(int);
  unsigned long flags;
  void (*restorer)();
  unsigned long mask;
};

unsigned long ignored_at_start = 0;  // bit n - 1: signal n

__attribute__((no_sanitize("address", "undefined"))) void note_ignored(int, char**, char**) {
  for (int number = 1; number < 32; ++number) {
    KernelAction action = {nullptr, 0, nullptr, 0};
    if (::syscall(SYS_rt_sigaction, number, nullptr, &action, sizeof action.mask) == 0 &&
        action.handler == SIG_IGN)
      ignored_at_start |= 1ul << (number - 1);
  }
}

// Functions in this section of an executable run before any library's constructors.
__attribute__((section(".preinit_array"), used)) void (*at_start)(int, char**,
                                                                  char**) = note_ignored;

bool is_of_libucs(void (*handler)(int)) {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<const void*>(handler), &info) != 0 &&
         info.dli_fname != nullptr && std::strstr(info.dli_fname, "libucs") != nullptr;
}

bool is_crash(int number) {
  for (const int crash : {SIGILL, SIGTRAP, SIGABRT, SIGBUS, SIGFPE, SIGSEGV, SIGSYS})
    if (number == crash) return true;
  return false;
}

// Whether the user wants libucs to handle it. SIGHUP is the signal on which it prints its state,
// unless UCX_DEBUG_SIGNO names another; the others are those of crashes.
bool asked_for(int number) {
  const auto set = [](const char* name) { return std::getenv(name) != nullptr; };
  const bool crashes = set("UCX_HANDLE_ERRORS") || set("UCX_ERROR_SIGNALS");
  return (crashes && number != SIGHUP) || (set("UCX_DEBUG_SIGNO") && !is_crash(number));
}

}  // namespace

void restore_inherited_signals() {
  for (int number = 1; number < 32; ++number) {
    struct sigaction action {};
    if (asked_for(number)) continue;
    if (::sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_DFL ||
        action.sa_handler == SIG_IGN || !is_of_libucs(action.sa_handler))
      continue;
    const bool ignored = (ignored_at_start >> (number - 1) & 1) != 0;
    std::signal(number, ignored ? SIG_IGN : SIG_DFL);
  }
}

}  // namespace grapevine
