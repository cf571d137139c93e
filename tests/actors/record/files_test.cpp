#include "actors/record/files.hpp"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/apps/process.hpp"
#include "tests/file_size_limit.hpp"
#include "tests/read_file.hpp"

namespace grapevine {
namespace files_test {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;

std::size_t entries(const fs::path& folder) {
  return static_cast<std::size_t>(
      std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

// One line: what, where, what to do.
void expect_names(const Error& error, const fs::path& path, const std::string& reason) {
  EXPECT_THAT(error.message, HasSubstr("'" + path.string() + "'"));
  EXPECT_THAT(error.message, HasSubstr(reason));
  EXPECT_THAT(error.message, HasSubstr("; "));
  EXPECT_THAT(error.message, Not(HasSubstr("\n")));
}

class FilesTest : public ::testing::Test {
 protected:
  const TemporaryDirectory folder_;
  const fs::path root_ = folder_.path();
};

TEST_F(FilesTest, WritesAnyBytesOfAnyLength) {
  std::mt19937 rng(7);
  SCOPED_TRACE("seed 7");
  for (const std::size_t size : {0u, 1u, 65535u, 65536u, 65537u, 1000003u}) {
    std::string bytes(size, '\0');
    for (char& c : bytes) c = static_cast<char>(rng());
    const auto written = write_file_atomically(root_ / "file", bytes);
    ASSERT_TRUE(written.ok()) << written.error().message;
    EXPECT_EQ(read_file(root_ / "file"), bytes) << size;
  }
  EXPECT_EQ(entries(root_), 1u);
}

TEST_F(FilesTest, StreamedWritesOfMixedSizesArriveInOrder) {
  std::mt19937 rng(11);
  SCOPED_TRACE("seed 11");
  auto file = AtomicFile::create(root_ / "file");
  ASSERT_TRUE(file.ok());
  std::string expected;
  for (int i = 0; i < 300; ++i) {
    const std::string piece(rng() % 3000 + (i % 50 == 0 ? 200000 : 0),
                            static_cast<char>('a' + i % 26));
    expected += piece;
    file->stream() << piece;
    if (i % 7 == 0) file->stream().flush();
  }
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(read_file(root_ / "file"), expected);
}

TEST_F(FilesTest, NothingStandsUnderTheFinalNameBeforeCommit) {
  ASSERT_TRUE(write_file_atomically(root_ / "old", "old").ok());
  for (const char* name : {"new", "old"}) {
    const bool existed = fs::exists(root_ / name);
    {
      auto file = AtomicFile::create(root_ / name);
      ASSERT_TRUE(file.ok());
      file->stream() << "half of it" << std::flush;
      EXPECT_EQ(fs::exists(root_ / name), existed);
      EXPECT_EQ(read_file(root_ / name), existed ? "old" : "");
    }
    EXPECT_EQ(fs::exists(root_ / name), existed);
  }
  EXPECT_EQ(entries(root_), 1u) << "a temporary file stayed";
}

TEST_F(FilesTest, AProcessKilledBeforeCommitLeavesNoFinalName) {
  const auto killed_while_writing = [&] {
    auto file = AtomicFile::create(root_ / "file");
    file->stream() << "half of it" << std::flush;
    ::raise(SIGKILL);
  };
  EXPECT_EXIT(killed_while_writing(), ::testing::KilledBySignal(SIGKILL), "");
  EXPECT_FALSE(fs::exists(root_ / "file"));
  // What the dead process left does not stand in the way.
  ASSERT_TRUE(write_file_atomically(root_ / "file", "whole").ok());
  EXPECT_EQ(read_file(root_ / "file"), "whole");
}

TEST_F(FilesTest, ATemporaryNameThatIsTakenIsLeftAlone) {
  std::string name;
  {
    auto file = AtomicFile::create(root_ / "file");
    ASSERT_TRUE(file.ok());
    name = file->temporary_path().filename().string();
  }
  // Names end in "-<count>.tmp": this takes the next ones, as a process of the same id on another
  // host of a shared file system may have done.
  const std::size_t dash = name.rfind('-');
  const int count = std::stoi(name.substr(dash + 1));
  for (int next = count + 1; next < count + 4; ++next) {
    std::ofstream(root_ / (name.substr(0, dash + 1) + std::to_string(next) + ".tmp")) << "theirs";
  }
  ASSERT_TRUE(write_file_atomically(root_ / "file", "ours").ok());
  EXPECT_EQ(read_file(root_ / "file"), "ours");
  EXPECT_EQ(entries(root_), 4u);
  for (const auto& entry : fs::directory_iterator(root_)) {
    if (entry.path().extension() == ".tmp") {
      EXPECT_EQ(read_file(entry.path()), "theirs");
    }
  }
}

TEST_F(FilesTest, ReadersSeeOneWholeVersion) {
  const std::string a(100000, 'a');
  const std::string b(100000, 'b');
  ASSERT_TRUE(write_file_atomically(root_ / "file", a).ok());
  std::thread writer([&] {
    for (int i = 0; i < 50; ++i) {
      EXPECT_TRUE(write_file_atomically(root_ / "file", i % 2 == 0 ? b : a).ok());
    }
  });
  for (int i = 0; i < 200; ++i) {
    const std::string seen = read_file(root_ / "file");
    EXPECT_TRUE(seen == a || seen == b) << "a mixture of " << seen.size() << " bytes";
  }
  writer.join();
}

TEST_F(FilesTest, ThreadsWritingOneNameDoNotDisturbEachOther) {
  std::vector<std::thread> writers;
  for (int t = 0; t < 4; ++t) {
    writers.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(write_file_atomically(root_ / "file", std::string(5000, 'a' + t)).ok());
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string last = read_file(root_ / "file");
  EXPECT_EQ(last, std::string(5000, last.at(0)));
  EXPECT_EQ(entries(root_), 1u);
}

TEST_F(FilesTest, WritersThatWantANameUseTheTemporaryOne) {
  auto file = AtomicFile::create(root_ / "model.pt");
  ASSERT_TRUE(file.ok());
  std::ofstream(file->temporary_path()) << "by name";
  EXPECT_FALSE(fs::exists(root_ / "model.pt"));
  ASSERT_TRUE(file->commit().ok());
  EXPECT_EQ(read_file(root_ / "model.pt"), "by name");
}

TEST_F(FilesTest, ASecondCommitIsAnError) {
  auto file = AtomicFile::create(root_ / "file");
  ASSERT_TRUE(file->commit().ok());
  EXPECT_FALSE(file->commit().ok());
  EXPECT_TRUE(fs::exists(root_ / "file"));
}

TEST_F(FilesTest, LongestPossibleNameWorks) {
  const fs::path path = root_ / std::string(255, 'n');
  const auto written = write_file_atomically(path, "x");
  EXPECT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(read_file(path), "x");
}

TEST_F(FilesTest, RelativeNamesAreBesideTheWorkingDirectory) {
  const fs::path before = fs::current_path();
  fs::current_path(root_);
  const auto written = write_file_atomically("plain", "x");
  fs::current_path(before);
  EXPECT_TRUE(written.ok());
  EXPECT_EQ(read_file(root_ / "plain"), "x");
}

TEST_F(FilesTest, RightsOfTheOldFileStayAndNewOnesFollowTheMask) {
  ASSERT_TRUE(write_file_atomically(root_ / "file", "1").ok());
  const mode_t mask = ::umask(0);
  ::umask(mask);
  EXPECT_EQ(static_cast<mode_t>(fs::status(root_ / "file").permissions()), 0666 & ~mask);
  fs::permissions(root_ / "file", fs::perms(0640));
  ASSERT_TRUE(write_file_atomically(root_ / "file", "2").ok());
  EXPECT_EQ(fs::status(root_ / "file").permissions(), fs::perms(0640));
}

TEST_F(FilesTest, ALinkStaysALink) {
  ASSERT_TRUE(write_file_atomically(root_ / "real", "1").ok());
  fs::create_symlink("real", root_ / "link");
  ASSERT_TRUE(write_file_atomically(root_ / "link", "2").ok());
  EXPECT_TRUE(fs::is_symlink(root_ / "link"));
  EXPECT_EQ(read_file(root_ / "real"), "2");
}

TEST_F(FilesTest, UnwritablePlacesAreNamed) {
  ASSERT_TRUE(write_file_atomically(root_ / "file", "x").ok());
  struct Case {
    fs::path path;
    std::string reason;
  };
  const std::vector<Case> cases{{root_ / "file" / "below", "Not a directory"},
                                {root_ / "missing" / "file", "No such file or directory"},
                                {root_, "Is a directory"},
                                {fs::path(root_.string() + "/"), "Is a directory"},
                                {"/proc/grapevine", "No such file or directory"},
                                {root_ / std::string(256, 'n'), "name too long"},
                                {"", "No such file or directory"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.path);
    const auto written = write_file_atomically(c.path, "bytes");
    ASSERT_FALSE(written.ok());
    EXPECT_EQ(written.error().code, Errc::io);
    expect_names(written.error(), c.path, c.reason);
  }
  EXPECT_EQ(entries(root_), 1u);
}

TEST_F(FilesTest, AWriteThatFailsHalfWayKeepsTheOldFile) {
  ASSERT_TRUE(write_file_atomically(root_ / "file", "old").ok());
  for (const std::size_t size : {2000u, 100000u, 3000000u}) {
    const FileSizeLimit limit(1000);
    const auto written = write_file_atomically(root_ / "file", std::string(size, 'x'));
    ASSERT_FALSE(written.ok()) << size;
    expect_names(written.error(), root_ / "file", "File too large");
  }
  EXPECT_EQ(read_file(root_ / "file"), "old");
  EXPECT_EQ(entries(root_), 1u) << "a temporary file stayed";
}

// What follows a full disk is appended where the last whole flush ended.
TEST_F(FilesTest, AStreamGoesOnWhereItsLastFlushEnded) {
  for (const std::size_t size : {2000u, 300000u}) {
    auto file = AtomicFile::create(root_ / "file");
    ASSERT_TRUE(file.ok());
    file->stream() << "first\n";
    ASSERT_TRUE(file->flush().ok());
    {
      const FileSizeLimit limit(1000);
      file->stream() << std::string(size, 'x');
      const auto flushed = file->flush();
      ASSERT_FALSE(flushed.ok()) << size;
      expect_names(flushed.error(), root_ / "file", "File too large");
    }
    file->stream() << "second\n";
    ASSERT_TRUE(file->flush().ok());
    ASSERT_TRUE(file->commit().ok());
    EXPECT_EQ(read_file(root_ / "file"), "first\nsecond\n");
  }
}

TEST_F(FilesTest, AFullDeviceIsAnErrorWhateverTheSize) {
  // A node of its own: a defect that replaces it must not cost the machine its /dev/full.
  const fs::path full = root_ / "full";
  if (::mknod(full.c_str(), S_IFCHR | 0600, ::makedev(1, 7)) != 0 ||
      !std::ofstream(full, std::ios::app)) {
    GTEST_SKIP() << "making a device node takes root and a file system that allows it";
  }
  for (const std::size_t size : {1u, 100000u}) {
    const auto written = write_file_atomically(full, std::string(size, 'x'));
    ASSERT_FALSE(written.ok()) << size;
    expect_names(written.error(), full, "No space left on device");
    EXPECT_THAT(written.error().message, HasSubstr("free some space"));
  }
  EXPECT_TRUE(fs::is_character_file(full));
}

TEST_F(FilesTest, PipesAreWrittenDirectly) {
  const fs::path pipe = root_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  // Both ends at once: neither open() waits, also where the pipe would not be written at all.
  const int both = ::open(pipe.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
  ASSERT_GE(both, 0);
  const auto written = write_file_atomically(pipe, "through a pipe");
  std::array<char, 100> received{};
  const ssize_t count = ::read(both, received.data(), received.size());
  ::close(both);
  EXPECT_TRUE(written.ok()) << written.error().message;
  EXPECT_EQ(std::string(received.data(), std::max<ssize_t>(0, count)), "through a pipe");
  EXPECT_TRUE(fs::is_fifo(pipe));
}

TEST_F(FilesTest, DirectoriesAreMadeAndProvenWritable) {
  const fs::path deep = root_ / "a" / "b" / "c";
  for (int again = 0; again < 2; ++again) {
    const auto ready = ensure_writable_directory(deep);
    ASSERT_TRUE(ready.ok()) << ready.error().message;
  }
  EXPECT_TRUE(ensure_writable_directory(fs::path(deep.string() + "/")).ok());
  EXPECT_TRUE(fs::is_directory(deep));
  EXPECT_EQ(entries(deep), 0u);
  fs::create_directory_symlink(deep, root_ / "link");
  EXPECT_TRUE(ensure_writable_directory(root_ / "link").ok());
}

TEST_F(FilesTest, ADirectoryOnAFullDiskIsNotWritable) {
  {
    const FileSizeLimit limit(0);
    const auto ready = ensure_writable_directory(root_);
    ASSERT_FALSE(ready.ok());
    expect_names(ready.error(), root_, "File too large");
  }
  EXPECT_EQ(entries(root_), 0u);
  EXPECT_TRUE(ensure_writable_directory(root_).ok());
}

TEST_F(FilesTest, UnwritableDirectoriesAreNamedAsBadInput) {
  ASSERT_TRUE(write_file_atomically(root_ / "file", "x").ok());
  fs::create_symlink("nowhere/at/all", root_ / "dangling");
  const std::vector<fs::path> cases{root_ / "file", root_ / "file" / "below", "/proc/grapevine",
                                    "/proc/self",   root_ / "dangling",       ""};
  for (const fs::path& path : cases) {
    SCOPED_TRACE(path);
    const auto ready = ensure_writable_directory(path);
    ASSERT_FALSE(ready.ok());
    EXPECT_EQ(ready.error().code, Errc::bad_input);
    expect_names(ready.error(), path, "cannot write to the directory");
  }
}

TEST_F(FilesTest, LinksAreReplaced) {
  const fs::path link = root_ / "latest";
  for (const char* target : {"epoch-1", "epoch-2"}) {
    ASSERT_TRUE(replace_symlink_atomically(target, link).ok());
    EXPECT_EQ(fs::read_symlink(link), target);
  }
  ASSERT_TRUE(write_file_atomically(root_ / "file", "x").ok());
  EXPECT_TRUE(replace_symlink_atomically("epoch-2", root_ / "file").ok());
  EXPECT_TRUE(fs::is_symlink(root_ / "file"));
  EXPECT_EQ(entries(root_), 2u);
}

TEST_F(FilesTest, ADirectoryInThePlaceOfALinkIsAnError) {
  fs::create_directory(root_ / "latest");
  const auto replaced = replace_symlink_atomically("epoch-1", root_ / "latest");
  ASSERT_FALSE(replaced.ok());
  expect_names(replaced.error(), root_ / "latest", "Is a directory");
  EXPECT_FALSE(replace_symlink_atomically("x", root_ / "missing" / "latest").ok());
  EXPECT_EQ(entries(root_), 1u);
}

// What a killed run has left goes; what somebody else's is, or is being written, stays.
TEST(StaleFiles, OnlyThoseOfProcessesThatAreGone) {
  const TemporaryDirectory folder;
  Process ended({"--version"});
  const std::string dead = std::to_string(ended.pid());
  ended.wait();
  const std::string alive = std::to_string(::getppid());
  // In a container each process of a row may have the same number.
  const std::vector<std::string> stale = {".grapevine-" + dead + "-0.tmp",
                                          ".grapevine-" + dead + "-17.tmp",
                                          ".grapevine-" + std::to_string(::getpid()) + "-0.tmp"};
  const std::vector<std::string> others = {".grapevine-" + alive + "-0.tmp",
                                           ".grapevine-" + dead + "-0.tmpx",
                                           ".grapevine-" + dead + "-x.tmp",
                                           ".grapevine-" + dead + ".tmp",
                                           ".grapevine--1-0.tmp",
                                           ".grapevine-0-0.tmp",
                                           ".grapevine-99999999999999999999-0.tmp",
                                           "grapevine-" + dead + "-0.tmp",
                                           "metrics.csv",
                                           ".hidden"};
  for (const auto* names : {&stale, &others})
    for (const std::string& name : *names) std::ofstream(folder.path() / name) << "x";
  const std::string kept = ".grapevine-" + dead + "-5.tmp";
  fs::create_directory(folder.path() / kept);  // no file of ours
  remove_stale_files(folder.path());
  for (const std::string& name : stale) EXPECT_FALSE(fs::exists(folder.path() / name)) << name;
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(folder.path() / name)) << name;
  EXPECT_TRUE(fs::exists(folder.path() / kept));
  remove_stale_files(folder.path() / "nowhere");  // is no error
}

TEST(FolderLock, KeepsOthersOutUntilItGoes) {
  const TemporaryDirectory folder;
  FolderLock held = *lock_folder(folder.path());
  ASSERT_NE(held, nullptr);
  const auto refused = lock_folder(folder.path());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Errc::bad_input);
  EXPECT_NE(refused.error().message.find(folder.path().string()), std::string::npos);
  FolderLock copy = held;
  held.reset();
  EXPECT_FALSE(lock_folder(folder.path()).ok());
  copy.reset();
  EXPECT_NE(*lock_folder(folder.path()), nullptr);
  EXPECT_EQ(*lock_folder(folder.path() / "nowhere"), nullptr) << "no folder, no lock, no error";
}

TEST(FolderLock, IsSeenByOthersWhileItIsHeld) {
  const TemporaryDirectory folder;
  EXPECT_FALSE(is_locked(folder.path()));
  FolderLock held = *lock_folder(folder.path());
  EXPECT_TRUE(is_locked(folder.path()));
  EXPECT_FALSE(lock_folder(folder.path()).ok());
  EXPECT_TRUE(is_locked(folder.path())) << "a refused lock changes nothing";
  FolderLock copy = held;
  held.reset();
  EXPECT_TRUE(is_locked(folder.path()));
  copy.reset();
  EXPECT_FALSE(is_locked(folder.path()));
  EXPECT_FALSE(is_locked(folder.path() / "nowhere"));
}

// From now on the kernel gives this thread EINVAL for locks of open files, as if it did not know
// them. False where it has no such filters.
bool forget_locks_of_open_files() {
  static sock_filter rules[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                                BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 4),
                                BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
                                BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, F_OFD_GETLK, 0, 2),
                                BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, F_OFD_SETLKW, 1, 0),
                                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
                                BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(rules), rules};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

TEST(FolderLock, IsSeenWhereTheKernelKnowsNoLocksOfOpenFiles) {
  const TemporaryDirectory folder;
  bool filtered = false;
  std::thread([&] {  // which takes the filter with it
    filtered = forget_locks_of_open_files();
    if (!filtered) return;
    EXPECT_FALSE(is_locked(folder.path()));
    FolderLock held = *lock_folder(folder.path());
    ASSERT_NE(held, nullptr);
    EXPECT_TRUE(is_locked(folder.path()));
    EXPECT_FALSE(lock_folder(folder.path()).ok());
    EXPECT_TRUE(is_locked(folder.path())) << "a refused lock changes nothing";
    held.reset();
    EXPECT_FALSE(is_locked(folder.path()));
    EXPECT_TRUE(lock_folder(folder.path()).ok()) << "a question leaves no lock";
    EXPECT_FALSE(is_locked(folder.path() / "nowhere"));
  })
      .join();
  if (!filtered) GTEST_SKIP() << "the system has no filters of system calls";
}

// Any number of processes may ask while a run starts. `before`: called by the thread that asks.
// The number of times that a lock was refused.
int count_refused_while_asked(int times, const std::function<void()>& before) {
  const TemporaryDirectory folder;
  std::atomic<bool> over{false};
  std::atomic<int> asked{0};
  std::thread asker([&] {
    before();
    for (; !over; ++asked) is_locked(folder.path());
  });
  int refused = 0;
  for (int i = 0; refused == 0 && (i < times || asked < times); ++i)
    refused += lock_folder(folder.path()).ok() ? 0 : 1;
  over = true;
  asker.join();
  return refused;
}

TEST(FolderLock, QuestionsKeepNobodyOut) {
  EXPECT_EQ(count_refused_while_asked(50'000, [] {}), 0);
}

TEST(FolderLock, QuestionsKeepNobodyOutWhereTheKernelKnowsNoLocksOfOpenFiles) {
  bool filtered = false;
  EXPECT_EQ(count_refused_while_asked(10'000, [&] { filtered = forget_locks_of_open_files(); }), 0);
  if (!filtered) GTEST_SKIP() << "the system has no filters of system calls";
}

}  // namespace files_test
}  // namespace grapevine
