#include "apps/plot/run_folder.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace grapevine {
namespace run_folder_test {

namespace fs = std::filesystem;
using Names = std::vector<std::string>;

Names legend(const std::vector<std::pair<std::string, std::string>>& runs) {
  std::vector<PlottedRun> all;
  for (const auto& [algorithm, folder] : runs) all.push_back({folder, folder, algorithm, ""});
  return legend_names(all);
}

TEST(LegendNames, AreAlgorithmAndFolder) {
  EXPECT_EQ(legend({{"sgp", "runs/first"}, {"ar", "/x/second/"}}),
            (Names{"sgp: first", "ar: second"}));
  EXPECT_EQ(legend({{"sgp", "runs/sgp"}, {"", "runs/ar"}}), (Names{"sgp", "ar"}));
  EXPECT_EQ(legend({{"sgp", "runs/first/../other/."}}), (Names{"sgp: other"}));
}

TEST(LegendNames, AreUnique) {
  EXPECT_EQ(legend({{"sgp", "/a/x/run"}, {"sgp", "/b/x/run"}, {"sgp", "/a/y/run"}}),
            (Names{"sgp: a/x/run", "sgp: b/x/run", "sgp: y/run"}));
  EXPECT_EQ(legend({{"ar", "/run"}, {"ar", "/a/run"}}), (Names{"ar: /run", "ar: a/run"}));
}

class PlottedFolder : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / "run_folder_test";
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }

  std::string make(const std::string& name, const std::string& file, const std::string& text) {
    fs::create_directories(root_ / name);
    std::ofstream(root_ / name / "metrics.csv") << "";
    if (!file.empty()) std::ofstream(root_ / name / file) << text;
    return (root_ / name).string();
  }
  std::string refusal(const std::vector<std::string>& given) {
    const auto runs = find_runs(given);
    EXPECT_FALSE(runs.ok());
    if (runs.ok()) return "";
    EXPECT_EQ(runs.error().code, Errc::bad_input);
    return runs.error().message;
  }

  fs::path root_;
};

TEST_F(PlottedFolder, TheAlgorithmComesFromTheSummaryOrTheJob) {
  const auto runs = find_runs({make("a", "summary.json", R"({"algorithm":"sgp"})"),
                               make("b", "job.toml", "algorithm = 'osgp'\n"), make("c", "", ""),
                               make("d", "summary.json", "{\"algorithm\": 1"),
                               make("e", "job.toml", "algorithm = [")});
  ASSERT_TRUE(runs.ok()) << runs.error().message;
  Names names;
  for (const PlottedRun& run : *runs) names.push_back(run.legend);
  EXPECT_EQ(names, (Names{"sgp: a", "osgp: b", "c", "d", "e"}));
}

TEST_F(PlottedFolder, OtherFoldersAreRefused) {
  const std::string run = make("a", "", "");
  EXPECT_NE(refusal({run + "/none"}).find("no such run"), std::string::npos);
  EXPECT_NE(refusal({run + "/metrics.csv"}).find("is a file"), std::string::npos);
  EXPECT_NE(refusal({root_.string()}).find("is not the folder of a run"), std::string::npos);
  EXPECT_NE(refusal({run, run + "/"}).find("is the same run as " + run), std::string::npos);
  fs::create_directory_symlink(run, root_ / "link");
  EXPECT_NE(refusal({run, (root_ / "link").string()}).find("same run"), std::string::npos);
}

}  // namespace run_folder_test
}  // namespace grapevine
