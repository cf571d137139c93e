// Folders that are replaced as a whole.
#include "apps/node/new_folder.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>

#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace new_folder_test {

namespace fs = std::filesystem;

class NewFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* host : {"a", "b"}) fs::create_directories(target_ / host);
    write(target_ / "a" / "key", "old");
    write(target_ / "notes", "mine");
  }
  static void write(const fs::path& file, const std::string& text) { std::ofstream(file) << text; }
  // Has the file a/key alone.
  Expected<NewFolder> make_new() const {
    auto made = NewFolder::make(target_, true);
    if (!made) return made;
    fs::create_directory(made->path() / "a");
    write(made->path() / "a" / "key", "new");
    return made;
  }
  std::set<std::string> names() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_.path()))
      names.insert(entry.path().filename().string());
    return names;
  }
  static unsigned mode_of(const fs::path& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
    return status.st_mode & 07777U;
  }
  // As a process that is killed before its commit.
  void abandon() const {
    const pid_t child = ::fork();
    if (child == 0) {
      const auto made = make_new();
      ::kill(::getpid(), SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }

  const TemporaryDirectory folder_;
  const fs::path target_ = folder_.path() / "tls";
};

TEST_F(NewFolderTest, EachFolderKeepsItsMode) {
  ASSERT_EQ(::chmod(target_.c_str(), 0750), 0);
  ASSERT_EQ(::chmod((target_ / "a").c_str(), 02710), 0);
  ASSERT_EQ(::chmod((target_ / "b").c_str(), 0701), 0);
  auto made = make_new();
  ASSERT_TRUE(made.ok()) << made.error().message;
  const auto done = made->commit();
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_TRUE(*done);
  EXPECT_EQ(mode_of(target_), 0750U);
  EXPECT_EQ(mode_of(target_ / "a"), 02710U);
  EXPECT_EQ(mode_of(target_ / "b"), 0701U);
  EXPECT_EQ(read_file(target_ / "a" / "key"), "new");
  EXPECT_EQ(read_file(target_ / "notes"), "mine");
}

TEST_F(NewFolderTest, WhatAKilledProcessHasLeftGoesWithTheNext) {
  abandon();
  EXPECT_EQ(names().size(), 2U);
  write(folder_.path() / ".grapevine-0123456789abcdef.tmp", "a file of another program");
  fs::create_directory(folder_.path() / ".grapevine-notes.tmp");
  const auto made = make_new();
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(names(),
            (std::set<std::string>{"tls", ".grapevine-0123456789abcdef.tmp", ".grapevine-notes.tmp",
                                   made->path().filename().string()}));
}

TEST_F(NewFolderTest, AnotherProcessThatLivesIsNotDisturbed) {
  auto first = make_new();
  ASSERT_TRUE(first.ok()) << first.error().message;
  {
    const auto second = make_new();
    ASSERT_TRUE(second.ok()) << second.error().message;
    EXPECT_TRUE(fs::exists(first->path() / "a" / "key"));
  }
  EXPECT_TRUE(first->commit().ok());
  EXPECT_EQ(read_file(target_ / "a" / "key"), "new");
}

// NFS and CIFS.
TEST_F(NewFolderTest, WithoutAnExchangeOfFoldersItTakesTwoSteps) {
  for (const int unknown : {EINVAL, ENOSYS, ENOTSUP}) {
    write(target_ / "a" / "key", "old");
    {
      auto made = make_new();
      ASSERT_TRUE(made.ok()) << made.error().message;
      const auto done =
          made->commit([unknown](const fs::path&, const fs::path&) { return unknown; });
      ASSERT_TRUE(done.ok()) << done.error().message;
      EXPECT_FALSE(*done);
    }
    EXPECT_EQ(read_file(target_ / "a" / "key"), "new");
    EXPECT_EQ(read_file(target_ / "notes"), "mine");
    EXPECT_EQ(names(), std::set<std::string>{"tls"});
  }
}

TEST_F(NewFolderTest, AnotherErrorLeavesTheOldFolder) {
  {
    auto made = make_new();
    ASSERT_TRUE(made.ok()) << made.error().message;
    EXPECT_FALSE(made->commit([](const fs::path&, const fs::path&) { return EACCES; }).ok());
  }
  EXPECT_EQ(read_file(target_ / "a" / "key"), "old");
  EXPECT_EQ(names(), std::set<std::string>{"tls"});
}

// A process that is killed between the two steps: nothing clears the old folder.
TEST_F(NewFolderTest, AnInterruptedReplacementIsNamed) {
  const fs::path old = folder_.path() / "tls.grapevine-old";
  fs::rename(target_, old);
  const auto made = NewFolder::make(target_, false);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, Errc::bad_input);
  EXPECT_NE(made.error().message.find("rename '" + old.string() + "' to it"), std::string::npos)
      << made.error().message;
  fs::rename(old, target_);
  EXPECT_TRUE(make_new().ok());
  EXPECT_EQ(read_file(target_ / "a" / "key"), "old");
}

}  // namespace new_folder_test
}  // namespace grapevine
