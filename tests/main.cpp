// Entry point of every test binary: one thread per operation, so that results do not depend on the
// number of cores, and a folder of its own for testing::TempDir(), as test binaries run side by
// side.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

namespace {

class OwnTempDir {
 public:
  OwnTempDir()
      : path_((std::filesystem::temp_directory_path() / "grapevine-tests-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) {
      std::perror(path_.c_str());
      path_.clear();
    } else {
      ::setenv("TEST_TMPDIR", (path_ + "/").c_str(), 1);
    }
  }
  ~OwnTempDir() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  OwnTempDir(const OwnTempDir&) = delete;
  OwnTempDir& operator=(const OwnTempDir&) = delete;

 private:
  std::string path_;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const OwnTempDir folder;
  at::set_num_threads(1);
  return RUN_ALL_TESTS();
}
