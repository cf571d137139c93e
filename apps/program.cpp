#include "apps/program.hpp"

#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "apps/console/command.hpp"
#include "apps/console/signals.hpp"
#include "apps/launch/inherited_signals.hpp"
#include "apps/verbs.hpp"
#include "gpu/device.hpp"
#include "messages/exit_code.hpp"
#include "messages/text/exception_line.hpp"
#ifdef GRAPEVINE_TORCH_CUDA
#include "gpu/torch_cuda/register.hpp"
#endif

namespace grapevine {
namespace {

// Of a process that has ended well, and of one whose error is printed.
constexpr std::chrono::seconds kExitTimeout(30), kFailureTimeout(5);

// Logs go to stderr: stdout belongs to results. False where GRAPEVINE_LOG_LEVEL names no level.
bool set_up_logging() {
  spdlog::set_default_logger(spdlog::stderr_color_mt("grapevine"));
  spdlog::set_pattern("%H:%M:%S %^%l%$ %v");
  const char* name = std::getenv("GRAPEVINE_LOG_LEVEL");
  if (name != nullptr && *name == '\0') name = nullptr;
  const auto level = name != nullptr ? spdlog::level::from_str(name) : spdlog::level::warn;
  spdlog::set_level(level);
  return level != spdlog::level::off || name == std::string("off");
}

// A standard stream that is closed would be the first file that is opened, and take what was meant
// for it.
void open_closed_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && ::open("/dev/null", O_RDWR) < 0) std::abort();
}

// A training step frees all the memory that it allocated, and the next one allocates as much again.
// By default glibc returns it to the system, which clears each page at its next use: a fifth of the
// processor time of resnet50 on 32 x 32 images, at a tenth less memory. The user's own settings of
// glibc come first.
void keep_freed_memory() {
#ifdef __GLIBC__
  for (const char* own : {"MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"})
    if (std::getenv(own) != nullptr) return;
  constexpr int kLargest = 1 << 30;          // bytes
  constexpr int kLargestOfOlder = 32 << 20;  // of an older glibc, which refuses more
  if (::mallopt(M_MMAP_THRESHOLD, kLargest) == 1 ||
      ::mallopt(M_MMAP_THRESHOLD, kLargestOfOlder) == 1)
    ::mallopt(M_TRIM_THRESHOLD, kLargest);
#endif
}

// The last resort, e.g. where memory runs out in a library's thread: one line and an exit code, as
// after every other failure.
[[noreturn]] void end_with_a_line() {
  std::string line =
      "error: ended by a failure of unknown kind: report it with the command that was run";
  if (const std::exception_ptr problem = std::current_exception())
    line = "error: " + exception_line(problem);
  line += '\n';
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) std::_Exit(1);
  std::_Exit(1);
}

}  // namespace

int run_command_line(int argc, char** argv, const std::vector<Expected<void>>& registered) {
  keep_freed_memory();
  restore_inherited_signals();
  std::set_terminate(end_with_a_line);
  // A file that may not grow is an error of its write.
  std::signal(SIGXFSZ, SIG_IGN);
  open_closed_streams();
  if (!set_up_logging()) {
    std::cerr
        << "error: GRAPEVINE_LOG_LEVEL: expected trace, debug, info, warning, error, critical "
           "or off"
        << std::endl;
    return kExitBadInput;
  }
  for (const Expected<void>& added : registered)
    if (!added) {
      std::cerr << "error: " << added.error().message << std::endl;
      return exit_code_of(added.error().code);
    }
#ifdef GRAPEVINE_TORCH_CUDA
  register_torch_cuda();
#endif
  Console console{std::cout, std::cerr, ::isatty(STDERR_FILENO) != 0};
  const int code = run_command_line(verbs(), {argv + 1, argv + argc}, console);
  if (!console.thread_left_behind && !device_threads_left_behind()) {
    limit_exit(code, code == 0 ? kExitTimeout : kFailureTimeout);
    return code;
  }
  std::_Exit(code);  // destructors would pull away what that thread uses
}

}  // namespace grapevine
