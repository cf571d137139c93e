#include "apps/console/text/progress_bar.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "apps/console/text/display_width.hpp"

namespace grapevine {
namespace progress_bar_test {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

RunProgress progress_of(std::int64_t step, std::int64_t steps, std::int64_t samples, double loss) {
  RunProgress progress;
  progress.step = step;
  progress.steps = steps;
  progress.samples = samples;
  progress.loss = loss;
  return progress;
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

}  // namespace progress_bar_test
}  // namespace grapevine
