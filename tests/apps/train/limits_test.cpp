// Runs under limits of the system: threads, memory, the size of files. Each ends by itself with one
// line that says what was too little.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace limits_test {

namespace fs = std::filesystem;

// After `ulimit` with these arguments; `shell` goes before the program.
ProcessResult run_limited(const std::string& limit, const std::vector<std::string>& arguments,
                          const std::vector<std::string>& shell = {}) {
  const std::vector<std::string> command =
      with({"/bin/bash", "-c", "ulimit " + limit + "; exec \"$@\"", "bash", GRAPEVINE_EXECUTABLE},
           arguments);
  const std::vector<std::string> whole = with(shell, command);
  ProcessOptions options;
  options.program = whole.front();
  // All limits of the program itself are shorter: --timeout, and 100 s for its actors and the
  // libraries to end.
  options.timeout = std::chrono::seconds(300);
  return run_process({whole.begin() + 1, whole.end()}, options);
}

std::vector<std::string> run_of(int workers, const fs::path& out) {
  return {"train",
          "--workers",
          std::to_string(workers),
          "--batch-size",
          "2",
          "--steps",
          "4",
          "--threads",
          "1",
          "--out",
          out.string()};
}

// It ends by itself, and its last line is one for people.
std::string error_of(const ProcessResult& result) {
  EXPECT_FALSE(result.timed_out) << result.describe();
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  const std::string line = ProcessResult::last_line(result.err);
  EXPECT_EQ(line.rfind("error: ", 0), 0U) << result.describe();
  EXPECT_EQ(result.err.find("terminate called"), std::string::npos) << result.describe();
  // The system's word for it says neither what was wanted nor by whom.
  EXPECT_NE(line, "error: Resource temporarily unavailable");
  EXPECT_EQ(line.find(" is gone"), std::string::npos) << "only one process: " << line;
  return line;
}

// Root has as many threads as it likes: the test becomes a user that has no other process.
std::vector<std::string> as_nobody(const fs::path& folder) {
  if (::geteuid() != 0 || !fs::exists("/usr/bin/setpriv")) return {};
  fs::permissions(folder, fs::perms::all);
  return {"/usr/bin/setpriv", "--reuid=65533", "--regid=65533", "--clear-groups"};
}

// job.toml has room, and neither a checkpoint nor summary.json has.
TEST(Limits, AFullDiskReportsTheCheckpointAlsoWhereTheSummaryDoesNotFit) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const ProcessResult result =
      run_limited("-f 2", with(run_of(2, out), {"--model", "linear", "--data", "glyphs:640"}));
  const std::string line = error_of(result);
  EXPECT_FALSE(fs::exists(out / "summary.json"));
  EXPECT_NE(result.err.find("warning cannot write '" + (out / "summary.json").string()),
            std::string::npos)
      << result.describe();
  EXPECT_EQ(line.rfind("error: checkpoint: cannot write ", 0), 0U) << line;
  EXPECT_NE(line.find("no checkpoint was written"), std::string::npos) << line;
}

TEST(Limits, ThreadsThatCannotBeStartedEndTheRun) {
  const TemporaryDirectory folder;
  const std::vector<std::string> user = as_nobody(folder.path());
  if (user.empty()) GTEST_SKIP() << "needs root and setpriv, to become a user without processes";
  if (run_process(
          {"--reuid=65533", "--regid=65533", "--clear-groups", GRAPEVINE_EXECUTABLE, "--version"},
          [] {
            ProcessOptions options;
            options.program = "/usr/bin/setpriv";
            return options;
          }())
          .exit_code != 0)
    GTEST_SKIP() << "another user cannot run " << GRAPEVINE_EXECUTABLE;
  const fs::path out = folder.path() / "run";
  const std::string line = error_of(run_limited("-u 40", run_of(100, out), user));
  EXPECT_NE(line.find("cannot start worker "), std::string::npos) << line;
  EXPECT_NE(line.find(" of 100: no more threads"), std::string::npos) << line;
  EXPECT_NE(line.find("fewer --workers"), std::string::npos) << line;
  EXPECT_FALSE(fs::exists(out / "model.pt"));
  for (const int threads : {3, 4, 5, 6, 8, 12, 16, 20}) {
    SCOPED_TRACE(threads);
    const std::string limit = "-u " + std::to_string(threads);
    // Libraries end the program before main() where they get no thread.
    if (run_limited(limit, {"--version"}, user).exit_code != 0) continue;
    const ProcessResult result = run_limited(limit, run_of(4, out), user);
    if (result.exit_code != 0) error_of(result);
  }
}

// Of address space, for tensors of 40 MB and more. (Where LibTorch's convolutions find no memory
// they crash, and no program can help it. Where OpenBLAS finds none for its buffers it asks again
// for ever: --timeout ends that.)
TEST(Limits, MemoryThatIsShortEndsTheRun) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer needs more address space than the limit leaves";
#endif
  const TemporaryDirectory folder;
  for (const auto& [workers, kilobytes] : {std::pair(2, 3'000'000), std::pair(8, 5'000'000)}) {
    SCOPED_TRACE(std::to_string(workers) + " workers, " + std::to_string(kilobytes) + " kB");
    const std::vector<std::string> run =
        with(run_of(workers, folder.path() / "run"),
             {"--model", "linear", "--data", "hyperplane:10000000", "--timeout", "10"});
    error_of(run_limited("-v " + std::to_string(kilobytes), run));
  }
}

// As far as the system's loader and the libraries' own beginnings get: what they say is theirs.
TEST(Limits, EveryVerbSaysThatMemoryIsShort) {
  const TemporaryDirectory folder;
  for (int kilobytes = 600'000; kilobytes <= 1'000'000; kilobytes += 100'000) {
    SCOPED_TRACE(kilobytes);
    const std::string limit = "-v " + std::to_string(kilobytes);
    if (run_limited(limit, {"--version"}).exit_code != 0) continue;
    for (const auto& verb : {std::vector<std::string>{"topology", "ring"},
                             with(run_of(1, folder.path() / "run"), {"--model", "mlp"})}) {
      const ProcessResult result = run_limited(limit, verb);
      if (result.exit_code != 0) error_of(result);
    }
  }
}

// Nothing half-written, and the file that could not be written is named as the user knows it.
TEST(Limits, FilesThatMayNotGrowEndTheRunWithTheirName) {
  const TemporaryDirectory folder;
  for (const int kilobytes : {4, 20, 100, 400}) {
    SCOPED_TRACE(kilobytes);
    const fs::path out = folder.path() / std::to_string(kilobytes);
    const ProcessResult result =
        run_limited("-f " + std::to_string(kilobytes), with(run_of(2, out), {"--trace", "off"}));
    if (kilobytes < 400 || result.exit_code != 0) {
      const std::string line = error_of(result);
      EXPECT_NE(line.find("File too large"), std::string::npos) << line;
      EXPECT_EQ(line.find(".tmp"), std::string::npos) << line;
    }
    if (!fs::exists(out)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(out)) {
      const std::string name = entry.path().filename().string();
      EXPECT_EQ(name.find(".tmp"), std::string::npos) << entry.path();
      EXPECT_EQ(name.rfind(".writing", 0), std::string::npos) << entry.path();
    }
    // Of 250 kB; a checkpoint has twice that.
    EXPECT_EQ(fs::exists(out / "model.pt"), kilobytes == 400);
  }
}

}  // namespace limits_test
}  // namespace grapevine
