#include "apps/console/console.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "messages/check.hpp"

namespace grapevine {
namespace console_test {

RunProgress progress_of(std::int64_t step, std::int64_t steps, std::int64_t samples, double loss) {
  RunProgress progress;
  progress.step = step;
  progress.steps = steps;
  progress.samples = samples;
  progress.loss = loss;
  return progress;
}

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(FormatTest, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.0 kB");
  EXPECT_EQ(format_bytes(1234567), "1.2 MB");
  EXPECT_EQ(format_bytes(12345678), "12.3 MB");
  EXPECT_EQ(format_bytes(123456789), "123 MB");
  EXPECT_EQ(format_bytes(999949), "1.0 MB");
  EXPECT_EQ(format_bytes(99949), "99.9 kB");
  EXPECT_EQ(format_bytes(99950), "100 kB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::uint64_t>::max()), "18.4 EB");
}

TEST(FormatTest, Durations) {
  EXPECT_EQ(format_duration(nanoseconds(0)), "0s");
  EXPECT_EQ(format_duration(nanoseconds(17)), "17ns");
  EXPECT_EQ(format_duration(microseconds(12)), "12µs");
  EXPECT_EQ(format_duration(microseconds(999) + nanoseconds(900)), "1ms");
  EXPECT_EQ(format_duration(milliseconds(250)), "250ms");
  EXPECT_EQ(format_duration(milliseconds(4200)), "4.2s");
  EXPECT_EQ(format_duration(milliseconds(59940)), "59.9s");
  EXPECT_EQ(format_duration(milliseconds(59960)), "1m 00s");
  EXPECT_EQ(format_duration(seconds(63)), "1m 03s");
  EXPECT_EQ(format_duration(milliseconds(3599600)), "1h 00m");
  EXPECT_EQ(format_duration(hours(2) + minutes(5)), "2h 05m");
  EXPECT_EQ(format_duration(hours(76)), "3d 04h");
  EXPECT_EQ(format_duration(-seconds(63)), "-1m 03s");
  EXPECT_THAT(format_duration(Duration::min()), StartsWith("-106751d"));
  EXPECT_THAT(format_duration(Duration::max()), StartsWith("106751d"));
}

TEST(FormatTest, CountsAndRates) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1,000");
  EXPECT_EQ(format_count(-1234567), "-1,234,567");
  EXPECT_EQ(format_count(std::numeric_limits<std::int64_t>::min()), "-9,223,372,036,854,775,808");
  EXPECT_EQ(format_rate(0.4249), "0.42");
  EXPECT_EQ(format_rate(12.34), "12.3");
  EXPECT_EQ(format_rate(999.4), "999");
  EXPECT_EQ(format_rate(999.6), "1.0k");
  EXPECT_EQ(format_rate(1.25e6), "1.2M");
  EXPECT_EQ(format_rate(-1500), "-1.5k");
  EXPECT_EQ(format_rate(NAN), "-");
  EXPECT_EQ(format_number(0.98765, 3), "0.988");
  EXPECT_EQ(format_number(INFINITY, 3), "-");
  EXPECT_EQ(format_number(999999.5, 4), "999999.5000");
  EXPECT_EQ(format_number(1750308602467505143808.0, 4), "1.75e+21");
  EXPECT_EQ(format_number(-std::numeric_limits<double>::max(), 2), "-1.8e+308");
}

TEST(TextTest, WidthCountsColumnsNotBytes) {
  EXPECT_EQ(display_width("plain"), 5);
  EXPECT_EQ(display_width("µs λ₂ ×"), 7);
  EXPECT_EQ(display_width("e\u0301"), 1) << "a combining mark";
  EXPECT_EQ(display_width("日本"), 4);
  EXPECT_EQ(display_width("🍇"), 2);
  EXPECT_EQ(display_width("\xff\xc3"), 2) << "bytes that are no UTF-8";
  EXPECT_EQ(display_width(""), 0);
}

TEST(TextTest, TruncationNeverSplitsACharacterOrExceedsTheWidth) {
  const std::string text = "aµ日e\u0301🍇z\xff";
  for (int columns = 0; columns <= display_width(text) + 1; ++columns) {
    const std::string cut = truncate_to_width(text, columns);
    EXPECT_LE(display_width(cut), columns);
    EXPECT_GE(display_width(cut), std::min(columns, display_width(text)) - 1);
    EXPECT_THAT(text, StartsWith(cut));
  }
  EXPECT_EQ(truncate_to_width("日本", 3), "日");
}

TerminalStyle style_of(bool terminal, std::map<std::string, std::string> environment) {
  return terminal_style(terminal, [&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

TEST(TerminalTest, StyleFollowsTheEnvironment) {
  const TerminalStyle full = style_of(true, {{"TERM", "xterm"}, {"LANG", "en_US.UTF-8"}});
  EXPECT_TRUE(full.redraw && full.color && full.unicode);
  EXPECT_FALSE(style_of(false, {{"TERM", "xterm"}}).redraw);
  EXPECT_FALSE(style_of(false, {{"TERM", "xterm"}}).color);
  EXPECT_FALSE(style_of(true, {{"TERM", "dumb"}}).redraw);
  EXPECT_FALSE(style_of(true, {}).redraw);
  const TerminalStyle plain = style_of(true, {{"TERM", "xterm"}, {"NO_COLOR", "1"}});
  EXPECT_TRUE(plain.redraw);
  EXPECT_FALSE(plain.color);
  EXPECT_TRUE(style_of(true, {{"TERM", "xterm"}, {"NO_COLOR", ""}}).color);
  EXPECT_FALSE(style_of(true, {{"LC_ALL", "C"}, {"LANG", "en_US.UTF-8"}}).unicode);
  EXPECT_TRUE(style_of(true, {{"LC_CTYPE", "C.utf8"}}).unicode);
}

TEST(TerminalTest, AFileIsNoTerminal) {
  const TerminalStyle style = detect_terminal(-1);
  EXPECT_FALSE(style.redraw);
  EXPECT_EQ(style.columns(), 80);
}

TEST(TableTest, AlignsFiguresRightAndTextLeft) {
  Table table({"preset", "time", "sent", "accuracy"});
  table.add_row({"ar", "1m 03s", "1.2 MB", "97.5%"});
  table.add_row({"osgp-λ", "9.5s", "123 kB", "-"});
  EXPECT_EQ(table.to_string(),
            "preset    time    sent  accuracy\n"
            "------  ------  ------  --------\n"
            "ar      1m 03s  1.2 MB     97.5%\n"
            "osgp-λ    9.5s  123 kB         -\n");
}

TEST(TableTest, FiguresAreRecognised) {
  const auto is_right = [](const std::string& cell) {
    Table table({"a rather long header"});
    table.add_row({cell});
    return table.to_string().find("\n  ") != std::string::npos;
  };
  for (const char* cell : {"0", "-1", "+3", "1,234", "1.5e-3", "2E8", "97%", "12µs", "3d 04h",
                           "1.2k samples/s", "4.2 GB/s", "-"}) {
    EXPECT_TRUE(is_right(cell)) << cell;
  }
  for (const char* cell : {"ring", "10.0.0.1:90", "0:1,30:2", "a1", "1.", "--", "e5", "1 2:3"}) {
    EXPECT_FALSE(is_right(cell)) << cell;
  }
}

TEST(TableTest, EveryLineOfAnyTableHasTheSameColumns) {
  std::mt19937 rng(3);
  SCOPED_TRACE("seed 3");
  const std::vector<std::string> words{"", "x", "日本", "µ", "12", "3.5 MB", "🍇 grape"};
  Table table({"日", "b", "long header"});
  for (int r = 0; r < 50; ++r) {
    // A last column of one width keeps the trailing blanks from being trimmed.
    table.add_row({words[rng() % words.size()], words[rng() % words.size()], "................"});
  }
  std::istringstream lines(table.to_string());
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  const int width = display_width(line);
  while (std::getline(lines, line)) EXPECT_EQ(display_width(line), width) << line;
}

TEST(TableTest, CellsCannotSteerTheTerminal) {
  Table table({"name"});
  table.add_row({"\x1b[2J\nnext\r\x7f"});
  EXPECT_EQ(table.to_string(), "name\n-----------\n?[2J?next??\n");
}

TEST(TableTest, HeaderAloneAndWrongRows) {
  Table table({"a", "b"});
  EXPECT_EQ(table.to_string(), "a  b\n-  -\n");
  EXPECT_THROW(table.add_row({"one"}), InvariantBroken);
}

// A screen of one line: what a terminal would show after \r and "erase to the end".
class Screen {
 public:
  explicit Screen(const std::string& bytes) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == '\r') {
        pending_.swap(line_);
        line_.clear();
      } else if (bytes.compare(i, 3, "\x1b[K") == 0) {
        pending_.clear();
        i += 2;
      } else if (bytes[i] == '\x1b') {
        i = bytes.find('m', i);
      } else if (bytes[i] == '\n') {
        finished_.push_back(line_);
        line_.clear();
      } else {
        line_ += bytes[i];
        continue;  // the width counts once a character is whole
      }
      widest_ = std::max(widest_, display_width(pending_.empty() ? line_ : pending_));
    }
    widest_ = std::max(widest_, display_width(line_));
  }
  const std::string& line() const { return line_; }
  bool clean() const { return pending_.empty(); }  // no rest of an older line shows
  const std::vector<std::string>& finished() const { return finished_; }
  int widest() const { return widest_; }

 private:
  std::string line_;
  std::string pending_;
  std::vector<std::string> finished_;
  int widest_ = 0;
};

class ProgressTest : public ::testing::Test {
 protected:
  ProgressOptions options(bool terminal, int columns = 100) {
    ProgressOptions result;
    result.label = "sgp";
    result.now = [this] { return now_; };
    result.style.redraw = terminal;
    result.style.unicode = true;
    result.style.columns = [columns] { return columns; };
    return result;
  }
  static RunProgress at(std::int64_t step, std::int64_t steps = 1000, double loss = 0.5) {
    return progress_of(step, steps, step * 128, loss);
  }
  Screen screen() const { return Screen(out_.str()); }

