#include <glob.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "actors/protocol/build_version.hpp"
#include "apps/train/replicas/replica_greeting.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace version_test {

namespace fs = std::filesystem;

TEST(Version, IsThatOfTheBuildWithADigestOfItsMessages) {
  const ProcessResult result = run_process({"--version"});
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out, "grapevine " + std::string(build_version()) + "\n");
  EXPECT_TRUE(
      std::regex_match(build_version(), std::regex(R"(\d+\.\d+\.\d+ \(messages [0-9a-f]{8}\))")))
      << build_version();
}

// Processes of one worker compare it in a field of a fixed length.
TEST(Version, FitsIntoTheGreetingOfAReplica) {
  EXPECT_LE(std::string(build_version()).size(), kReplicaVersionCharacters) << build_version();
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The files of the digest, relative to the root: those that match a pattern of the build script.
std::set<std::string> files_of_digest(const fs::path& root) {
  const std::string script = text_of(root / "CMakeLists.txt");
  std::smatch list;
  if (!std::regex_search(script, list,
                         std::regex(R"(file\(GLOB wire CONFIGURE_DEPENDS ([^)]*)\))")))
    return {};
  std::set<std::string> files;
  std::istringstream patterns(list[1]);
  for (std::string pattern; patterns >> pattern;) {
    glob_t found{};
    EXPECT_EQ(::glob((root / pattern).c_str(), 0, nullptr, &found), 0) << pattern;
    for (std::size_t i = 0; i < found.gl_pathc; ++i)
      files.insert(fs::relative(found.gl_pathv[i], root).generic_string());
    ::globfree(&found);
  }
  return files;
}

// A header with an inspect() defines the bytes of a message.
TEST(Version, TheDigestIsOfEachHeaderThatDefinesMessages) {
  const fs::path root(GRAPEVINE_SOURCE_DIR);
  const std::set<std::string> files = files_of_digest(root);
  const std::regex defines_message(R"(\binspect\(\w)");
  int headers = 0;
  for (const char* folder : {"actors", "apps", "messages", "net"})
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() != ".hpp") continue;
      if (!std::regex_search(text_of(entry.path()), defines_message)) continue;
      const std::string name = fs::relative(entry.path(), root).generic_string();
      EXPECT_EQ(files.count(name), 1U) << name << " is missing in the list of CMakeLists.txt";
      ++headers;
    }
  EXPECT_GE(headers, 8);
  // The packets of replicas are copied as they lie in memory.
  for (const char* name : {"greeting", "frames"})
    EXPECT_EQ(files.count(std::string("apps/train/replicas/replica_") + name + ".hpp"), 1U) << name;
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

}  // namespace version_test
}  // namespace grapevine
