// What `train` says on its streams, by itself.
#include "apps/console/run_display.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <sstream>
#include <streambuf>
#include <thread>

#include <spdlog/spdlog.h>

namespace grapevine {
namespace run_display_test {

Timestamp no_time() { return Timestamp{0}; }

ProgressOptions plain_progress() {
  ProgressOptions options;
  options.label = "sgp";
  options.now = no_time;
  return options;
}

bool never() { return false; }

TEST(RunDisplay, SaysEverythingInOrder) {
  std::ostringstream out, err;
  Console console{out, err};
  {
    RunDisplay display(console);
    display.say_error("begin\n");
    display.begin_progress(plain_progress());
    spdlog::warn("a warning");
    display.say_result("table\n");
    EXPECT_TRUE(display.drain(never));
  }
  EXPECT_EQ(out.str(), "table\n");
  const std::string said = err.str();
  EXPECT_EQ(said.rfind("begin\n", 0), 0U) << said;
  EXPECT_NE(said.find("a warning\n"), std::string::npos) << said;
  EXPECT_FALSE(console.thread_left_behind);
}

// However soon the end comes after it.
TEST(RunDisplay, TheLastLineOfTheProgressIsNeverLost) {
  for (int i = 0; i < 200; ++i) {
    std::ostringstream both;
    Console console{both, both};
    RunDisplay display(console);
    display.begin_progress(plain_progress());
    RunProgress progress;
    for (progress.step = 1; progress.step <= 20; ++progress.step) display.show(progress);
    progress.step = 20;
    progress.steps = 20;
    display.show(progress);
    display.end_progress(true);
    display.say_result("table\n");
    ASSERT_TRUE(display.drain(never));
    const std::string said = both.str();
    const auto last = said.find("20/20"), table = said.find("table\n");
    ASSERT_NE(last, std::string::npos) << said;
    ASSERT_NE(table, std::string::npos) << said;
    EXPECT_LT(last, table) << said;
  }
}

// Takes nothing until it is let go.
class StillBuffer : public std::streambuf {
 public:
  void let_go() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      open_ = true;
    }
    changed_.notify_all();
  }
  void wait_until_gone() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, std::chrono::seconds(60), [this] { return !waiting_; });
  }

 protected:
  std::streamsize xsputn(const char*, std::streamsize count) override {
    std::unique_lock<std::mutex> lock(mutex_);
    waiting_ = true;
    changed_.wait(lock, [this] { return open_; });
    waiting_ = false;
    changed_.notify_all();
    return count;
  }
  int_type overflow(int_type c) override { return traits_type::not_eof(c); }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  bool waiting_ = false;
};

TEST(RunDisplay, AReaderThatStandsStillHoldsNobodyUp) {
  // They outlive the thread that is left behind.
  static StillBuffer still;
  static std::ostream err(&still);
  static std::ostringstream out;
  static Console console{out, err};
  {
    RunDisplay display(console);
    for (int i = 0; i < 100'000; ++i) display.say_error(std::string(100, 'x') + "\n");
    display.begin_progress(plain_progress());
    for (RunProgress progress; progress.step < 100'000; ++progress.step) display.show(progress);
    display.say_result("table\n");
    EXPECT_FALSE(
        display.drain([] { return true; }, std::chrono::hours(1), std::chrono::milliseconds(100)));
  }
  EXPECT_TRUE(console.err_stuck);
  EXPECT_FALSE(console.out_stuck);
  EXPECT_TRUE(console.thread_left_behind);
  still.let_go();
  still.wait_until_gone();
  EXPECT_EQ(out.str(), "") << "nothing more once it is left behind";
}

}  // namespace run_display_test
}  // namespace grapevine
