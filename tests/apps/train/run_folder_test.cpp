// What a run finds in its --out folder, and leaves there.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "actors/record/files.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "algorithms/wiring/wiring.hpp"
#include "apps/train/run_output.hpp"
#include "apps/train/train_folder.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/run_here.hpp"
#include "tests/apps/train/train_run.hpp"
#include "tests/file_size_limit.hpp"

namespace grapevine {
namespace run_folder_test {

namespace fs = std::filesystem;

const std::vector<std::string> kRun = {"train",      "--model",   "linear", "--data",
                                       "glyphs:640", "--workers", "2",      "--steps",
                                       "2",          "--threads", "1"};

TEST(RunFolder, IsForOneRunAtATime) {
  const TemporaryDirectory folder;
  // What looks half-written may be the checkpoint of the run that writes there at this moment.
  const fs::path stale = folder.path() / "checkpoint" / ".writing-step-9";
  fs::create_directories(stale);
  const std::vector<std::string> run = with(kRun, {"--out", folder.path().string()});
  FolderLock held = *lock_folder(folder.path());
  ASSERT_NE(held, nullptr);
  const ProcessResult beside = run_process(run);
  EXPECT_EQ(beside.exit_code, 2) << beside.describe();
  EXPECT_NE(ProcessResult::last_line(beside.err).find("another run writes there"),
            std::string::npos)
      << beside.describe();
  EXPECT_TRUE(fs::exists(stale));
  held.reset();
  const ProcessResult alone = run_process(run);
  EXPECT_EQ(alone.exit_code, 0) << alone.describe();
  EXPECT_FALSE(fs::exists(stale));
}

// Started together they are of the same second, or nearly so.
TEST(RunFolder, RunsOfTheSameSecondHaveTheirOwn) {
  const TemporaryDirectory folder;
  ProcessOptions options;
  options.directory = folder.path();
  std::vector<std::unique_ptr<Process>> runs;
  for (int i = 0; i < 3; ++i) runs.push_back(std::make_unique<Process>(kRun, options));
  for (auto& run : runs) {
    const ProcessResult result = run->wait();
    EXPECT_EQ(result.exit_code, 0) << result.describe();
  }
  std::set<fs::path> whole;
  for (const auto& entry : fs::directory_iterator(folder.path() / "runs"))
    if (fs::exists(entry.path() / "summary.json")) whole.insert(entry.path());
  EXPECT_EQ(whole.size(), 3U);
}

// The folder of relative names, as long as it lives.
class WorkingFolder {
 public:
  explicit WorkingFolder(const fs::path& folder) { fs::current_path(folder); }
  ~WorkingFolder() { fs::current_path(before_); }
  WorkingFolder(const WorkingFolder&) = delete;
  WorkingFolder& operator=(const WorkingFolder&) = delete;