  Timestamp now_{};
  std::ostringstream out_;
};

TEST_F(ProgressTest, ShowsPercentStepsRateLossAndTimeLeft) {
  ProgressBar bar(out_, options(true));
  for (int step = 1; step <= 420; ++step) {
    now_ += milliseconds(100);
    bar.update(at(step));
  }
  const std::string line = screen().line();
  EXPECT_THAT(line, StartsWith("sgp   42%  ━"));
  EXPECT_THAT(line, HasSubstr("  420/1,000  1.3k samples/s  loss 0.5000  left 58s"));
  EXPECT_TRUE(screen().clean());
  EXPECT_TRUE(screen().finished().empty());
}

TEST_F(ProgressTest, TheBarFillsWithTheWork) {
  ProgressOptions ascii = options(true);
  ascii.style.unicode = false;
  std::ptrdiff_t before = -1;
  ProgressBar bar(out_, ascii);
  for (int step = 0; step <= 1000; step += 50) {
    now_ += seconds(1);
    out_.str("");
    bar.update(at(step));
    const std::string line = screen().line();
    const auto full = std::count(line.begin(), line.end(), '#');
    const auto empty = std::count(line.begin(), line.end(), '.') - 1 - (step > 0 ? 1 : 0);
    EXPECT_GE(full, before);
    EXPECT_GT(full + empty, 8);
    EXPECT_EQ(full == full + empty, step == 1000) << line;
    before = full;
  }
}

TEST_F(ProgressTest, ANarrowTerminalKeepsTheBar) {
  for (int columns = 40; columns <= 150; ++columns) {
    SCOPED_TRACE(columns);
    out_.str("");
    now_ = Timestamp(0);
    ProgressBar bar(out_, options(true, columns));
    for (int i = 0; i < 3; ++i) {
      now_ += seconds(1);
      bar.update(progress_of(1234 * (i + 1), 9876, 99999 * (i + 1), 1.5));
    }
    EXPECT_THAT(screen().line(), HasSubstr("━"));
  }
}

TEST_F(ProgressTest, NoWidthOverflowsAndPercentStaysLongest) {
  for (int columns = 1; columns <= 150; ++columns) {
    SCOPED_TRACE(columns);
    out_.str("");
    now_ = Timestamp(0);
    ProgressBar bar(out_, options(true, columns));
    for (int i = 0; i < 3; ++i) {
      now_ += seconds(1);
      bar.update(progress_of(123456 * (i + 1), 9876543, 99999999 * (i + 1), 1234.5678));
    }
    EXPECT_LE(screen().widest(), std::max(1, columns - 1));
    if (columns >= 6) {
      EXPECT_THAT(screen().line(), HasSubstr("3%"));
    }
  }
}

TEST_F(ProgressTest, RedrawsAreBoundedByTheirInterval) {
  ProgressBar bar(out_, options(true));
  for (int step = 1; step <= 1000; ++step) {
    now_ += milliseconds(1);
    bar.update(at(step));
  }
  const std::string text = out_.str();
  EXPECT_LE(std::count(text.begin(), text.end(), '\r'), 11);
  EXPECT_GE(std::count(text.begin(), text.end(), '\r'), 9);
}

TEST_F(ProgressTest, ColourComesOnlyWhereItIsWanted) {
  for (const bool color : {false, true}) {
    out_.str("");
    ProgressOptions wanted = options(true);
    wanted.style.color = color;
    ProgressBar bar(out_, wanted);
    bar.update(at(500));
    EXPECT_EQ(out_.str().find("\x1b[32m") != std::string::npos, color);
  }
}

TEST_F(ProgressTest, PipesGetFewPlainLinesAndTheLast) {
  {
    ProgressBar bar(out_, options(false));
    for (int step = 1; step <= 1000; ++step) {
      now_ += milliseconds(21);
      bar.update(at(step));
    }
    bar.finish();
  }
  const std::string text = out_.str();
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, StartsWith("sgp   23%  239/1,000  "));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 5) << text;
  EXPECT_THAT(text, EndsWith("sgp  1,000/1,000  6.1k samples/s  loss 0.5000  in 21.0s\n"));
}

