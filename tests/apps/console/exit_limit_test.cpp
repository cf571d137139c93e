#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "apps/console/signals.hpp"
#include "messages/exit_code.hpp"

namespace grapevine {
namespace exit_limit_test {

// As a library whose destructor waits for a thread that never ends.
[[noreturn]] void wait_for_ever() {
  for (;;) ::pause();
}

TEST(ExitLimit, EndsAProcessWhoseLibrariesDoNotEnd) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto hang = [](int code) {
    std::atexit([] { wait_for_ever(); });
    limit_exit(code, std::chrono::seconds(1));
    std::exit(code);
  };
  EXPECT_EXIT(hang(0), testing::ExitedWithCode(0), "a library does not end");
  EXPECT_EXIT(hang(3), testing::ExitedWithCode(3), "^$") << "the last line is its error";
}

TEST(ExitLimit, LeavesOthersAlone) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto end = [] {
    limit_exit(3, std::chrono::seconds(3600));
    std::exit(4);
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(4), "^$");
}

// The last line says how the process ends: its exit code does not change by a late Ctrl-C.
TEST(ExitLimit, ALateSignalEndsWithTheSameExitCode) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    const auto end = [number] {
      std::signal(number, SIG_DFL);  // a parent may have it ignored
      limit_exit(kExitStopped, std::chrono::seconds(3600));
      ::raise(SIGUSR1);
      ::raise(number);
      wait_for_ever();
    };
    EXPECT_EXIT(end(), testing::ExitedWithCode(kExitStopped), "^$") << number;
  }
}

TEST(SignalFlags, ASecondInterruptEndsAtOnceAndSaysSo) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto interrupted = [](int first) {
    const SignalFlags signals;
    ::raise(first);
    ::raise(SIGINT);
    if (first != SIGINT) std::exit(signals.stop_requested() ? 0 : 1);
    wait_for_ever();
  };
  const std::string line = std::string("^") + kErrorStart + kEndedAtOnce + "\n$";
  EXPECT_EXIT(interrupted(SIGINT), testing::KilledBySignal(SIGINT), line);
  EXPECT_EXIT(interrupted(SIGTERM), testing::ExitedWithCode(0), "^$") << "a launcher's";
}

}  // namespace exit_limit_test
}  // namespace grapevine
