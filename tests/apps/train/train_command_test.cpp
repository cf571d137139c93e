// `grapevine train` as a user runs it: outputs, bad input, signals, resume.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include <torch/script.h>
#include <nlohmann/json.hpp>

#include "net/ucx/ucx.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/run_here.hpp"
#include "tests/apps/train/train_run.hpp"
#include "tests/apps/zoo/models/script_model.hpp"

namespace grapevine {
namespace train_command_test {

namespace fs = std::filesystem;
using nlohmann::json;

// A run of a second.
std::vector<std::string> small_run(const fs::path& out) {
  return {"train", "--model",      "linear",    "--data",  "glyphs:640", "--workers",
          "2",     "--batch-size", "16",        "--steps", "12",         "--threads",
          "1",     "--out",        out.string()};
}

void expect_bad_input(const std::vector<std::string>& arguments,
                      const std::vector<std::string>& parts) {
  const ProcessResult result = run_here(arguments);
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  const std::string line = ProcessResult::last_line(result.err);
  EXPECT_EQ(line.rfind("error: ", 0), 0u) << result.describe();
  for (const std::string& part : parts)
    EXPECT_NE(line.find(part), std::string::npos) << "wanted '" << part << "' in: " << line;
}

// Servers are no workers: they show in their own block, and nowhere else.
TEST(TrainCommand, SaysHowServersServed) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const auto arguments =
      with(small_run(out), {"--algorithm", "gem", "--set", "wiring.servers=3", "--json"});
  const ProcessResult result = run_here(arguments);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const json summary = json::parse(ProcessResult::last_line(result.out));
  EXPECT_EQ(summary["workers"], 2);
  EXPECT_EQ(summary["steps"], 12);
  EXPECT_EQ(summary["samples"], 2 * 12 * 16);
  EXPECT_EQ(summary["contributions"]["applied"], 24);
  const json& server = summary["server"];
  ASSERT_EQ(server["servers"].size(), 3u);
  std::int64_t staleness = 0;
  for (const auto& [tau, count] : server["staleness_histogram"].items())
    staleness += count.get<std::int64_t>();
  EXPECT_EQ(staleness, 3 * 24);
  for (const json& one : server["servers"]) {
    EXPECT_EQ(one["commits"], 24);
    EXPECT_EQ(one["refused"], 0);
    EXPECT_EQ(one["inversions"], 0);
    EXPECT_GE(one["queue_wait_seconds"]["max"], one["queue_wait_seconds"]["p50"]);
    EXPECT_GT(one["occupancy"], 0.0);
    EXPECT_LE(one["occupancy"], 1.0);
    // Nothing where the first client leaves before ten services of each.
    if (!one["jain_index"].is_null()) {
      EXPECT_LE(one["jain_index"]["min"], one["jain_index"]["mean"]);
    }
  }
  EXPECT_EQ(server["energy"]["proxy"].size(), 10u);
  EXPECT_GT(server["energy"]["proxy"][5], 0.0);
  EXPECT_GT(server["energy"]["central"][5], 0.0);
  EXPECT_EQ(server["energy"]["median_pi"].size(), 2u) << "weight and bias";
  // The rows of metrics.csv are the workers' alone, before and after a resume.
  const ProcessResult longer =
      run_here(with(arguments, {"--resume", out.string(), "--steps", "20"}));
  ASSERT_EQ(longer.exit_code, 0) << longer.describe();
  EXPECT_EQ(json::parse(ProcessResult::last_line(longer.out))["contributions"]["applied"], 40);
  std::ifstream metrics(out / "metrics.csv");
  std::map<std::string, int> rows;  // of steps, by rank
  std::string line;
  std::getline(metrics, line);
  while (std::getline(metrics, line))
    if (line.find(",,,,,") == std::string::npos) ++rows[line.substr(0, line.find(','))];
  EXPECT_EQ(rows, (std::map<std::string, int>{{"0", 20}, {"1", 20}}));
}

TEST(TrainCommand, WritesWhatTheContractSays) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const ProcessResult result = run_process(with(small_run(out), {"--json"}));
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const json summary = json::parse(ProcessResult::last_line(result.out));
  EXPECT_EQ(summary, json::parse(read_file(out / "summary.json")));
  for (const char* key : {"algorithm",
                          "wiring",
                          "model",
                          "data",
                          "workers",
                          "parameters",
                          "steps",
                          "samples",
                          "seed",
                          "wall_seconds",
                          "samples_per_second",
                          "final_loss",
                          "test_accuracy",
                          "test_loss",
                          "bytes_sent",
                          "messages_sent",
                          "consensus_distance",
                          "staleness",
                          "contributions",
                          "step_seconds",
                          "views",
                          "batches",
                          "goodput",
                          "versions"})
    EXPECT_TRUE(summary.contains(key)) << key;
  EXPECT_EQ(summary["algorithm"], "sgp");
  EXPECT_EQ(summary["samples"], 2 * 12 * 16);
  EXPECT_EQ(summary["contributions"]["produced"], 24);
  EXPECT_EQ(summary["contributions"]["applied"], 24);
  EXPECT_EQ(summary["views"], 1);
  EXPECT_EQ(summary["batches"]["left_out"], 0);
  EXPECT_EQ(summary["batches"]["taken_again"], 0);
  EXPECT_GT(summary["goodput"], 0);
  EXPECT_LE(summary["goodput"], 1);
  EXPECT_EQ(summary["parameters"], 7850);

