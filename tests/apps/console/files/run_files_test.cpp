#include "apps/console/files/run_files.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "apps/console/json_text.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace run_files_test {

namespace fs = std::filesystem;

void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

TEST(RunFiles, ASummaryIsAnObject) {
  const TemporaryDirectory folder;
  EXPECT_FALSE(is_run(folder.path()));
  EXPECT_FALSE(run_summary(folder.path()).has_value());
  for (const char* damaged : {"", "{", "[1]", "3"}) {
    write(folder.path() / "summary.json", damaged);
    EXPECT_FALSE(run_summary(folder.path()).has_value()) << damaged;
  }
  write(folder.path() / "summary.json", "{\"steps\": 4}");
  const auto summary = run_summary(folder.path());
  ASSERT_TRUE(summary.has_value());
  EXPECT_EQ(summary->at("steps"), 4);
  EXPECT_TRUE(is_run(folder.path()));
}

TEST(RunFiles, OnlySmallRegularFilesAreRead) {
  const TemporaryDirectory folder;
  EXPECT_EQ(run_file_text(folder.path() / "none"), "");
  EXPECT_EQ(run_file_text(folder.path()), "");
  write(folder.path() / "job.toml", "steps = 4\n");
  EXPECT_EQ(run_file_text(folder.path() / "job.toml"), "steps = 4\n");
  fs::resize_file(folder.path() / "job.toml", (std::uintmax_t{1} << 24) + 1);
  EXPECT_EQ(run_file_text(folder.path() / "job.toml"), "");
}

TEST(JsonText, NumbersThatJsonLacksAreNull) {
  EXPECT_EQ(json_number(0.5), 0.5);
  EXPECT_TRUE(json_number(std::nan("")).is_null());
  EXPECT_TRUE(json_number(-HUGE_VAL).is_null());
}

}  // namespace run_files_test
}  // namespace grapevine
