// metrics.csv as a run writes it, by itself.
#include "apps/train/run_output.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"
#include "tests/file_size_limit.hpp"

namespace grapevine {
namespace run_output_test {

namespace fs = std::filesystem;

// While it lives, nothing can be opened.
class NoMoreDescriptors {
 public:
  NoMoreDescriptors() {
    ::getrlimit(RLIMIT_NOFILE, &old_);
    const int lowest = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::close(lowest);
    const rlimit limit{static_cast<rlim_t>(lowest), old_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  ~NoMoreDescriptors() { ::setrlimit(RLIMIT_NOFILE, &old_); }
  NoMoreDescriptors(const NoMoreDescriptors&) = delete;
  NoMoreDescriptors& operator=(const NoMoreDescriptors&) = delete;

 private:
  rlimit old_{};
};

class RunOutputTest : public testing::Test {
 protected:
  std::shared_ptr<RunOutput> create(const OutputBefore& before = {}) const {
    auto output = RunOutput::create(path_.string(), before);
    EXPECT_TRUE(output.ok()) << output.error().message;
    return *output;
  }
  static void take_steps(RunOutput& output, Step first, Step count) {
    for (Step step = first; step < first + count; ++step) {
      StepReport report;
      report.step = step;
      report.loss = 0.1;
      output.on_step(report);
    }
  }
  std::string rows() const { return read_file(path_); }
  std::int64_t lines() const {
    const std::string text = rows();
    return std::count(text.begin(), text.end(), '\n');
  }
  void expect_whole_rows() const {
    std::istringstream text(rows());
    for (std::string row; std::getline(text, row);) {
      EXPECT_FALSE(text.eof()) << "cut off: " << row;
      EXPECT_EQ(std::count(row.begin(), row.end(), ','), 14) << row;
    }
  }
  // The file becomes that of a run before.
  std::string move_aside() const {
    const std::string old = (folder_.path() / "old.csv").string();
    fs::rename(path_, old);
    return old;
  }

  const TemporaryDirectory folder_;
  const fs::path path_ = folder_.path() / "metrics.csv";
};

TEST_F(RunOutputTest, TheFileIsThereFromTheBeginningAndGrowsAtItsEnd) {
  const auto output = create();
  EXPECT_EQ(lines(), 1) << "the header";
  const auto file_number = [&] {
    struct stat status {};
    ::stat(path_.c_str(), &status);
    return status.st_ino;
  };
  const auto inode = file_number();
  std::string before = rows();
  for (int i = 0; i < 5; ++i) {
    take_steps(*output, 3 * i, 3);
    output->on_idle();
    EXPECT_EQ(lines(), 1 + 3 * (i + 1));
    EXPECT_EQ(rows().compare(0, before.size(), before), 0) << "rows that were there have changed";
    before = rows();
    if (i == 2) output->on_checkpoint("one");
  }
  EXPECT_EQ(file_number(), inode) << "a follower would hold the old file";
  output->on_end({});
  EXPECT_TRUE(output->finished());
}

// Many rows do not wait for a pause.
TEST_F(RunOutputTest, RowsAreWrittenWithoutAPause) {
  const auto output = create();
  take_steps(*output, 0, 10'000);
  EXPECT_GT(lines(), 5'000);
}

TEST_F(RunOutputTest, AnEarlierRunsFileStaysUntilTheFirstStep) {
  take_steps(*create(), 0, 3);  // not written: it does not come to its end
  std::ofstream(path_) << "of an earlier run\n";
  const auto output = create();
  EXPECT_EQ(rows(), "of an earlier run\n");
  take_steps(*output, 0, 1);
  output->on_idle();
  EXPECT_EQ(lines(), 2);
  EXPECT_EQ(rows().rfind("rank,epoch", 0), 0U);
}

TEST_F(RunOutputTest, AFailedRunWithoutAStepLeavesTheEarlierRunsFile) {
  std::ofstream(path_) << "of an earlier run\n";
  const auto output = create();
  RunResult failed;
  failed.error = Error{Errc::failed, "why"};
  output->on_end(failed);
  EXPECT_TRUE(output->finished());
  EXPECT_EQ(rows(), "of an earlier run\n");
}

// A disk that was full for a while costs neither rows nor the form of the file.
TEST_F(RunOutputTest, RowsAreWholeWhileADiskIsFullAndAllThereAfterwards) {
  const auto output = create();
  take_steps(*output, 0, 10);
  output->on_checkpoint("one");
  {
    const FileSizeLimit limit(1000);
    take_steps(*output, 10, 1000);
    output->on_checkpoint("two");
    expect_whole_rows();
    EXPECT_LE(rows().size(), 1000U);
    EXPECT_GE(lines(), 11);
    output->on_idle();
    expect_whole_rows();
  }
  take_steps(*output, 1010, 10);
  output->on_checkpoint("three");
  expect_whole_rows();
  EXPECT_EQ(lines(), 1 + 1020);
  output->on_end({});
  EXPECT_TRUE(output->finished());
}

// For so long that not all of them can wait: what is lost is said.
TEST_F(RunOutputTest, RowsThatCannotBeKeptAreCounted) {
  class Warnings : public RunFollower {
   public:
    explicit Warnings(int& count) : count_(count) {}
    void on_step(const StepReport&) override {}
    void on_validation(Epoch, Step, const Evaluation&) override {}
    void on_warning() override { ++count_; }

   private:
    int& count_;
  };
  int warnings = 0;
  const auto output = create();
  output->add_follower(std::make_unique<Warnings>(warnings));
  testing::internal::CaptureStderr();
  {
    const FileSizeLimit limit(1000);
    take_steps(*output, 0, 100'000);
    output->on_checkpoint("one");
    EXPECT_EQ(warnings, 1) << "once, however many rows wait";
  }
  output->on_end({});
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(warnings, 2) << "how many were left out";
  expect_whole_rows();
  EXPECT_LT(lines(), 100'001);
  EXPECT_GT(lines(), 1'000);
}

TEST_F(RunOutputTest, AnExceptionOfTheReporterIsNamedAtTheEnd) {
  const auto output = create();
  take_steps(*output, 0, 3);
  output->on_failed("out of memory");
  const auto finished = output->finished();
  ASSERT_FALSE(finished);
  EXPECT_EQ(finished.error().code, Errc::io);
  EXPECT_NE(finished.error().message.find("is not complete: out of memory"), std::string::npos)
      << finished.error().message;
}

TEST_F(RunOutputTest, AFullDiskAtTheEndIsAnError) {
  const auto output = create();
  const FileSizeLimit limit(200);
  take_steps(*output, 0, 100);
  output->on_end({});
  const auto finished = output->finished();
  ASSERT_FALSE(finished);
  EXPECT_NE(finished.error().message.find("metrics.csv"), std::string::npos);
  EXPECT_NE(finished.error().message.find("; raise the limit"), std::string::npos)
      << "what to do: " << finished.error().message;
  expect_whole_rows();
}

// With a name, but perhaps not on disk: one warning, and the rows go on.
TEST_F(RunOutputTest, AFolderThatCannotBeSyncedDoesNotCostTheRows) {
  std::ofstream(path_) << "of an earlier run\n";
  const auto output = create();
  testing::internal::CaptureStderr();
  {
    const NoMoreDescriptors limit;  // a rename needs none, syncing the folder does
    take_steps(*output, 0, 1);
  }
  EXPECT_EQ(rows().rfind("rank,epoch", 0), 0U);
  take_steps(*output, 1, 2);
  output->on_end({});
  const std::string warnings = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(output->finished()) << output->finished().error().message;
  EXPECT_EQ(lines(), 1 + 3) << rows();
  EXPECT_EQ(warnings.find("committed already"), std::string::npos) << warnings;
}

TEST_F(RunOutputTest, ARunWhoseRowsWereNotAllWrittenSaysSo) {
  const auto output = create();
  take_steps(*output, 0, 1);
  EXPECT_FALSE(output->finished()) << "its end has not come";
}

// The rows of the run before are there from the beginning.
TEST_F(RunOutputTest, AResumedRunKeepsTheRowsUpToItsCheckpoint) {
  const auto first = create();
  take_steps(*first, 0, 10);
  first->on_end({});
  const std::string old = move_aside();
  {
    const FileSizeLimit limit(100);
    const auto refused = RunOutput::create(path_.string(), {{5}, {5}, 0, old});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("metrics.csv"), std::string::npos);
  }
  const auto second = create({{5}, {5}, 0, old});
  EXPECT_FALSE(second->kept_losses().empty());
  EXPECT_EQ(lines(), 1 + 5);
  take_steps(*second, 5, 1);
  second->on_end({});
  EXPECT_EQ(lines(), 1 + 6);
}

// The run continues with fewer ranks, once and again.
TEST_F(RunOutputTest, TheRowsOfRanksThatAreLeftOutStay) {
  const auto first = create();
  StepReport report;
  for (report.step = 0; report.step < 10; ++report.step)
    for (report.rank = 0; report.rank < 3; ++report.rank) {
      report.loss = report.rank;
      first->on_step(report);
    }
  first->on_end({});
  std::string old = move_aside();
  const auto second = create({{5}, {5, 6, 7}, 0, old});
  EXPECT_EQ(lines(), 1 + 5 + 6 + 7);
  EXPECT_EQ(second->kept_losses().mean(), 0) << "of those that go on";
  take_steps(*second, 5, 2);
  second->on_end({});
  old = move_aside();
  create({{6}, {6}, 0, old});
  EXPECT_EQ(lines(), 1 + 6 + 6 + 7);
}

// As a program for tables ends lines; and of a version with other columns.
TEST_F(RunOutputTest, RowsOfOtherProgramsAreNotLost) {
  const auto first = create();
  take_steps(*first, 0, 5);
  first->on_end({});
  std::string returns;
  for (const char c : rows()) returns += c == '\n' ? std::string("\r\n") : std::string(1, c);
  const std::string old = move_aside();
  std::ofstream(old) << returns;
  create({{3}, {3}, 0, old});
  EXPECT_EQ(lines(), 1 + 3);
  EXPECT_EQ(rows().find('\r'), std::string::npos);
  for (const std::string name : {".old", ".old2"}) {
    const std::string other = "another,header\n1,2\n" + name + "\n";
    std::ofstream(old) << other;
    fs::remove(path_);
    create({{3}, {3}, 0, old});
    EXPECT_EQ(lines(), 1);
    EXPECT_EQ(read_file(path_.string() + name), other);
  }
}

// A process that was killed while it wrote leaves a row without its end.
TEST_F(RunOutputTest, ARowThatWasCutOffIsNotKept) {
  const auto first = create();
  take_steps(*first, 0, 4);
  first->on_end({});
  const std::string whole = rows();
  const std::string old = move_aside();
  const std::size_t last = whole.size() - 1 - whole.rfind('\n', whole.size() - 2);
  for (std::size_t cut = 1; cut <= last; ++cut) {
    SCOPED_TRACE(cut);
    std::ofstream(old) << whole.substr(0, whole.size() - cut);
    fs::remove(path_);
    const auto second = create({{9}, {9}, 0, old});
    EXPECT_EQ(lines(), 1 + 3) << rows();
    expect_whole_rows();
  }
  std::ofstream(old) << whole << std::string(100, '\0');
  fs::remove(path_);
  create({{9}, {9}, 0, old});
  EXPECT_EQ(rows(), whole) << "blocks that a power failure has left empty";
}

// Rank 0 may be behind the others' clock: the row says where it was, and a resumed run keeps it.
TEST_F(RunOutputTest, ValidationsOfEpochsThatRankZeroHasNotReached) {
  const auto steps_and_validation = [](RunOutput& output, Step step, Epoch epoch) {
    StepReport report;
    report.step = step;
    report.loss = 0.5;
    report.logged = true;
    output.on_step(report);
    output.on_validation(epoch, {0.25, 0.75, 0.875, 100});
  };
  const auto first = create();
  steps_and_validation(*first, 4, 1);
  steps_and_validation(*first, 5, 2);
  first->on_end({});
  const auto second = create({{5}, {5}, 2, move_aside()});
  steps_and_validation(*second, 5, 2);
  second->on_end({});
  std::vector<std::string> places;
  std::istringstream text(rows());
  std::string row;
  for (std::getline(text, row); std::getline(text, row);)
    places.push_back(row.substr(0, row.find(',', row.find(',', 2) + 1)));
  EXPECT_EQ(places, (std::vector<std::string>{"0,0,4", "0,1,4", "0,0,5", "0,2,5"}));
}

// Of the first rank that is not lost, whose reports may come late.
TEST_F(RunOutputTest, ValidationsHaveTheStepsOfARankThatTrains) {
  const auto output = create();
  const auto end_epoch = [&](Rank rank, Step step, Epoch epoch) {
    StepReport report;
    report.rank = rank;
    report.step = step;
    report.epoch = static_cast<double>(epoch);
    output->on_step(report);
  };
  const auto validate = [&](Epoch epoch) {
    output->on_validation(epoch, {0.25, 0.75, 0.875, 100});
  };
  for (const Rank rank : {2, 1, 0}) end_epoch(rank, 10 + rank, 0);
  validate(0);
  output->on_rank_lost(0);
  for (const Rank rank : {2, 0, 1}) end_epoch(rank, 20 + rank, 1);
  validate(1);
  end_epoch(2, 32, 2);
  validate(2);  // rank 1 has not ended it
  output->on_rank_returned(0);
  for (const Rank rank : {0, 1, 2}) end_epoch(rank, 40 + rank, 3);
  validate(3);
  output->on_end({});
  EXPECT_EQ(output->reported_steps(), 43);
  std::vector<std::string> places;
  std::istringstream text(rows());
  std::string row;
  for (std::getline(text, row); std::getline(text, row);)
    if (row.back() != ',') places.push_back(row.substr(0, row.find(',', row.find(',', 2) + 1)));
  EXPECT_EQ(places, (std::vector<std::string>{"0,0,10", "0,1,21", "0,2,21", "0,3,40"}));
}

// A validation comes later than the checkpoint of its epoch: a process that is killed after it has
// its row on disk.
TEST_F(RunOutputTest, ValidationsAreOnDiskAtOnce) {
  const auto output = create();
  StepReport report;
  report.step = 9;
  output->on_step(report);
  output->on_checkpoint("epoch-0001");
  Evaluation evaluation;
  evaluation.top1 = 0.625;
  output->on_validation(0, evaluation);
  EXPECT_NE(rows().find(",0.625,"), std::string::npos) << rows();
}

}  // namespace run_output_test
}  // namespace grapevine