  std::ifstream metrics(out / "metrics.csv");
  std::string line;
  std::getline(metrics, line);
  EXPECT_EQ(line,
            "rank,epoch,step,time_s,batch_time_s,exchange_time_s,data_time_s,loss,top1,top5,lr,"
            "staleness,val_loss,val_top1,val_top5");
  std::size_t rows = 0;
  while (std::getline(metrics, line)) {
    ++rows;
    EXPECT_EQ(std::count(line.begin(), line.end(), ','), 14) << line;
  }
  EXPECT_EQ(rows, 24u);

  const std::string model = read_file(out / "model.pt");
  const auto dict = torch::jit::pickle_load({model.begin(), model.end()}).toGenericDict();
  EXPECT_EQ(dict.size(), 2u);
  EXPECT_TRUE(fs::exists(out / "checkpoint" / "latest" / "job.json"));
  EXPECT_GT(fs::file_size(out / "trace" / "process-0000.gvtrace"), 16u);
}

// Of 1000 samples, in batches of 256: a ratio of whole numbers, without the noise of a mean of
// means.
TEST(TrainCommand, TheAccuracyIsARatioOfWholeNumbers) {
  const TemporaryDirectory folder;
  for (int steps = 3; steps < 9; ++steps) {
    const ProcessResult result =
        run_here(with(small_run(folder.path() / std::to_string(steps)),
                      {"--json", "--data", "glyphs:6000", "--steps", std::to_string(steps)}));
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    const double accuracy =
        json::parse(ProcessResult::last_line(result.out))["test_accuracy"].get<double>();
    const double samples = 1000;
    EXPECT_EQ(accuracy, std::round(accuracy * samples) / samples) << accuracy;
  }
}

// The figures of a run matter where its model cannot be written, too.
TEST(TrainCommand, TheSummaryIsWrittenWhereTheModelIsNot) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  Process process(with(small_run(out), {"--json", "--steps", "1000000"}));
  ASSERT_TRUE(appears(out / "metrics.csv"));
  fs::create_directory(out / "model.pt");
  fs::create_directory(out / "model.pt" / "full");  // no file takes its place
  process.signal(SIGTERM);
  const ProcessResult result = process.wait();
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_NE(ProcessResult::last_line(result.err).find("model.pt"), std::string::npos)
      << result.describe();
  EXPECT_TRUE(json::parse(read_file(out / "summary.json")).contains("final_loss"));
}

// The column of the rates, of the one rank.
std::vector<double> rates_of(const fs::path& out) {
  std::ifstream metrics(out / "metrics.csv");
  std::string line;
  std::getline(metrics, line);
  std::vector<double> rates;
  while (std::getline(metrics, line)) {
    std::vector<std::string> cells;
    std::istringstream row(line);
    for (std::string cell; std::getline(row, cell, ',');) cells.push_back(cell);
    // A validation has none.
    if (cells.size() > 10 && !cells[10].empty()) rates.push_back(std::stod(cells[10]));
  }
  return rates;
}

// What an option of the optimizer or of its rate does reaches the steps: 8 of them, of one rank.
class TrainOptionEffects : public testing::Test {
 protected:
  fs::path train(const std::vector<std::string>& options) {
    const fs::path out = folder_.path() / std::to_string(++runs_);
    const auto result = run_here(with(
        with(small_run(out), {"--workers", "1", "--steps", "8", "--trace", "off", "--lr", "0.1"}),
        options));
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return out;
  }
  void expect_rates(const std::vector<std::string>& options, const std::vector<double>& expected) {
    const std::vector<double> rates = rates_of(train(options));
    ASSERT_EQ(rates.size(), expected.size()) << testing::PrintToString(options);
    for (std::size_t step = 0; step < rates.size(); ++step)
      EXPECT_NEAR(rates[step], expected[step], 1e-6)
          << testing::PrintToString(options) << ", step " << step;
  }

