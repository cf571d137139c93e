#include "tests/apps/process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace grapevine {
namespace process_test {

ProcessOptions shell() {
  ProcessOptions options;
  options.program = "/bin/sh";
  return options;
}

TEST(ProcessTest, CapturesBothStreamsAndTheExitCode) {
  const ProcessResult result = run_process({"-c", "echo one; echo two >&2; exit 7"}, shell());
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_EQ(result.signal, 0);
  EXPECT_EQ(result.out, "one\n");
  EXPECT_EQ(result.err, "two\n");
  EXPECT_FALSE(result.timed_out);
}

TEST(ProcessTest, MoreOutputThanPipesHoldDoesNotBlockTheChild) {
  const ProcessResult result =
      run_process({"-c", "head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2"}, shell());
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(result.out.size(), 3000000u);
  EXPECT_EQ(result.err.size(), 2000000u);
}

TEST(ProcessTest, RunsInTheGivenFolderWithTheGivenEnvironment) {
  const TemporaryDirectory folder;
  ::setenv("PROCESS_TEST_GONE", "still here", 1);
  ProcessOptions options = shell();
  options.directory = folder.path();
  options.environment = {"PROCESS_TEST_SET=a=b", "PROCESS_TEST_GONE"};
  const ProcessResult result =
      run_process({"-c", "pwd -P; echo \"$PROCESS_TEST_SET/$PROCESS_TEST_GONE\""}, options);
  EXPECT_EQ(result.out, std::filesystem::canonical(folder.path()).string() + "\na=b/\n");
}

TEST(ProcessTest, SignalsReachAProgramThatIsWatched) {
  Process process(
      {"-c", "trap 'echo caught; exit 3' TERM; echo ready; while :; do sleep 0.05; done"}, shell());
  ASSERT_TRUE(process.wait_for_output("ready"));
  process.signal_group(SIGTERM);
  const ProcessResult result = process.wait();
  EXPECT_EQ(result.exit_code, 3) << result.describe();
  EXPECT_EQ(ProcessResult::last_line(result.out), "caught");
}

TEST(ProcessTest, ASignalThatEndsItIsReported) {
  Process process({"-c", "kill -KILL $$"}, shell());
  EXPECT_FALSE(process.wait_for_output("never"));
  const ProcessResult result = process.wait();
  EXPECT_EQ(result.exit_code, -1);
  EXPECT_EQ(result.signal, SIGKILL);
}

TEST(ProcessTest, WhatHangsIsKilledWithItsChildren) {
  ProcessOptions options = shell();
  options.timeout = std::chrono::milliseconds(200);
  const ProcessResult result = run_process({"-c", "sleep 1000 & echo $!; wait"}, options);
  EXPECT_TRUE(result.timed_out);
  EXPECT_EQ(result.signal, SIGKILL);
  // The grandchild is a zombie of init at most, never a running process.
  const std::string grandchild = ProcessResult::last_line(result.out);
  ASSERT_FALSE(grandchild.empty());
  const ProcessResult state =
      run_process({"-c", "ps -o stat= -p " + grandchild + " | grep -v Z"}, shell());
  EXPECT_EQ(state.out, "");
}

// As where the tests crash: nobody is left to kill it.
TEST(ProcessTest, EndsWithTheProcessThatHasStartedIt) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const pid_t starter = ::fork();
  if (starter == 0) {
    const Process orphan({"-c", "exec sleep 1000"}, shell());
    const pid_t started = orphan.pid();
    if (::write(ends[1], &started, sizeof started) == sizeof started) ::kill(::getpid(), SIGKILL);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(starter, &status, 0), starter);
  ::close(ends[1]);
  pid_t started = 0;
  ASSERT_EQ(::read(ends[0], &started, sizeof started), sizeof started);
  ::close(ends[0]);
  EXPECT_TRUE(WIFSIGNALED(status));
  // It is a zombie of init at most.
  const std::string find = "ps -o stat= -p " + std::to_string(started) + " | grep -v Z";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!run_process({"-c", find}, shell()).out.empty() &&
         std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(run_process({"-c", find}, shell()).out, "");
}

TEST(ProcessTest, AProgramThatIsMissingThrows) {
  ProcessOptions options;
  options.program = "/no/such/program";
  EXPECT_THROW(run_process({}, options), std::system_error);
}

TEST(ProcessTest, LastLineIgnoresTrailingNewlines) {
  EXPECT_EQ(ProcessResult::last_line("a\nb\n\n"), "b");
  EXPECT_EQ(ProcessResult::last_line("alone"), "alone");
  EXPECT_EQ(ProcessResult::last_line(""), "");
}

}  // namespace process_test
}  // namespace grapevine
