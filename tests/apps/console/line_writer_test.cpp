#include "apps/console/line_writer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace grapevine {
namespace line_writer_test {

void write_text(Console& console, const JobLine& line) {
  (line.to_err ? console.err : console.out) << line.text << '\n';
}

// A reader that takes nothing until it is told to.
class StoppedReader final : public std::stringbuf {
 public:
  void go_on() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      stopped_ = false;
    }
    changed_.notify_all();
  }
  void wait_for_writer() {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return waited_for_; });
  }

 protected:
  std::streamsize xsputn(const char* text, std::streamsize count) override {
    std::unique_lock<std::mutex> lock(mutex_);
    waited_for_ = true;
    changed_.notify_all();
    changed_.wait(lock, [this] { return !stopped_; });
    return std::stringbuf::xsputn(text, count);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopped_ = true;
  bool waited_for_ = false;
};

TEST(LineWriter, WritesEachLineOnceAndInOrder) {
  std::ostringstream out, err;
  Console console{out, err};
  SignalPipe signals;
  bool stop = false;
  std::string expected_out, expected_err;
  {
    LineWriter writer(console, std::size_t{1} << 20, write_text);
    for (int i = 0; i < 3000; ++i) {
      const std::string text = std::to_string(i);
      (i % 3 == 0 ? expected_err : expected_out) += text + "\n";
      writer.add({0, i % 3 == 0, text});
      if (i == 1500) {
        EXPECT_TRUE(writer.drain(signals, stop));
        EXPECT_EQ(out.str(), expected_out);
        EXPECT_EQ(writer.waiting_bytes(), 0U);
      }
    }
  }
  EXPECT_EQ(out.str(), expected_out);
  EXPECT_EQ(err.str(), expected_err);
  EXPECT_FALSE(console.thread_left_behind);
}

TEST(LineWriter, SaysHowManyLinesItLeavesOut) {
  StoppedReader reader;
  std::ostream out(&reader);
  std::ostringstream err;
  Console console{out, err};
  SignalPipe signals;
  LineWriter writer(console, 1000, write_text);
  writer.add({0, false, "first"});
  reader.wait_for_writer();
  for (int i = 0; i < 50; ++i) writer.add({0, false, std::string(500, 'x')});
  writer.add({0, false, "last"});
  EXPECT_LE(writer.waiting_bytes(), 1000U);
  reader.go_on();
  bool stop = false;
  EXPECT_TRUE(writer.drain(signals, stop));
  EXPECT_EQ(reader.str(), "first\n" + std::string(500, 'x') + "\nlast\n");
  EXPECT_EQ(err.str(), "49 lines are left out: they came faster than they could be written\n");
}

// As who sends the lines has to know, which may wait for it: those that are missing count.
TEST(LineWriter, SaysHowManyLinesItIsDoneWith) {
  StoppedReader reader;
  std::ostream out(&reader);
  std::ostringstream err;
  Console console{out, err};
  SignalPipe signals;
  std::vector<std::int64_t> done;
  const std::string line(LineWriter::kDoneBytes, 'x');
  LineWriter writer(console, 4 * line.size(), write_text,
                    [&done](std::int64_t lines) { done.push_back(lines); });
  writer.add({0, false, "first"});
  reader.wait_for_writer();
  for (int i = 0; i < 20; ++i) writer.add({0, false, line});
  reader.go_on();
  bool stop = false;
  EXPECT_TRUE(writer.drain(signals, stop));
  EXPECT_EQ(done, (std::vector<std::int64_t>{18, 19, 20, 21}));
}

// Whoever reads gets all of it, however slowly, also where somebody asks to stop meanwhile.
TEST(LineWriter, ASlowReaderIsWaitedFor) {
  std::ostringstream out, err;
  Console console{out, err};
  SignalPipe signals;
  LineWriter writer(console, std::size_t{1} << 20, [](Console& to, const JobLine& line) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    write_text(to, line);
  });
  std::string expected;
  for (int i = 0; i < 100; ++i) {
    expected += std::to_string(i) + "\n";
    writer.add({0, false, std::to_string(i)});
  }
  std::raise(SIGTERM);
  bool stop = false;
  EXPECT_TRUE(writer.drain(signals, stop, std::chrono::seconds(120)));
  EXPECT_TRUE(stop);
  EXPECT_EQ(out.str(), expected);
}

// What a thread left behind uses: never freed, as in a process that ends without destructors.
struct Abandoned {
  explicit Abandoned(bool to_err) : console{to_err ? other : stream, to_err ? stream : other} {}
  StoppedReader reader;
  std::ostream stream{&reader};
  std::ostringstream other;
  Console console;
};

TEST(LineWriter, ARequestToStopEndsTheWaitForAReaderThatStandsStill) {
  static auto& kept = *new std::vector<std::unique_ptr<Abandoned>>;
  for (const bool to_err : {false, true}) {
    Abandoned& streams = *kept.emplace_back(std::make_unique<Abandoned>(to_err));
    Console& console = streams.console;
    SignalPipe signals;
    LineWriter writer(console, 1000, write_text);
    writer.add({0, to_err, "line"});
    streams.reader.wait_for_writer();
    std::raise(SIGUSR1);  // asks for a checkpoint, not for an end
    std::raise(SIGTERM);
    bool stop = false;
    EXPECT_FALSE(writer.drain(signals, stop, std::chrono::milliseconds(50)));
    EXPECT_TRUE(stop);
    EXPECT_TRUE(console.thread_left_behind);
    EXPECT_EQ(console.out_stuck, !to_err);
    EXPECT_EQ(console.err_stuck, to_err);
  }
}

}  // namespace line_writer_test
}  // namespace grapevine