 private:
  TemporaryDirectory folder_;
  int runs_ = 0;
};

TEST_F(TrainOptionEffects, TheRateIsThatOfTheSchedule) {
  const double lr = 0.1;
  expect_rates({}, std::vector<double>(8, lr));
  expect_rates({"--warmup-steps", "4"}, {lr / 4, lr / 2, 3 * lr / 4, lr, lr, lr, lr, lr});
  // 640 samples in batches of 80: an epoch has 8 steps.
  expect_rates({"--batch-size", "80", "--warmup-epochs", "0.5"},
               {lr / 4, lr / 2, 3 * lr / 4, lr, lr, lr, lr, lr});
  expect_rates({"--lr-per-256"}, std::vector<double>(8, lr * 16 / 256));
  expect_rates({"--batch-size", "80", "--lr-schedule", "step:0.5@0.5"},
               {lr, lr, lr, lr, lr / 2, lr / 2, lr / 2, lr / 2});
}

TEST_F(TrainOptionEffects, EachChangesTheModel) {
  using Options = std::vector<std::string>;
  const std::vector<std::pair<Options, Options>> changes = {
      {{}, {"--nesterov"}},
      {{}, {"--weight-decay", "0.1"}},
      {{"--weight-decay", "0.1"}, {"--weight-decay", "0.1", "--no-decay"}},
      {{}, {"--label-smoothing", "0.1"}},
      {{}, {"--optimizer", "adamw"}},
      {{}, {"--accumulate", "2"}},
      {{"--warmup-steps", "4"}, {"--warmup-steps", "4", "--warmup-from", "0.5"}}};
  for (const auto& [without, option] : changes) {
    const std::string before = read_file(train(without) / "model.pt"),
                      after = read_file(train(option) / "model.pt"),
                      again = read_file(train(option) / "model.pt");
    ASSERT_FALSE(before.empty());
    EXPECT_NE(before, after) << testing::PrintToString(option) << " changes nothing";
    EXPECT_EQ(after, again) << testing::PrintToString(option);
  }
}

TEST(TrainCommand, OneStepIsNotOneSteps) {
  const TemporaryDirectory folder;
  const ProcessResult result =
      run_here(with(small_run(folder.path() / "run"), {"--steps", "1", "--workers", "1"}));
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.err.find("1 worker x batch 16, 1 step\n"), std::string::npos) << result.err;
}

TEST(TrainCommand, EqualSeedsGiveEqualModels) {
  const TemporaryDirectory folder;
  for (const std::string algorithm : {"ar", "sgp", "osgp"}) {
    const fs::path one = folder.path() / (algorithm + "-one");
    const fs::path other = folder.path() / (algorithm + "-other");
    const auto here = run_here(with(small_run(one), {"--algorithm", algorithm}));
    ASSERT_EQ(here.exit_code, 0) << here.describe();
    const auto process = run_process(with(small_run(other), {"--algorithm", algorithm}));
    ASSERT_EQ(process.exit_code, 0) << process.describe();
    EXPECT_TRUE(read_file(one / "model.pt") == read_file(other / "model.pt")) << algorithm;
  }
}

