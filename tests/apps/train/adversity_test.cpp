// What happens to a run when its surroundings do not behave: models that do not return, streams and
// disks that are gone, folders that are taken, signals at the wrong moment.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include <ATen/ATen.h>

#include "actors/record/files.hpp"
#include "tests/apps/monitoring/http_get.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/run_here.hpp"
#include "tests/apps/train/train_run.hpp"
#include "tests/apps/zoo/models/script_model.hpp"

namespace grapevine {
namespace adversity_test {

namespace fs = std::filesystem;

std::vector<std::string> linear_run(const fs::path& out) {
  return {"train", "--model",      "linear",     "--data",     "glyphs:640", "--workers",
          "2",     "--batch-size", "16",         "--steps",    "4",          "--threads",
          "1",     "--out",        out.string(), "--overwrite"};
}

// `shell` reads the command as "$@".
ProcessResult run_in_shell(const std::string& shell, const std::vector<std::string>& arguments) {
  ProcessOptions options;
  options.program = "/bin/sh";
  return run_process(with({"-c", shell, "sh", GRAPEVINE_EXECUTABLE}, arguments), options);
}

void expect_error(const ProcessResult& result, int code, const std::vector<std::string>& parts) {
  EXPECT_EQ(result.exit_code, code) << result.describe();
  const std::string line = ProcessResult::last_line(result.err);
  EXPECT_EQ(line.rfind("error: ", 0), 0U) << result.describe();
  for (const std::string& part : parts)
    EXPECT_NE(line.find(part), std::string::npos) << part << "\n" << result.describe();
}

constexpr char kLinear[] = "def forward(self, x):\n  return x.flatten(1).matmul(self.w)\n";

// A linear model whose forward pass never ends where `when` holds.
std::string save_endless_model(const fs::path& folder, const std::string& when) {
  return save_script_model(folder / "endless.pt", at::zeros({784, 10}),
                           "def forward(self, x):\n  n = 0\n  while " + when +
                               " and n >= 0:\n    n = (n + 1) % 1000\n" +
                               "  return x.flatten(1).matmul(self.w)\n");
}

TEST(Adversity, AModelThatDoesNotReturnEndsTheRunWithItsReason) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const std::string endless = save_endless_model(folder.path(), "self.training");
  const ProcessResult result =
      run_process(with(linear_run(out), {"--model", endless, "--timeout", "1"}));
  EXPECT_FALSE(result.timed_out) << result.describe();
  expect_error(result, 1, {"no rank made progress for 1 s; none has finished a step; "});
  EXPECT_TRUE(fs::exists(out / "summary.json"));
  EXPECT_FALSE(fs::exists(out / "model.pt"));
  EXPECT_NE(summary_of(out).value("error", std::string()).find("no rank made progress"),
            std::string::npos);
  for (const auto& entry : fs::directory_iterator(out))
    EXPECT_EQ(entry.path().filename().string().find(".tmp"), std::string::npos) << entry.path();
}

TEST(Adversity, AnEvaluationThatDoesNotReturnEndsTheRunWithItsReason) {
  const TemporaryDirectory folder;
  const std::string endless =
      save_endless_model(folder.path(), "not self.training and x.size(0) > 2");
  const ProcessResult result = run_process(
      {"train", "--model", endless, "--data", "glyphs:640", "--workers", "2", "--epochs", "1",
       "--threads", "1", "--timeout", "1", "--out", (folder.path() / "run").string()});
  EXPECT_FALSE(result.timed_out) << result.describe();
  expect_error(result, 1, {"no rank made progress for 1 s"});
}

TEST(Adversity, ARunThatTakesNoStepLeavesTheOneBeforeIt) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  ASSERT_EQ(run_process(linear_run(out)).exit_code, 0);
  const std::string summary = read_file(out / "summary.json");
  const std::string rows = read_file(out / "metrics.csv");
  const std::string trace = read_file(out / "trace/process-0000.gvtrace");
  const std::string model = read_file(out / "model.pt");
  const auto expect_the_same = [&] {
    EXPECT_EQ(read_file(out / "summary.json"), summary);
    EXPECT_EQ(read_file(out / "metrics.csv"), rows);
    EXPECT_EQ(read_file(out / "trace/process-0000.gvtrace"), trace);
    EXPECT_EQ(read_file(out / "model.pt"), model);
    EXPECT_EQ(fs::read_symlink(out / "checkpoint/latest"), "final");
    EXPECT_TRUE(fs::exists(out / "checkpoint/final/job.json"));
  };
  const std::string endless = save_endless_model(folder.path(), "self.training");
  const auto again = with(linear_run(out), {"--model", endless});
  expect_error(run_process(with(again, {"--timeout", "1"})), 1, {"no rank made progress"});
  expect_the_same();
  // Nor does one that is asked for a checkpoint, and to stop, before its first step is done.
  Process process(again);
  ASSERT_TRUE(process.wait_for_output(" steps\n")) << process.wait().describe();
  process.signal(SIGUSR1);
  EXPECT_TRUE(process.wait_for_output("no step was taken yet")) << process.so_far().describe();
  process.signal(SIGTERM);
  expect_error(process.wait(), 1, {"before the first step"});
  expect_the_same();
}

