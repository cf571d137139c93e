#include "apps/train/resume/saved_job.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "actors/record/files.hpp"
#include "apps/train/job_file.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace saved_job_test {

namespace fs = std::filesystem;

// Its job.toml states its name.
void make_checkpoint(const fs::path& folder) {
  fs::create_directories(folder);
  std::ofstream(folder / "job.json") << "{}";
  std::ofstream(folder / kJobFileName)
      << "# Grapevine 1\nout = \"" << folder.filename().string() << "\"\n";
}

// A run writes checkpoints meanwhile: the text is that of the file which is named.
TEST(SavedJob, IsThatOfOneCheckpoint) {
  const TemporaryDirectory folder;
  const fs::path checkpoints = folder.path() / "checkpoint";
  for (const char* name : {"step-1", "step-2"}) make_checkpoint(checkpoints / name);
  ASSERT_TRUE(replace_symlink_atomically("step-1", checkpoints / "latest"));
  std::atomic<bool> is_over{false};
  std::thread run([&] {
    for (int i = 0; !is_over; ++i)
      static_cast<void>(
          replace_symlink_atomically(i % 2 == 0 ? "step-2" : "step-1", checkpoints / "latest"));
  });
  for (int i = 0; i < 200; ++i) {
    const auto saved = find_saved_job(folder.path().string());
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    ASSERT_TRUE(saved->has_value());
    const std::string name = fs::path((*saved)->path).parent_path().filename().string();
    ASSERT_NE((*saved)->text.find("\"" + name + "\""), std::string::npos) << (*saved)->path << "\n"
                                                                          << (*saved)->text;
  }
  is_over = true;
  run.join();
}

// The options are those of the text that was found, whatever becomes of its file.
TEST(SavedJob, IsReadOnce) {
  const TemporaryDirectory folder;
  make_checkpoint(folder.path() / "step-1");
  const auto saved = find_saved_job((folder.path() / "step-1").string());
  ASSERT_TRUE(saved.ok() && saved->has_value());
  std::ofstream((*saved)->path) << "out = \"another\"\n";
  CLI::App app;
  TrainOptions options;
  declare_train_options(app, options);
  options.job_file = (*saved)->path;
  options.job_text = (*saved)->text;
  const auto read = read_job_file(app, options);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(options.out, "step-1");
}

// The parser of TOML would need stack for each of them.
TEST(SavedJob, IsRefusedWithTooManyDots) {
  const TemporaryDirectory folder;
  make_checkpoint(folder.path() / "step-1");
  std::ofstream(folder.path() / "step-1" / kJobFileName) << "# Grapevine 1\n"
                                                         << std::string(100'000, '.') << " = 1\n";
  const auto saved = find_saved_job((folder.path() / "step-1").string());
  ASSERT_FALSE(saved.ok());
  EXPECT_NE(saved.error().message.find("job.toml:2: more than 1000 dots"), std::string::npos)
      << saved.error().message;
}

TEST(SavedJob, IsNoneWithoutACheckpoint) {
  const TemporaryDirectory folder;
  for (const fs::path& path : {folder.path(), folder.path() / "missing"}) {
    const auto saved = find_saved_job(path.string());
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_FALSE(saved->has_value()) << path;
  }
}

}  // namespace saved_job_test
}  // namespace grapevine
