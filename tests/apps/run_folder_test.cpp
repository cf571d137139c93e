// What a run finds in its --out folder, and leaves there.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "actors/files.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train_run.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

const std::vector<std::string> kRun = {"train",      "--model",   "linear", "--data",
                                       "glyphs:640", "--workers", "2",      "--steps",
                                       "2",          "--threads", "1"};

TEST(RunFolder, IsForOneRunAtATime) {
  const TemporaryDirectory folder;
  // What looks half-written may be the checkpoint of the run that writes there at this moment.
  const fs::path stale = folder.path() / "checkpoint" / ".writing-step-9";
  fs::create_directories(stale);
  const std::vector<std::string> run = with(kRun, {"--out", folder.path().string()});
  FolderLock held = *lock_folder(folder.path());
  ASSERT_NE(held, nullptr);
  const ProcessResult beside = run_process(run);
  EXPECT_EQ(beside.exit_code, 2) << beside.describe();
  EXPECT_NE(ProcessResult::last_line(beside.err).find("another run writes there"),
            std::string::npos)
      << beside.describe();
  EXPECT_TRUE(fs::exists(stale));
  held.reset();
  const ProcessResult alone = run_process(run);
  EXPECT_EQ(alone.exit_code, 0) << alone.describe();
  EXPECT_FALSE(fs::exists(stale));
}

// Started together they are of the same second, or nearly so.
TEST(RunFolder, RunsOfTheSameSecondHaveTheirOwn) {
  const TemporaryDirectory folder;
  ProcessOptions options;
  options.directory = folder.path();
  std::vector<std::unique_ptr<Process>> runs;
  for (int i = 0; i < 3; ++i) runs.push_back(std::make_unique<Process>(kRun, options));
  for (auto& run : runs) {
    const ProcessResult result = run->wait();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
  }
  std::set<fs::path> whole;
  for (const auto& entry : fs::directory_iterator(folder.path() / "runs"))
    if (fs::exists(entry.path() / "summary.json")) whole.insert(entry.path());
  EXPECT_EQ(whole.size(), 3U);
}

}  // namespace
}  // namespace grapevine