TEST(TrainCommand, BadInputIsOneClearLineAndExitCode2) {
  const TemporaryDirectory folder;
  const auto run = [&](const std::vector<std::string>& more) {
    return with(small_run(folder.path() / "never"), more);
  };
  const ProcessResult unknown = run_process({"trian"});
  EXPECT_EQ(unknown.exit_code, 2) << unknown.describe();
  EXPECT_EQ(ProcessResult::last_line(unknown.err).rfind("error: unknown command 'trian'", 0), 0U)
      << unknown.describe();
  EXPECT_NE(unknown.err.find("did you mean 'train'"), std::string::npos) << unknown.describe();
  expect_bad_input(run({"--algorithm", "spg"}), {"unknown algorithm 'spg'", "'sgp'", "osgp"});
  expect_bad_input(run({"--workers", "0"}), {"--workers 0", "expected 1"});
  expect_bad_input(run({"--lr", "-1"}), {"lr"});
  expect_bad_input(run({"--lr", "nan"}), {"lr"});
  expect_bad_input(run({"--lr", ""}), {"lr", "empty"});
  expect_bad_input(run({"--threads", "100000"}), {"--threads 100000", "0..256"});
  expect_bad_input(run({folder.path().string()}), {"is a folder"});
  expect_bad_input(run({"--model", "lenett"}), {"unknown model 'lenett'", "'lenet'"});
  expect_bad_input(run({"--data", "glyfs"}), {"unknown data", "'glyphs'"});
  expect_bad_input(run({"--data", "mnist:/nowhere"}), {"/nowhere"});
  expect_bad_input(run({"--batch-size", "4000"}), {"4000", "640"});
  expect_bad_input(run({"--optimizer", "sdg"}), {"'sgd'"});
  expect_bad_input(run({"--delay", "rank=9:1ms"}), {"rank=9:1ms", "0..1"});
  expect_bad_input(run({"--delay", "length"}), {"length", "glyphs", "sequences"});
  expect_bad_input(run({"--transport", "tcp"}), {"tcp", "inproc"});
  expect_bad_input(run({"--set", "wiring.topologie=ring"}), {"'topologie'", "'topology'"});
  expect_bad_input(run({"--set", "wiring.topology=rnig"}), {"'rnig'", "'ring'"});
  expect_bad_input(run({"--set", "wiring.staleness=2"}), {"staleness", "overlap"});
  expect_bad_input(run({"--workers", "3", "--set", "wiring.topology=hypercube"}),
                   {"hypercube", "3"});
  expect_bad_input(run({"--no-such-option"}), {"no-such-option", "--help"});
  expect_bad_input(run({"--resume", folder.path().string()}), {"no checkpoint"});
  expect_bad_input(run({(folder.path() / "missing.toml").string()}), {"missing.toml"});
  expect_bad_input(run({"/dev/zero"}), {"/dev/zero", "larger than 1 MiB"});
  const fs::path deep = folder.path() / "deep.toml";
  {
    std::ofstream keys(deep);
    keys << "lr = 0.1\na";
    for (int i = 0; i < 200000; ++i) keys << ".a";
    keys << " = 1\n";
  }
  expect_bad_input(run({deep.string()}), {"deep.toml:2", "more than 1000 dots"});
  EXPECT_FALSE(fs::exists(folder.path() / "never")) << "something was written before the checks";
}

TEST(TrainCommand, UnwritableOutputIsRefused) {
  const TemporaryDirectory folder;
  const fs::path file = folder.path() / "file";
  std::ofstream(file) << "x";
  expect_bad_input(small_run(file / "below"), {"below"});
}

TEST(TrainCommand, ATorchScriptFileThatDoesNotFitIsRefused) {
  const TemporaryDirectory folder;
  const std::string path =
      save_script_model(folder.path() / "wrong.pt", at::randn({3, 4}),
                        "def forward(self, x):\n  return x.flatten(1)[:, :3].matmul(self.w)\n");
  const auto run = with(small_run(folder.path() / "never"), {"--model", path});
  expect_bad_input(run, {"wrong.pt", "[2, 4]", "[2, 10]"});
}

TEST(TrainCommand, ATorchScriptFileThatCannotLearnIsRefused) {
  const TemporaryDirectory folder;
  const std::string path =
      save_script_model(folder.path() / "detached.pt", at::randn({784, 10}),
                        "def forward(self, x):\n  return x.flatten(1).matmul(self.w).detach()\n");
  expect_bad_input(with(small_run(folder.path() / "never"), {"--model", path}),
                   {"detached.pt", "no gradient"});
}

TEST(TrainCommand, TrainsATorchScriptFile) {
  const TemporaryDirectory folder;
  const std::string path =
      save_script_model(folder.path() / "fits.pt", at::zeros({784, 10}),
                        "def forward(self, x):\n  return x.flatten(1).matmul(self.w)\n");
  const fs::path out = folder.path() / "run";
  const auto result = run_here(with(small_run(out), {"--model", path}));
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  auto trained = torch::jit::load((out / "model.pt").string());
  EXPECT_GT(trained.attr("w").toTensor().abs().max().item<double>(), 0);
}

