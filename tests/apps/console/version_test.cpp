#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <utility>

#include "actors/protocol/build_version.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace {

namespace fs = std::filesystem;

TEST(Version, IsThatOfTheBuildWithADigestOfItsMessages) {
  const ProcessResult result = run_process({"--version"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "grapevine " + std::string(build_version()) + "\n");
  EXPECT_TRUE(
      std::regex_match(build_version(), std::regex(R"(\d+\.\d+\.\d+ \(messages [0-9a-f]{8}\))")))
      << build_version();
}

// The source that the build makes of files with these contents.
class DigestFiles : public testing::Test {
 protected:
  std::string made_of(const std::string& one, const std::string& other) {
    const fs::path output = folder_.path() / "made.cpp";
    std::string files;
    for (const auto& [name, content] : {std::pair("one.hpp", one), std::pair("other.hpp", other)}) {
      std::ofstream(folder_.path() / name) << content;
      files += (files.empty() ? "" : "|") + (folder_.path() / name).string();
    }
    const std::string script = std::string(GRAPEVINE_SOURCE_DIR) + "/cmake/digest_files.cmake";
    ProcessOptions options;
    options.program = "/bin/sh";  // which looks on PATH
    const ProcessResult result = run_process(
        {"-c", "exec cmake \"$@\"", "sh", "-DOUTPUT=" + output.string(), "-DHEADER=a.hpp",
         "-DFUNCTION=f", "-DVERSION=1.2.3", "-DFILES=" + files, "-P", script},
        options);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    std::ifstream source(output);
    return {std::istreambuf_iterator<char>(source), {}};
  }

 private:
  const TemporaryDirectory folder_;
};

TEST_F(DigestFiles, ChangesWithEachOfThem) {
  const std::string made = made_of("struct Join {};", "struct Leave {};");
  EXPECT_NE(made.find("return \"1.2.3 (messages "), std::string::npos) << made;
  EXPECT_EQ(made_of("struct Join {};", "struct Leave {};"), made);
  EXPECT_NE(made_of("struct Join { int a; };", "struct Leave {};"), made);
  EXPECT_NE(made_of("struct Join {};", "struct Leave { int a; };"), made);
}

}  // namespace
}  // namespace grapevine