 private:
  const fs::path before_ = fs::current_path();
};

// However its checkpoint is named, a run that goes on where it was keeps what stands there.
TEST(RunFolder, ARunGoesOnInItsFolder) {
  const auto rows_of = [](const fs::path& out) {
    const std::string rows = read_file(out / "metrics.csv");
    return std::count(rows.begin(), rows.end(), '\n');
  };
  const std::vector<std::string> names = {"run", "run/checkpoint/", "run/checkpoint/latest/",
                                          "run/checkpoint/epoch-0001/", "run/../link"};
  for (const std::string& name : names) {
    SCOPED_TRACE(name);
    const TemporaryDirectory folder;
    const WorkingFolder here(folder.path());
    // 10 steps an epoch.
    const ProcessResult before = run_here(with(kRun, {"--steps", "12", "--out", "run"}));
    ASSERT_EQ(before.exit_code, 0) << before.describe();
    fs::create_directory_symlink("run/checkpoint/epoch-0001", folder.path() / "link");
    const fs::path out = folder.path() / "run";
    ASSERT_TRUE(fs::exists(out / "checkpoint/epoch-0001"));
    const ProcessResult after =
        run_here(with(kRun, {"--steps", "14", "--resume", name, "--out", "run"}));
    ASSERT_EQ(after.exit_code, 0) << after.describe();
    EXPECT_TRUE(fs::exists(out / "checkpoint/epoch-0001"));
    EXPECT_GE(rows_of(out), 1 + 2 * 14);
  }
}

// What a checkpoint says where only some ranks have come to the end that was planned.
TEST(RunFolder, ARunThatWasAboutToEndIsNotExtended) {
  struct Case {
    std::string preset;
    std::vector<std::string> more;
    bool in_flight;  // the last message of the run, or the last rank one step short of its end
    bool refused;
  };
  const std::vector<Case> cases = {
      {"local-sgd", {"--set", "wiring.local_steps=4"}, false, true},
      {"sgp", {"--set", "wiring.local_steps=4"}, false, true},
      {"osgp", {"--set", "wiring.staleness=2"}, false, true},
      {"sgp", {"--set", "wiring.hierarchy=2"}, true, true},
      {"sgp", {}, true, false},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.preset + testing::PrintToString(c.more));
    const TemporaryDirectory folder;
    const std::string out = folder.path().string();
    const auto run = with(with(kRun, c.more), {"--workers", "4", "--algorithm", c.preset, "--steps",
                                               "6", "--out", out});
    ASSERT_EQ(run_here(run).exit_code, 0);
    auto checkpoint = read_checkpoint(out);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    if (c.in_flight)
      checkpoint->ranks[1].put("in_flight.0", std::string("a message"));
    else
      checkpoint->ranks[1].put("model.step", std::int64_t{5});
    std::vector<RankSnapshot> snapshots;
    for (std::size_t rank = 0; rank < checkpoint->ranks.size(); ++rank)
      snapshots.push_back({1, static_cast<Rank>(rank), 6, checkpoint->ranks[rank]});
    const auto written = write_checkpoint(folder.path() / "checkpoint", checkpoint->identity,
                                          {1, "cut", snapshots, {}, {}});
    ASSERT_TRUE(written.ok()) << written.error().message;
    const ProcessResult longer = run_here(with(run, {"--steps", "12", "--resume", out}));
    EXPECT_NE(longer.exit_code, 0) << longer.describe();  // that message is none
    EXPECT_EQ(longer.err.find("the run was about to end") != std::string::npos, c.refused)
        << longer.describe();
    if (c.refused) {
      EXPECT_NE(longer.err.find("first resume with --steps 6"), std::string::npos)
          << longer.describe();
    }
  }
}

// Where nodes go at their own pace, the slow one ends below the planned number of steps.
TEST(RunFolder, AnEndedRunOfUnequalNodesIsExtended) {
  const TemporaryDirectory folder;
  const std::string out = folder.path().string();
  const auto run =
      with(kRun, {"--algorithm", "ad-psgd", "--workers", "4", "--set", "wiring.hierarchy=2",
                  "--delay", "rank=2:150ms", "--steps", "12", "--out", out});
  ASSERT_EQ(run_here(run).exit_code, 0);
  const std::vector<Step> before = read_checkpoint(out)->steps();
  ASSERT_LT(before[2], 12) << "the slow node was not slow: nothing was tested";
  const ProcessResult longer = run_here(with(run, {"--steps", "16", "--resume", out}));
  ASSERT_EQ(longer.exit_code, 0) << longer.describe();
  const std::vector<Step> after = read_checkpoint(out)->steps();
  EXPECT_GE(after[0] + after[2], 2 * 16);
}

// Gradients of a node that were on their way are taken, whatever the new end is.
TEST(RunFolder, ARunOfNodesWithTheirOwnPaceIsEndedEarlier) {
  const TemporaryDirectory folder;
  const std::string out = folder.path().string();
  const auto run = with(kRun, {"--algorithm", "ad-psgd", "--workers", "4", "--set",
                               "wiring.hierarchy=2", "--checkpoint-keep", "all", "--out", out});
  ASSERT_EQ(run_here(with(run, {"--steps", "100"})).exit_code, 0);  // 5 steps an epoch
  std::set<fs::path> amid;
  for (const auto& entry : fs::directory_iterator(folder.path() / "checkpoint"))
    if (entry.path().filename().string().rfind("epoch-", 0) == 0) amid.insert(entry.path());
  ASSERT_FALSE(amid.empty());
  const ProcessResult sooner =
      run_here(with(run, {"--steps", "3", "--resume", amid.begin()->string()}));
  EXPECT_EQ(sooner.exit_code, 0) << sooner.describe();
}

// The run before wrote its last checkpoint after this one had read what was the newest, and ended.
TEST(RunFolder, ANewerCheckpointThanTheOneThatWasReadIsNotLost) {
  const TemporaryDirectory folder;
  const fs::path checkpoints = folder.path() / "checkpoint";
  for (const char* name : {"epoch-0001", "step-00000007"}) {
    fs::create_directories(checkpoints / name);
    std::ofstream(checkpoints / name / "job.json") << "{}";
  }
  fs::create_directory_symlink("step-00000007", checkpoints / "latest");
  const auto make = [&](const std::string& resume, const std::string& read) {
    TrainJob job;
    job.options.out = folder.path().string();
    job.options.resume = resume;
    job.run.parts = *make_parts(*resolve(find_preset("ar")->wiring), {40, 10},
                                *LrSchedule::make({}), OptimizerConfig{}, 1);
    job.run.resume.emplace();
    job.run.resume->path = fs::canonical(checkpoints / read).string();
    job.run.resume->ranks.resize(1);
    return make_folders(job);
  };
  const auto late = make(folder.path().string(), "epoch-0001");
  ASSERT_FALSE(late.ok());
  EXPECT_NE(late.error().message.find("step-00000007"), std::string::npos) << late.error().message;
  EXPECT_TRUE(make(folder.path().string(), "step-00000007").ok());
  EXPECT_TRUE(make((checkpoints / "epoch-0001").string(), "epoch-0001").ok()) << "it is asked for";
}

// Nor is one made so short that some ranks are past its end.
TEST(RunFolder, ARunIsNotCutShort) {
  const TemporaryDirectory folder;
  const auto run = with(kRun, {"--algorithm", "ar", "--out", folder.path().string()});
  ASSERT_EQ(run_here(with(run, {"--steps", "12"})).exit_code, 0);  // 10 steps an epoch
  const auto resume = with(run, {"--resume", (folder.path() / "checkpoint/epoch-0001").string()});
  const ProcessResult shorter = run_here(with(resume, {"--steps", "10"}));
  EXPECT_EQ(shorter.exit_code, 2) << shorter.describe();
  EXPECT_NE(shorter.err.find("the job ends at step 10: give more --steps"), std::string::npos)
      << shorter.describe();
  const ProcessResult as_long = run_here(with(resume, {"--steps", "12"}));
  EXPECT_EQ(as_long.exit_code, 0) << as_long.describe();
}

// What is not its own run's does not stay beside what is.
TEST(RunFolder, ANewRunRemovesTheCurvesOfTheOldOne) {
  const TemporaryDirectory folder;
  const std::string out = folder.path().string();
  ASSERT_EQ(run_here(with(kRun, {"--out", out})).exit_code, 0);
  ASSERT_TRUE(fs::exists(folder.path() / "metrics.csv"));
  // It neither validates nor writes checkpoints before its end, which does not come.
  Process endless(with(kRun, {"--out", out, "--overwrite", "--steps", "1000000",
                              "--checkpoint-every", "0", "--validate", "end"}));
  for (int i = 0; i < 1200 && fs::exists(folder.path() / "summary.json"); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  // Its own are there from then on, and grow.
  const auto has_row = [&] {
    return read_file(folder.path() / "metrics.csv").find(",20,") != std::string::npos;
  };
  for (int i = 0; i < 1200 && !has_row(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  endless.signal(SIGKILL);
  endless.wait();
  EXPECT_FALSE(fs::exists(folder.path() / "summary.json"));
  EXPECT_FALSE(fs::exists(folder.path() / "model.pt"));
  EXPECT_TRUE(has_row()) << "the killed run leaves what it has appended";
  std::istringstream rows(read_file(folder.path() / "metrics.csv"));
  std::string row;
  std::getline(rows, row);
  EXPECT_EQ(row.rfind("rank,epoch,step,", 0), 0U) << row;
  while (std::getline(rows, row) && !rows.eof()) {
    EXPECT_EQ(std::count(row.begin(), row.end(), ','), 14) << row;
    EXPECT_EQ(row.compare(row.size() - 3, 3, ",,,"), 0) << "a validation of the old run: " << row;
  }
}

// A process that is killed while it removes an old run leaves nothing of it to continue.
TEST(RunFolder, TheCheckpointsOfAnOldRunLoseTheirNamesFirst) {
  for (const bool linked : {true, false}) {
    SCOPED_TRACE(linked ? "with links" : "a copy without links");
    const TemporaryDirectory folder;
    const std::string out = folder.path().string();
    const fs::path checkpoints = folder.path() / "checkpoint";
    for (int i = 1; i <= 3; ++i) {
      const fs::path checkpoint = checkpoints / ("epoch-000" + std::to_string(i));
      fs::create_directories(checkpoint);
      std::ofstream(checkpoint / "job.json")
          << R"({"version": 2, "ranks": 1, "step": )" << (i == 2 ? 9 : i) << "}";
    }
    if (linked) fs::create_directory_symlink("epoch-0002", checkpoints / "latest");
    std::ofstream(folder.path() / "model.pt") << "model";
    const auto old = earlier_outputs(out);
    const auto hidden = hide_checkpoints(old);
    ASSERT_EQ(hidden.size(), 3U);
    EXPECT_EQ(hidden.back().filename(), ".writing-epoch-0002") << "the newest one comes last";
    EXPECT_EQ(checkpoint_at(out), "");
    EXPECT_FALSE(has_checkpoint(out));
    EXPECT_TRUE(fs::exists(folder.path() / "model.pt"));
    // The next run clears them, and removes the rest.
    remove_stale_checkpoints(checkpoints.string());
    remove_outputs(earlier_outputs(out));
    EXPECT_TRUE(fs::is_empty(checkpoints));
    EXPECT_FALSE(fs::exists(folder.path() / "model.pt"));
  }
}

TEST(RunFolder, OfAnOldRunNothingNewerIsRemoved) {
  const TemporaryDirectory folder;
  const std::string out = folder.path().string();
  const fs::path checkpoint = folder.path() / "checkpoint" / "epoch-0001";
  const auto write = [&] {
    fs::create_directories(checkpoint);
    std::ofstream(checkpoint / "job.json") << R"({"version": 2, "ranks": 1})";
  };
  write();
  const auto old = earlier_outputs(out);
  fs::rename(checkpoint, folder.path() / "old");  // so that no number is used again
  write();
  remove_outputs(old);
  EXPECT_TRUE(fs::exists(checkpoint / "job.json"));
}

// The mean of the last losses is that of a run without a break, to the bit.
TEST(RunFolder, TheLossOfAResumedRunIsThatOfAWholeOne) {
  const TemporaryDirectory folder;
  const auto run = with(kRun, {"--algorithm", "ar", "--data", "glyphs"});
  const fs::path whole = folder.path() / "whole", parts = folder.path() / "parts";
  ASSERT_EQ(run_here(with(run, {"--steps", "6", "--out", whole.string()})).exit_code, 0);
  ASSERT_EQ(run_here(with(run, {"--steps", "3", "--out", parts.string()})).exit_code, 0);
  ASSERT_EQ(run_here(with(run, {"--steps", "6", "--resume", parts.string()})).exit_code, 0);
  EXPECT_EQ(summary_of(parts)["final_loss"].get<double>(),
            summary_of(whole)["final_loss"].get<double>());
}

// Files may move, but samples of another size are other data.
TEST(RunFolder, OtherSamplesAreRefused) {
  const TemporaryDirectory folder;
  const std::string out = folder.path().string();
  const std::vector<std::string> run = {"train", "--model",      "resnet20", "--workers",
                                        "1",     "--batch-size", "2",        "--threads",
                                        "1",     "--out",        out};
  ASSERT_EQ(run_here(with(run, {"--data", "noise:16", "--steps", "1"})).exit_code, 0);
  const ProcessResult other =
      run_here(with(run, {"--data", "noise:32", "--steps", "2", "--resume", out}));
  EXPECT_EQ(other.exit_code, 2) << other.describe();
  EXPECT_NE(other.err.find("sample-shape was 3x16x16, now it is 3x32x32"), std::string::npos)
      << other.describe();
}

}  // namespace run_folder_test
}  // namespace grapevine
