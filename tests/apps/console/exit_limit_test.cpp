#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>

#include "apps/console/signals.hpp"

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

}  // namespace exit_limit_test
}  // namespace grapevine
