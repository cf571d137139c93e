// What a run finds in its --out folder, and leaves there.
#include <gtest/gtest.h>

#include <filesystem>

#include "actors/files.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

// What looks half-written may be the checkpoint of a run that writes there at this moment.
TEST(RunFolder, OnlyWhoHasItAloneRemovesWhatKilledRunsLeft) {
  const TemporaryDirectory folder;
  const fs::path stale = folder.path() / "checkpoint" / ".writing-step-9";
  fs::create_directories(stale);
  const std::vector<std::string> run = {
      "train",   "--model", "linear",    "--data", "glyphs:640", "--workers",           "2",
      "--steps", "2",       "--threads", "1",      "--out",      folder.path().string()};
  FolderLock held = lock_folder(folder.path());
  ASSERT_NE(held, nullptr);
  const ProcessResult beside = run_process(run);
  EXPECT_EQ(beside.exit_code, 0) << beside.describe();
  EXPECT_TRUE(fs::exists(stale));
  held.reset();
  const ProcessResult alone = run_process(run);
  EXPECT_EQ(alone.exit_code, 0) << alone.describe();
  EXPECT_FALSE(fs::exists(stale));
}

}  // namespace
}  // namespace grapevine
