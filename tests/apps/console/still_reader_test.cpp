// Runs whose reader, or whose file, takes nothing any more.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace still_reader_test {

namespace fs = std::filesystem;

// A pipe whose reading end is held and never read.
class StillPipe {
 public:
  explicit StillPipe(const fs::path& path) : path_(path.string()) {
    EXPECT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    descriptor_ = ::open(path_.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    EXPECT_GE(descriptor_, 0);
  }
  ~StillPipe() { ::close(descriptor_); }
  StillPipe(const StillPipe&) = delete;
  StillPipe& operator=(const StillPipe&) = delete;

  // Until it takes no more.
  void fill() const {
    const std::string page(4096, 'x');
    while (::write(descriptor_, page.data(), page.size()) > 0) {
    }
  }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  int descriptor_ = -1;
};

// A terminal that nobody reads. A pipe is refused where a run writes its rows; a terminal, behind a
// link, is not, and it takes no more than some 64 KiB.
class StillTerminal {
 public:
  explicit StillTerminal(const fs::path& link) {
    master_ = ::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    EXPECT_GE(master_, 0);
    EXPECT_EQ(::grantpt(master_), 0);
    EXPECT_EQ(::unlockpt(master_), 0);
    const char* name = ::ptsname(master_);
    EXPECT_NE(name, nullptr);
    if (name == nullptr) return;
    slave_ = ::open(name, O_RDWR | O_NOCTTY | O_CLOEXEC);
    EXPECT_GE(slave_, 0);
    fs::create_symlink(name, link);
  }
  ~StillTerminal() {
    ::close(slave_);
    ::close(master_);
  }
  StillTerminal(const StillTerminal&) = delete;
  StillTerminal& operator=(const StillTerminal&) = delete;

  bool is_full() const {
    pollfd descriptor{slave_, POLLOUT, 0};
    return ::poll(&descriptor, 1, 0) == 0;
  }

 private:
  int master_ = -1;
  int slave_ = -1;
};

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 1200 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  return condition();
}

std::vector<std::string> endless_run(const fs::path& out) {
  return {"train",     "--model", "linear",       "--data",    "glyphs:640",
          "--workers", "2",       "--batch-size", "16",        "--steps",
          "10000000",  "--out",   out.string(),   "--threads", "1",
          "--trace",   "off",     "--validate",   "end",       "--checkpoint-every",
          "0"};
}

// A pager on its first page, or a stopped terminal: the run goes on, and it ends when it is told
// to.
TEST(StillReader, DoesNotHoldTrainingUpNorSignals) {
  for (const std::string streams : {"2>\"$0\"", ">\"$0\" 2>&1"}) {
    SCOPED_TRACE(streams);
    const TemporaryDirectory folder;
    const StillPipe pipe(folder.path() / "pipe");
    pipe.fill();
    const fs::path out = folder.path() / "run";
    ProcessOptions shell;
    shell.program = "/bin/sh";
    Process process(
        with({"-c", "exec \"$@\" " + streams, pipe.path(), GRAPEVINE_EXECUTABLE}, endless_run(out)),
        shell);
    EXPECT_TRUE(eventually([&] {
      const std::string rows = read_file(out / "metrics.csv");
      return std::count(rows.begin(), rows.end(), '\n') > 20;
    })) << "it does not train";
    process.signal(SIGTERM);
    const ProcessResult result = process.wait();
    EXPECT_FALSE(result.timed_out) << result.describe();
    EXPECT_EQ(result.signal, 0) << result.describe();
    EXPECT_TRUE(fs::exists(out / "model.pt"));
    EXPECT_TRUE(fs::exists(out / "checkpoint/latest"));
    EXPECT_EQ(summary_of(out).value("interrupted", false), true);
    const std::string rows = read_file(out / "metrics.csv");
    EXPECT_EQ(rows.back(), '\n');
  }
}

// As a file system that hangs would.
TEST(StillReader, AFileThatTakesNothingDoesNotHoldTheEndUp) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  fs::create_directory(out);
  const StillTerminal rows(out / "metrics.csv");
  Process process(endless_run(out));
  ASSERT_TRUE(eventually([&] { return rows.is_full(); })) << "rows come";
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  process.signal(SIGTERM);
  const ProcessResult result = process.wait();
  EXPECT_FALSE(result.timed_out) << result.describe();
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  const std::string last = ProcessResult::last_line(result.err);
  EXPECT_EQ(last.rfind("error: ", 0), 0U) << result.describe();
  EXPECT_NE(last.find("metrics.csv' is not complete"), std::string::npos) << result.describe();
  EXPECT_TRUE(fs::exists(out / "model.pt"));
  EXPECT_TRUE(fs::exists(out / "summary.json"));
}

}  // namespace still_reader_test
}  // namespace grapevine