TEST_F(ProgressTest, FinishLeavesOneLineAndAFreshOne) {
  ProgressBar bar(out_, options(true));
  now_ += seconds(10);
  bar.update(at(1000));
  bar.finish();
  bar.finish();
  bar.update(at(1000));
  ASSERT_EQ(screen().finished().size(), 1u);
  EXPECT_EQ(screen().finished()[0], "sgp  1,000/1,000  12.8k samples/s  loss 0.5000  in 10.0s");
  EXPECT_EQ(screen().line(), "");
  EXPECT_TRUE(screen().clean());
}

TEST_F(ProgressTest, AnUnfinishedLineIsTakenAway) {
  {
    ProgressBar bar(out_, options(true));
    bar.update(at(10));
    EXPECT_NE(screen().line(), "");
    bar.clear();
    EXPECT_EQ(screen().line(), "");
    now_ += seconds(1);
    bar.update(at(20));
    EXPECT_NE(screen().line(), "");
  }
  EXPECT_EQ(screen().line(), "");
  EXPECT_TRUE(screen().clean());
  EXPECT_TRUE(screen().finished().empty());
}

TEST_F(ProgressTest, AResumedRunCountsItsOwnWork) {
  ProgressOptions resumed = options(false);
  resumed.start = progress_of(500, 1000, 500 * 128, NAN);
  ProgressBar bar(out_, resumed);
  now_ += seconds(10);
  bar.update(at(600));
  EXPECT_THAT(out_.str(), HasSubstr("600/1,000  1.3k samples/s  loss 0.5000  left 40s"));
  bar.finish();
  EXPECT_THAT(out_.str(), EndsWith("1.3k samples/s  loss 0.5000  in 10.0s\n"));
}

TEST_F(ProgressTest, TheRateForgetsASlowStart) {
  ProgressBar bar(out_, options(false));
  now_ += seconds(1000);  // e.g. decoding the data set
  for (int step = 1; step <= 300; ++step) {
    now_ += milliseconds(100);
    bar.update(at(step));
  }
  const std::string text = out_.str();
  EXPECT_THAT(text.substr(text.rfind('\n', text.size() - 2)), HasSubstr("1.3k samples/s"));
}

TEST_F(ProgressTest, UnknownLengthAndLossAreLeftOut) {
  ProgressBar bar(out_, options(true));
  bar.update(progress_of(7, 0, 0, NAN));
  EXPECT_EQ(screen().line(), "sgp  step 7");
}

TEST_F(ProgressTest, NothingToDoAndMoreThanAllAreShownAsTheyAre) {
  ProgressBar bar(out_, options(true));
  now_ += seconds(1);
  bar.update(progress_of(1001, 1000, 1, NAN));
  EXPECT_THAT(screen().line(), StartsWith("sgp  100%  "));
  EXPECT_THAT(screen().line(), Not(HasSubstr("left")));
}

}  // namespace console_test
}  // namespace grapevine
