#include "apps/plot/gnuplot.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace grapevine {
namespace gnuplot_test {

namespace fs = std::filesystem;

// Programs in the place of gnuplot: shell scripts, whose arguments are -d -c SCRIPT FIGURE.
class Gnuplot : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / "gnuplot_test";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  GnuplotProgram program(const std::string& commands) const {
    const fs::path path = folder_ / "program";
    std::ofstream(path) << "#!/bin/sh\n" << commands << "\n";
    fs::permissions(path, fs::perms::owner_all);
    return {path.string(), std::chrono::seconds(60)};
  }

  fs::path folder_;
};

TEST_F(Gnuplot, GetsTheScriptAndWritesTheFigure) {
  const auto figure = run_gnuplot("a\nb\n", program("echo \"$1 $2\" >\"$4\"; cat \"$3\" >>\"$4\""));
  ASSERT_TRUE(figure.ok()) << figure.error().message;
  EXPECT_EQ(*figure, "-d -c\na\nb\n");
}

TEST_F(Gnuplot, LeavesNothingBehind) {
  const std::string names = (folder_ / "names").string();
  ASSERT_TRUE(
      run_gnuplot("", program("echo \"$3\" >'" + names + "'; echo \"$4\" >>'" + names + "'")).ok());
  std::ifstream file(names);
  int count = 0;
  for (std::string name; std::getline(file, name); ++count) {
    EXPECT_EQ(name.front(), '/') << "gnuplot takes '|' at the front of a name for a command";
    EXPECT_FALSE(fs::exists(name)) << name;
  }
  EXPECT_EQ(count, 2);
}

TEST_F(Gnuplot, ItsErrorIsPassedOn) {
  const auto failed =
      run_gnuplot("", program("echo 'plot x' >&2; echo '   ^' >&2; echo 'line 7: no' >&2; exit 1"));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Errc::failed);
  EXPECT_EQ(failed.error().message, "gnuplot could not draw the figure: line 7: no");
  const auto killed = run_gnuplot("", program("kill -9 $$"));
  ASSERT_FALSE(killed.ok());
  EXPECT_NE(killed.error().message.find("SIGKILL"), std::string::npos) << killed.error().message;
}

TEST_F(Gnuplot, IsKilledAfterItsTime) {
  GnuplotProgram slow = program("exec sleep 1000");
  slow.timeout = std::chrono::milliseconds(200);
  const auto drawn = run_gnuplot("", slow);
  ASSERT_FALSE(drawn.ok());
  EXPECT_EQ(drawn.error().code, Errc::timeout);
  EXPECT_NE(drawn.error().message.find("within 0.2 s"), std::string::npos) << drawn.error().message;
}

TEST_F(Gnuplot, AMissingProgramNamesItsPackage) {
  for (const std::string& name : {std::string("no-such-gnuplot"), (folder_ / "none").string()}) {
    const auto found = find_gnuplot({name, {}});
    ASSERT_FALSE(found.ok());
    EXPECT_EQ(found.error().code, Errc::unavailable);
    EXPECT_NE(found.error().message.find("gnuplot-nox"), std::string::npos);
  }
  EXPECT_TRUE(find_gnuplot({"sh", {}}).ok());
}

}  // namespace gnuplot_test
}  // namespace grapevine
