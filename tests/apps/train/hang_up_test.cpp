// A closed terminal (SIGHUP) and crashes, as a user meets them.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <thread>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace hang_up_test {

namespace fs = std::filesystem;

// Slow enough to be met in the middle: 40 steps of 100 ms at least.
std::vector<std::string> slow_run(const fs::path& out) {
  return {"train",        "--model",      "linear",    "--data",
          "glyphs:640",   "--workers",    "2",         "--steps",
          "40",           "--batch-size", "16",        "--delay",
          "rank=0:100ms", "--threads",    "1",         "--checkpoint-every",
          "0.1",          "--out",        out.string()};
}

// It was stopped by request, whatever that gives for an exit code, and can be resumed.
void expect_stopped(const ProcessResult& result, const fs::path& out) {
  EXPECT_EQ(result.signal, 0) << result.describe();
  EXPECT_FALSE(result.timed_out) << result.describe();
  EXPECT_EQ(summary_of(out)["interrupted"], true) << result.describe();
  EXPECT_TRUE(read_checkpoint(out.string()).ok()) << result.describe();
}

TEST(HangUp, StopsTrainingWithACheckpoint) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  Process process(slow_run(out));
  ASSERT_TRUE(appears(out / "checkpoint" / "latest" / "job.json"));
  process.signal(SIGHUP);
  expect_stopped(process.wait(), out);
}

TEST(HangUp, StopsTheProcessesOfLaunchWithACheckpoint) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  std::vector<std::string> arguments = slow_run(out);
  arguments.insert(arguments.begin(), {"launch", "-n", "2", "--"});
  Process process(with(arguments, {"--workers", "1"}));
  ASSERT_TRUE(appears(out / "checkpoint" / "latest" / "job.json"));
  process.signal(SIGHUP);
  expect_stopped(process.wait(), out);
}

TEST(HangUp, EndsANode) {
  Process node({"node", "--listen", "127.0.0.1:0"});
  ASSERT_TRUE(node.wait_for_output("1 node, 1 slot, idle")) << node.so_far().describe();
  node.signal(SIGHUP);
  const ProcessResult result = node.wait();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.out.find("leaving"), std::string::npos) << result.describe();
}

// nohup means: ignored.
TEST(HangUp, IsIgnoredWhereTheParentIgnoredIt) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  ProcessOptions options;
  options.program = "/bin/sh";
  std::string command = "trap '' HUP; exec " GRAPEVINE_EXECUTABLE;
  for (const std::string& argument : slow_run(out)) command += " '" + argument + "'";
  Process process({"-c", command}, options);
  ASSERT_TRUE(appears(out / "checkpoint" / "latest" / "job.json"));
  process.signal(SIGHUP);
  const ProcessResult result = process.wait();
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(summary_of(out)["steps"], 40) << result.describe();
  EXPECT_EQ(summary_of(out)["interrupted"], false) << result.describe();
}

// Where nothing handles it, the process ends as any other would.
TEST(HangUp, EndsWhatHasNothingToSave) {
  Process process({"average", "--ranks", "64", "--rounds", "10000000", "--json"});
  ASSERT_TRUE(process.wait_for_output("\"round\":1,")) << process.so_far().describe();
  process.signal(SIGHUP);
  EXPECT_EQ(process.wait().signal, SIGHUP);
}

// A library's handler would print one, in runs that do not use that library.
TEST(Crash, PrintsNoStackTrace) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  Process process(slow_run(out));
  ASSERT_TRUE(appears(out / "checkpoint" / "latest" / "job.json"));
  process.signal(SIGSEGV);
  const ProcessResult result = process.wait();
  EXPECT_EQ(result.signal, SIGSEGV) << result.describe();
  EXPECT_EQ(result.err.find("backtrace"), std::string::npos) << result.describe();
}

}  // namespace hang_up_test
}  // namespace grapevine