TEST(Adversity, TheModelThatTrainingBeginsWithIsNotReplaced) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  fs::create_directory(out);
  const std::string model = save_script_model(out / "model.pt", at::zeros({784, 10}), kLinear);
  expect_error(run_here(with(linear_run(out), {"--model", model})), 2, {"would be replaced"});
  EXPECT_TRUE(fs::exists(out / "model.pt"));
}

TEST(Adversity, FoldersMayHaveTheNamesOfModels) {
  const TemporaryDirectory folder;
  fs::create_directory(folder.path() / "linear");
  ProcessOptions options;
  options.directory = folder.path();
  const ProcessResult result = run_process(linear_run("run"), options);
  EXPECT_EQ(result.exit_code, 0) << result.describe();
}

TEST(Adversity, ResumingIntoAnotherFolderTakesTheRowsAlong) {
  const TemporaryDirectory folder;
  const fs::path first = folder.path() / "first";
  const fs::path second = folder.path() / "second";
  ASSERT_EQ(run_here(linear_run(first)).exit_code, 0);
  ASSERT_EQ(run_here(with(linear_run(second), {"--steps", "1"})).exit_code, 0);
  const ProcessResult resumed =
      run_here(with(linear_run(second), {"--resume", first.string(), "--steps", "6"}));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.describe();
  std::istringstream before(read_file(first / "metrics.csv"));
  const std::string rows = read_file(second / "metrics.csv");
  for (std::string row; std::getline(before, row);) {
    const bool validation = row.back() != ',';
    EXPECT_TRUE(validation || rows.find(row + "\n") != std::string::npos) << row << "\nin\n"
                                                                          << rows;
  }
  EXPECT_EQ(summary_of(second).at("steps"), 6);
  EXPECT_TRUE(fs::exists(first / "model.pt"));
}

TEST(Adversity, ClosedStreamsDoNotEndUpInFiles) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const ProcessResult result =
      run_in_shell("exec \"$@\" <&- >&- 2>&-", with(linear_run(out), {"--json"}));
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  const std::string rows = read_file(out / "metrics.csv");
  EXPECT_EQ(rows.rfind("rank,epoch", 0), 0U);
  EXPECT_EQ(rows.find('{'), std::string::npos) << rows;
  EXPECT_EQ(rows.find("workers x batch"), std::string::npos) << rows;
}

TEST(Adversity, ResultsThatCannotBePrintedAreAFailure) {
  if (!fs::exists("/dev/full")) GTEST_SKIP() << "there is no /dev/full here";
  const TemporaryDirectory folder;
  for (const auto& verb :
       std::vector<std::vector<std::string>>{{"topology", "ring", "--ranks", "1000", "--json"},
                                             {"average", "--json"},
                                             with(linear_run(folder.path() / "run"), {"--json"})})
    expect_error(run_in_shell("exec \"$@\" >/dev/full", verb), 1, {"stdout"});
}

TEST(Adversity, WhoeverReadsTheProgressMayGo) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const ProcessResult result =
      run_in_shell("\"$@\" --delay rank=0:200ms 2>&1 | head -n 1", linear_run(out));
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_TRUE(fs::exists(out / "model.pt")) << "the pipe ends with its last process";
}

TEST(Adversity, PathsNeedNotBeText) {
  const TemporaryDirectory folder;
  const std::string path =
      save_script_model(folder.path() / "m\xff.pt", at::zeros({784, 10}), kLinear);
  const fs::path out = folder.path() / "o\xff";
  const ProcessResult result = run_here(with(linear_run(out), {"--model", path, "--json"}));
  EXPECT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_TRUE(fs::exists(out / "checkpoint/final/job.json"));
  EXPECT_EQ(summary_of(out).at("steps"), 4);
}