TEST(TrainCommand, JobFileEnvironmentAndCommandLineInThisOrder) {
  const TemporaryDirectory folder;
  const fs::path job = folder.path() / "job.toml";
  std::ofstream(job) << "workers = 3\nbatch_size = 8\nseed = 5\n\n[wiring]\ntopology = \"ring\"\n";
  const auto result =
      run_here({"train", job.string(), "--model", "linear", "--data", "glyphs:640", "--steps", "3",
                "--seed", "7", "--json", "--out", (folder.path() / "run").string()},
               {"GRAPEVINE_BATCH_SIZE=10", "GRAPEVINE_SEED=6"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  const json summary = json::parse(ProcessResult::last_line(result.out));
  EXPECT_EQ(summary["workers"], 3);
  EXPECT_EQ(summary["samples"], 3 * 3 * 10);
  EXPECT_EQ(summary["seed"], 7);
  EXPECT_EQ(summary["wiring"]["topology"], "ring");

  // Assignments add up, in the same order.
  std::ofstream(job) << "workers = 4\nset = [\"wiring.peers=1\", \"wiring.staleness=5\", "
                        "\"wiring.local_steps=2\"]\n";
  const auto sums = run_here(
      {"train", job.string(), "--algorithm", "osgp", "--model", "linear", "--data", "glyphs:640",
       "--steps", "3", "--set", "wiring.peers=2", "--out", (folder.path() / "sums").string()},
      {"GRAPEVINE_SET=wiring.staleness=3"});
  ASSERT_EQ(sums.exit_code, 0) << sums.describe();
  const json wiring = summary_of(folder.path() / "sums")["wiring"];
  EXPECT_EQ(wiring["peers"], "2");
  EXPECT_EQ(wiring["staleness"], "3");
  EXPECT_EQ(wiring["local_steps"], "2");

  std::ofstream(job) << "wrokers = 3\n";
  expect_bad_input({"train", job.string()}, {"job.toml:1", "'wrokers'", "'workers'"});
  std::ofstream(job) << "workers = 2\nalgorithm = \"sgpp\"\n";
  expect_bad_input({"train", job.string()}, {"job.toml:2: unknown algorithm 'sgpp'"});
  std::ofstream(job) << "model = \"mpl\"\n";
  expect_bad_input({"train", job.string()}, {"job.toml:1: unknown model 'mpl'"});
  std::ofstream(job) << "workers = \n";
  expect_bad_input({"train", job.string()}, {"job.toml:1"});
}

TEST(TrainCommand, WarnsOfRanksThatNeverMeet) {
  const TemporaryDirectory folder;
  const std::string edges = (folder.path() / "edges.txt").string();
  const auto warned = [&](const std::string& text) {
    std::ofstream(edges) << text;
    const ProcessResult result =
        run_here({"train", "--model", "linear", "--data", "glyphs:640", "--workers", "4",
                  "--batch-size", "16", "--steps", "2", "--threads", "1", "--overwrite", "--out",
                  (folder.path() / "run").string(), "--set", "wiring.topology=file:" + edges});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return result.err.find("falls into 2 groups that exchange nothing") != std::string::npos;
  };
  EXPECT_TRUE(warned("0 1\n2 3\n"));
  EXPECT_FALSE(warned("0 1\n2 3\n1 2\n"));
}

TEST(TrainCommand, ANonFiniteLossEndsTheRunWithExitCode1) {
  const TemporaryDirectory folder;
  const auto result =
      run_here(with(small_run(folder.path() / "run"), {"--lr", "1e30", "--model", "mlp"}));
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_NE(ProcessResult::last_line(result.err).find("not finite"), std::string::npos)
      << result.describe();
  // The loss of the model that it ends with, too.
  const fs::path out = folder.path() / "end";
  const auto end =
      run_here(with(small_run(out), {"--lr", "1e38", "--model", "mlp", "--steps", "1"}));
  EXPECT_EQ(end.exit_code, 1) << end.describe();
  const std::string error = summary_of(out).value("error", "");
  EXPECT_EQ(ProcessResult::last_line(end.err), "error: " + error) << end.describe();
}

// Ctrl-C leaves a checkpoint, and going on from it gives the bits of a run that was never stopped.
TEST(TrainCommand, StopsOnASignalAndResumesBitForBit) {
  const TemporaryDirectory folder;
  for (const std::string algorithm : {"ar", "sgp", "osgp"}) {
    SCOPED_TRACE(algorithm);
    const fs::path straight = folder.path() / (algorithm + "-straight");
    const fs::path stopped = folder.path() / (algorithm + "-stopped");
    const std::vector<std::string> more = {"--algorithm", algorithm, "--steps", "60"};
    ASSERT_EQ(run_here(with(small_run(straight), more)).exit_code, 0);

    // Slow enough to be interrupted in the middle: after its first checkpoint.
    Process process(with(with(small_run(stopped), more),
                         {"--delay", "rank=0:30ms", "--checkpoint-every", "0.5"}));
    ASSERT_TRUE(process.wait_for_output("60 steps"));
    ASSERT_TRUE(appears(stopped / "checkpoint" / "latest" / "job.json"));
    process.signal(SIGINT);
    const ProcessResult interrupted = process.wait();
    ASSERT_EQ(interrupted.exit_code, 4) << interrupted.describe();
    EXPECT_EQ(ProcessResult::last_line(interrupted.err),
              "error: stopped by request; resume with --resume " + stopped.string());
    const json summary = json::parse(read_file(stopped / "summary.json"));
    EXPECT_TRUE(summary["interrupted"]);
    EXPECT_TRUE(summary["test_loss"].is_null()) << "the whole test set would delay the end";

    const auto resumed =
        run_here(with(small_run(stopped), with(more, {"--resume", stopped.string()})));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.describe();
    EXPECT_EQ(read_file(straight / "model.pt"), read_file(stopped / "model.pt"));
    const json done = json::parse(read_file(stopped / "summary.json"));
    EXPECT_EQ(done["contributions"]["produced"], 120);
  }
}

TEST(TrainCommand, SigusrWritesACheckpointAndGoesOn) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  Process process(with(small_run(out),
                       {"--delay", "rank=0:100ms", "--steps", "30", "--checkpoint-keep", "all"}));
  ASSERT_TRUE(process.wait_for_output("30 steps"));
  process.signal(SIGUSR1);
  const ProcessResult result = process.wait();
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(out / "checkpoint"))
    names.insert(entry.path().filename().string());
  EXPECT_EQ(std::count_if(names.begin(), names.end(),
                          [](const std::string& name) { return name.rfind("step-", 0) == 0; }),
            1);
  EXPECT_EQ(names.count("final"), 1u);
}