TEST(Adversity, AFailedRunLeavesNothingOfTheOneBeforeIt) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  ASSERT_EQ(run_here(linear_run(out)).exit_code, 0);
  ASSERT_TRUE(fs::exists(out / "model.pt"));
  const ProcessResult failed = run_here(with(linear_run(out), {"--lr", "1e38", "--steps", "50"}));
  EXPECT_EQ(failed.exit_code, 1) << failed.describe();
  EXPECT_FALSE(fs::exists(out / "model.pt"));
  EXPECT_FALSE(fs::exists(out / "checkpoint/final"));
  EXPECT_NE(summary_of(out).value("error", std::string()), "");
  EXPECT_TRUE(summary_of(out).at("staleness").at("max").is_null()) << summary_of(out);
}

TEST(Adversity, ARunThatIsStoppedAtOnceStopsBeforeItBegins) {
  const TemporaryDirectory folder;
  const fs::path pipe = folder.path() / "text";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const fs::path out = folder.path() / "run";
  Process process({"train", "--model", "lstm", "--data", "text:" + pipe.string(), "--steps", "2",
                   "--out", out.string()});
  std::ofstream text(pipe);  // opens once the program reads, which is before any training
  process.signal(SIGTERM);   // although nothing comes
  expect_error(process.wait(), 1, {"before training began"});
  EXPECT_FALSE(fs::exists(out / "model.pt"));
}

TEST(Adversity, ResumingWithOtherDataIsRefused) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  ASSERT_EQ(run_here(linear_run(out)).exit_code, 0);
  const auto again = with(linear_run(out), {"--resume", out.string(), "--steps", "6"});
  expect_error(run_here(with(again, {"--data", "glyphs:960"})), 2,
               {"training-samples was 640, now it is 960"});
  EXPECT_EQ(run_here(again).exit_code, 0);
}

TEST(Adversity, NumbersWithoutAnEndAreRefused) {
  const TemporaryDirectory folder;
  const auto run = linear_run(folder.path() / "never");
  expect_error(run_here({"train", "--model", "linear", "--data", "glyphs:640", "--epochs", "1e300",
                         "--out", (folder.path() / "never").string()}),
               2, {"--epochs 1e+300", "1000000000000"});
  expect_error(run_here(with(run, {"--steps", "999999999999999999"})), 2, {"--steps"});
  expect_error(run_here(with(run, {"--steps", "0"})), 2, {"--steps 0", "expected 1 or more"});
  expect_error(run_here(with(run, {"--set", "wiring.peers=4294967297"})), 2, {"4294967297"});
  expect_error(run_here(with(run, {"--metrics-port", "65536"})), 2, {"--metrics-port '65536'"});
  expect_error(run_here(with(run, {"--metrics-port", "-1"})), 2, {"--metrics-port '-1'"});
  expect_error(run_here({"topology", "linear", "--ranks", "20000", "--json"}), 2,
               {"period of", "use fewer ranks"});
  EXPECT_FALSE(fs::exists(folder.path() / "never" / "model.pt"));
}

// Beside the run, for as long as it lasts.
TEST(Adversity, MetricsAreThereWhileTheRunGoesOn) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  Process process(with(linear_run(out), {"--metrics-port", "0", "--tensorboard", "--steps",
                                         "100000", "--delay", "rotate=20ms..20ms"}));
  ASSERT_TRUE(process.wait_for_output("/metrics")) << process.wait().describe();
  const std::string& said = process.so_far().err;
  const std::string marker = "metrics: http://127.0.0.1:";
  ASSERT_NE(said.find(marker), std::string::npos) << said;
  const int port = std::stoi(said.substr(said.find(marker) + marker.size()));
  std::string answer;
  for (int i = 0; i < 600 && answer.find("grapevine_steps_total{rank=\"1\"}") == std::string::npos;
       ++i) {
    ::usleep(50'000);
    answer = http_get(port, "/metrics");
  }
  EXPECT_NE(answer.find("grapevine_steps_total{rank=\"1\"}"), std::string::npos) << answer;
  const auto taken = run_process(
      with(linear_run(folder.path() / "other"), {"--metrics-port", std::to_string(port)}));
  expect_error(taken, 2, {"--metrics-port " + std::to_string(port), "in use"});
  process.signal(SIGTERM);
  EXPECT_EQ(process.wait().exit_code, 4);
  EXPECT_TRUE(fs::exists(out / "tensorboard/rank-0000"));
  EXPECT_TRUE(fs::exists(out / "tensorboard/rank-0001"));
}

}  // namespace adversity_test
}  // namespace grapevine