std::set<std::string> names_in(const fs::path& folder) {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder))
    names.insert(entry.path().filename().string());
  return names;
}

// SIGUSR1 with --requeue-command: a checkpoint, the end, and the command, which finds the folder.
TEST(TrainCommand, SigusrRunsTheRequeueCommand) {
  const TemporaryDirectory folder;
  const fs::path straight = folder.path() / "straight", out = folder.path() / "run";
  const fs::path note = folder.path() / "note";
  const std::vector<std::string> more = {"--steps", "40", "--requeue-command",
                                         "echo $GRAPEVINE_REQUEUE_FOLDER > " + note.string()};
  ASSERT_EQ(run_process(with(small_run(straight), more)).exit_code, 0);
  EXPECT_FALSE(fs::exists(note)) << "nobody asked for it";

  Process process(with(with(small_run(out), more), {"--delay", "rank=0:100ms"}));
  ASSERT_TRUE(process.wait_for_output("40 steps"));
  process.signal(SIGUSR1);
  const ProcessResult stopped = process.wait();
  ASSERT_EQ(stopped.exit_code, 4) << stopped.describe();
  EXPECT_EQ(read_file(note), out.string() + "\n");
  EXPECT_TRUE(json::parse(read_file(out / "summary.json"))["interrupted"]);

  // What the command starts goes on where this has stopped.
  const auto resumed = run_process(with(small_run(out), with(more, {"--resume", out.string()})));
  ASSERT_EQ(resumed.exit_code, 0) << resumed.describe();
  EXPECT_EQ(read_file(straight / "model.pt"), read_file(out / "model.pt"));
}

// The command has SIGPIPE as usual; `train` itself still ignores it when it says how it ended.
TEST(TrainCommand, AfterTheRequeueCommandTheReaderMayStillGo) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run", gone = folder.path() / "gone";
  const std::string wait = "until [ -e " + gone.string() +
                           " ]; do sleep 0.05; done; "
                           "grep SigIgn /proc/self/status > " +
                           (folder.path() / "ignored").string();
  ProcessOptions shell;
  shell.program = "/bin/sh";
  shell.environment = {"FOLDER=" + folder.path().string()};
  std::vector<std::string> arguments = {
      "-c",
      "{ \"$@\" 2>&1 >/dev/null & echo $! > \"$FOLDER/pid\"; wait $!; echo $? > \"$FOLDER/code\"; "
      "} |\n"
      "{ grep -q '40 steps'; kill -USR1 $(cat \"$FOLDER/pid\"); exec <&-\n"
      "echo > \"$FOLDER/gone\"; until [ -s \"$FOLDER/code\" ]; do sleep 0.05; done; }",
      "sh", GRAPEVINE_EXECUTABLE};
  for (const std::string& argument : with(
           small_run(out), {"--delay", "rank=0:100ms", "--steps", "40", "--requeue-command", wait}))
    arguments.push_back(argument);
  run_process(arguments, shell);
  EXPECT_EQ(read_file(folder.path() / "code"), "4\n");
  std::ifstream file(folder.path() / "ignored");
  std::string name;
  std::uint64_t mask = ~0ULL;
  file >> name >> std::hex >> mask;
  EXPECT_EQ(mask >> (SIGPIPE - 1) & 1, 0U) << std::hex << mask;
}

TEST(TrainCommand, ARequeueCommandThatFailsIsNamed) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  Process process(with(
      small_run(out), {"--delay", "rank=0:100ms", "--steps", "40", "--requeue-command", "exit 7"}));
  ASSERT_TRUE(process.wait_for_output("40 steps"));
  process.signal(SIGUSR1);
  const ProcessResult result = process.wait();
  EXPECT_EQ(result.exit_code, 1) << result.describe();
  EXPECT_EQ(
      ProcessResult::last_line(result.err),
      "error: --requeue-command 'exit 7' failed with exit code 7: continue by hand with --resume " +
          out.string());
  EXPECT_TRUE(fs::exists(out / "checkpoint" / "latest" / "job.json"));
}

// Rows of metrics.csv that hold a validation loss.
std::vector<std::string> validation_rows(const fs::path& out) {
  std::ifstream metrics(out / "metrics.csv");
  std::vector<std::string> rows;
  std::string line;
  std::getline(metrics, line);
  while (std::getline(metrics, line))
    if (line.size() < 3 || line.compare(line.size() - 3, 3, ",,,") != 0) rows.push_back(line);
  return rows;
}

TEST(TrainCommand, ValidatesAfterEachEpochOrAtTheEnd) {
  const TemporaryDirectory folder;
  json tested;
  for (const std::string when : {"epoch", "end"}) {
    SCOPED_TRACE(when);
    const fs::path out = folder.path() / when;
    // 640 samples, 2 x 16 of them in a step: an epoch is 20 steps.
    const auto result =
        run_here(with(small_run(out), {"--algorithm", "ar", "--steps", "60", "--validate", when}));
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    const auto rows = validation_rows(out);
    const json summary = json::parse(read_file(out / "summary.json"));
    EXPECT_GT(summary["test_accuracy"], 0.2);
    if (when == "end") {
      EXPECT_EQ(rows.size(), 0U) << rows.front();
      EXPECT_EQ(summary["test_loss"], tested["test_loss"]);
      continue;
    }
    tested = summary;
    ASSERT_EQ(rows.size(), 3U);
    for (std::size_t epoch = 0; epoch < 3; ++epoch)
      EXPECT_EQ(rows[epoch].rfind("0," + std::to_string(epoch) + ",", 0), 0U) << rows[epoch];
  }
  expect_bad_input(with(small_run(folder.path() / "never"), {"--validate", "ned"}),
                   {"'ned'", "'end'", "epoch"});
}

TEST(TrainCommand, KeepsAllCheckpointsOrTheLatest) {
  const TemporaryDirectory folder;
  for (const std::string keep : {"all", "latest"}) {
    SCOPED_TRACE(keep);
    const fs::path out = folder.path() / keep;
    const auto result =
        run_here(with(small_run(out), {"--steps", "60", "--delay", "rotate=20ms..20ms",
                                       "--checkpoint-every", "1", "--checkpoint-keep", keep}));
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    const std::set<std::string> names = names_in(out / "checkpoint");
    EXPECT_EQ(names.count("latest"), 1U);
    EXPECT_EQ(names.count("final"), 1U);
    // One for each of the epochs that end before the run does, unless the next one came too soon.
    if (keep == "all")
      EXPECT_GE(names.size(), 3U);
    else
      EXPECT_EQ(names.size(), 2U);
    EXPECT_EQ(fs::canonical(out / "checkpoint" / "latest").filename(), "final");
    EXPECT_TRUE(fs::exists(out / "checkpoint" / "latest" / "rank-0001.pt"));
  }
  expect_bad_input(with(small_run(folder.path() / "never"), {"--checkpoint-keep", "last"}),
                   {"last", "latest", "all", "best"});
}

TEST(TrainCommand, EpochsOrStepsButNotBoth) {
  const TemporaryDirectory folder;
  const auto steps_of = [&](const std::vector<std::string>& arguments,
                            const std::vector<std::string>& environment) {
    const auto result =
        run_here(with({"train", "--model", "linear", "--data", "glyphs:640", "--workers", "2",
                       "--batch-size", "16", "--threads", "1", "--json", "--trace", "off",
                       "--overwrite", "--out", (folder.path() / "run").string()},
                      arguments),
                 environment);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return json::parse(ProcessResult::last_line(result.out))["steps"].get<std::int64_t>();
  };
  expect_bad_input(with(small_run(folder.path() / "never"), {"--epochs", "2.5"}),
                   {"--epochs 2.5", "--steps 12", "one of them"});
  const fs::path job = folder.path() / "job.toml";
  std::ofstream(job) << "epochs = 3\nsteps = 4\n";
  expect_bad_input({"train", job.string()}, {"--epochs 3", "--steps 4"});
  // What stands above the other counts: command line, environment, job file.
  EXPECT_EQ(steps_of({job.string(), "--epochs", "0.5"}, {}), 10);
  EXPECT_EQ(steps_of({job.string(), "--steps", "7"}, {}), 7);
  EXPECT_EQ(steps_of({job.string()}, {"GRAPEVINE_STEPS=5"}), 5);
  EXPECT_EQ(steps_of({"--epochs", "0.5"}, {"GRAPEVINE_STEPS=5"}), 10);
  EXPECT_EQ(steps_of({"--steps", "6"}, {"GRAPEVINE_EPOCHS=0.5"}), 6);
}

// Seen before any work, not when it is done.
TEST(TrainCommand, AFolderInThePlaceOfAFileIsRefused) {
  for (const char* name : {"summary.json", "model.pt", "metrics.csv", "job.toml"}) {
    const TemporaryDirectory folder;
    const fs::path out = folder.path() / "run";
    fs::create_directories(out / name);
    expect_bad_input(small_run(out), {(out / name).string(), "is a folder"});
    EXPECT_EQ(names_in(out), std::set<std::string>{name});
  }
}

// Opening it would wait for a reader.
TEST(TrainCommand, APipeInThePlaceOfAFileIsRefused) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  fs::create_directories(out);
  ASSERT_EQ(::mkfifo((out / "metrics.csv").c_str(), 0600), 0);
  expect_bad_input(small_run(out), {"metrics.csv", "is a pipe"});
}

TEST(TrainCommand, NumbersInErrorsAreShort) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const auto run = [&](const std::vector<std::string>& more) {
    return with(small_run(folder.path() / "never"), more);
  };
  expect_bad_input(run({"--momentum", "1"}), {"--momentum 1:", "[0, 1)"});
  expect_bad_input(run({"--momentum", "-0.1"}), {"--momentum -0.1:", "[0, 1)"});
  expect_bad_input(run({"--weight-decay", "-1e-5"}), {"--weight-decay -1e-05:"});
  expect_bad_input(run({"--timeout", "-0.5"}), {"--timeout -0.5:"});
  ASSERT_EQ(run_here(small_run(out)).exit_code, 0);
  expect_bad_input(with(small_run(out), {"--resume", out.string(), "--momentum", "0"}),
                   {"momentum was 0.9, now it is 0:"});
}

TEST(TrainCommand, ANetworkInterfaceThatIsNotThereIsRefused) {
  for (const std::string transport : {"tcp", "ucx"}) {
    if (transport == "ucx" && !ucx_built_in()) GTEST_SKIP() << "UCX is not in this build";
    const TemporaryDirectory folder;
    const auto result = run_process(with(
        {"launch", "-n", "2", "--"},
        with(small_run(folder.path() / "run"),
             {"--workers", "1", "--transport", transport, "--network-interface", "nonsense0"})));
    EXPECT_EQ(result.exit_code, 2) << transport << ": " << result.describe();
    EXPECT_NE(result.err.find("error: "), std::string::npos) << result.describe();
    EXPECT_NE(result.err.find("nonsense0"), std::string::npos) << result.describe();
  }
}

TEST(TrainCommand, ReachesItsAccuracyOnMnist) {
  const fs::path data = fs::path(GRAPEVINE_SOURCE_DIR) / ".." / "shared" / "data";
  if (!fs::exists(data / "train-images-idx3-ubyte.gz"))
    GTEST_SKIP() << "MNIST is not at " << data << ": nothing to train on";
  const TemporaryDirectory folder;
  ProcessOptions options;
  options.timeout = std::chrono::minutes(10);
  const auto result = run_process(
      {"train", "--algorithm", "sgp", "--model", "lenet", "--data", "mnist:" + data.string(),
       "--workers", "4", "--epochs", "1", "--json", "--out", (folder.path() / "run").string()},
      options);
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_GE(json::parse(ProcessResult::last_line(result.out))["test_accuracy"], 0.97);
}

}  // namespace train_command_test
}  // namespace grapevine
