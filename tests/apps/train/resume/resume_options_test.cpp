// Runs that continue: without their options, with some changed, or only where there is one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "apps/train/resume/saved_job.hpp"
#include "apps/train/train_resume.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/run_here.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace resume_options_test {

namespace fs = std::filesystem;

// 20 steps an epoch.
std::vector<std::string> run_of(const std::string& algorithm, const fs::path& out) {
  return {"train",      "--algorithm", algorithm, "--model", "linear",    "--data",
          "glyphs:640", "--workers",   "2",       "--steps", "30",        "--batch-size",
          "16",         "--threads",   "1",       "--out",   out.string()};
}

void expect_ends(const std::vector<std::string>& arguments, int code,
                 const std::vector<std::string>& parts = {}) {
  const ProcessResult result = run_here(arguments);
  EXPECT_EQ(result.exit_code, code) << testing::PrintToString(arguments) << result.describe();
  for (const std::string& part : parts)
    EXPECT_NE(result.err.find(part), std::string::npos) << part << "\n" << result.describe();
}

// Versions with the ring as default did not state it.
TEST(SavedIdentity, OfARunWithoutAStatedAllReduceHasTheRing) {
  const std::string key = "wiring.all_reduce", of_level = "wiring.level.1.all_reduce";
  JobIdentity of_ring = saved_identity({{"wiring.exchange", "aggregate"}});
  EXPECT_EQ(of_ring[key], "ring");
  EXPECT_EQ(of_ring["wiring.pack"], "gradient");
  JobIdentity stated = saved_identity({{"wiring.exchange", "aggregate"}, {key, "auto"}});
  EXPECT_EQ(stated[key], "auto");
  const JobIdentity levels = saved_identity({{"wiring.level.1.exchange", "aggregate"},
                                             {"wiring.level.1.ranks", "2"},
                                             {"wiring.exchange", "gossip"}});
  ASSERT_EQ(levels.count(of_level), 1U) << testing::PrintToString(levels);
  EXPECT_EQ(levels.at(of_level), "ring");
  EXPECT_EQ(saved_identity({{"wiring.exchange", "gossip"}}).count(key), 0U);
}

// The identity of a checkpoint has what its defaults were.
TEST(Resume, TheCheckpointStatesTheAllReduce) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  expect_ends(run_of("ar", out), 0);
  const auto checkpoint = read_checkpoint((out / "checkpoint" / "final").string());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->identity.at("wiring.all_reduce"), "auto");
}

TEST(Resume, NeedsNoOtherOption) {
  const TemporaryDirectory folder;
  const fs::path whole = folder.path() / "whole", parts = folder.path() / "parts";
  expect_ends(with(run_of("ar", whole), {"--steps", "40", "--optimizer", "adam", "--lr", "0.01"}),
              0);
  expect_ends(with(run_of("ar", parts), {"--optimizer", "adam", "--lr", "0.01"}), 0);
  for (const fs::path& given : {parts, parts / "checkpoint"}) {
    SCOPED_TRACE(given);
    const std::string steps = given == parts ? "35" : "40";
    expect_ends({"train", "--resume", given.string(), "--out", parts.string(), "--steps", steps}, 0,
                {"continues", "at step"});
  }
  EXPECT_EQ(summary_of(parts)["steps"], 40);
  EXPECT_TRUE(read_file(parts / "model.pt") == read_file(whole / "model.pt"));
}

TEST(Resume, SaysThatTheJobOfTheStateIsDamaged) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  expect_ends(run_of("ar", out), 0);
  std::ofstream(out / "checkpoint/latest/job.toml") << "damaged";
  expect_ends({"train", "--resume", out.string(), "--steps", "35"}, 0, {"job.toml is damaged"});
}

// A file cut at a line is valid, and would leave its last options at their defaults.
TEST(Resume, NoticesAJobFileThatIsCut) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run", alone = folder.path() / "alone";
  expect_ends(with(run_of("ar", out), {"--lr", "0.01"}), 0);
  const fs::path job = out / "checkpoint/final/job.toml";
  const std::string text = read_file(job);
  std::ofstream(job, std::ios::trunc) << text.substr(0, text.find("\nlr = ") + 1);
  fs::copy(out / "checkpoint/final", alone);
  expect_ends({"train", "--resume", alone.string(), "--out", (folder.path() / "new").string()}, 2,
              {"job.toml: damaged"});
  expect_ends({"train", "--resume", out.string(), "--steps", "35"}, 0, {"job.toml is damaged"});
  EXPECT_EQ(summary_of(out)["options"]["lr"], 0.01);
}

// Programs that copy may leave links out.
TEST(Resume, FindsTheCheckpointOfACopyWithoutLinks) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  expect_ends(run_of("ar", out), 0);
  fs::remove(out / "checkpoint/latest");
  fs::remove(out / "summary.json");
  expect_ends(run_of("ar", out), 2, {"holds a run", "--resume " + out.string()});
  expect_ends(with(run_of("ar", out), {"--steps", "40", "--resume", "auto"}), 0, {"at step 30"});
}

// Its state is that of another role.
TEST(Resume, RefusesAnotherAlgorithm) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  expect_ends(run_of("sgp", out), 0);
  const std::vector<std::string> longer = {"train", "--steps", "40", "--resume", out.string()};
  expect_ends(with(longer, {"--algorithm", "ar"}), 2,
              {"algorithm 'sgp', not of --algorithm ar", "--init"});
  expect_ends(with(longer, {"--algorithm", "sgp"}), 0);
  // A command that is repeated, of a run that may have changed its algorithm.
  expect_ends(with(run_of("ar", out), {"--steps", "50", "--resume", "auto"}), 0,
              {"its algorithm 'sgp': --algorithm ar does not count"});
  EXPECT_EQ(summary_of(out)["algorithm"], "sgp");
}

// Earlier programs accepted them, and took all other ranks.
TEST(Resume, TakesAllOtherRanksInPlaceOfMorePeersThanThere) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const auto run = with(run_of("sgp", out), {"--workers", "3", "--set", "wiring.peers=2"});
  expect_ends(run, 0);
  const fs::path saved = out / "checkpoint/final";
  auto job = nlohmann::json::parse(read_file(saved / "job.json"));
  job["job"]["wiring.peers"] = "5";
  job["files"].erase("job.toml");
  std::ofstream(saved / "job.json") << job;
  std::string text = read_file(saved / "job.toml");
  const std::size_t at = text.find("\npeers = 2\n");
  ASSERT_NE(at, std::string::npos) << text;
  text[text.find('2', at)] = '5';
  std::ofstream(saved / "job.toml") << text;
  const std::vector<std::string> again = {"train", "--resume", out.string(), "--steps", "40"};
  expect_ends(again, 2, {"wiring.peers = 5", "choose at most 2"});
  expect_ends(with(again, {"--set", "wiring.peers=1"}), 2, {"wiring.peers was 5, now it is 1"});
  expect_ends(with(again, {"--set", "wiring.peers=2"}), 0, {"continues", "at step 30"});
}

TEST(Resume, TakesChangedOptionsAndSaysSo) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  expect_ends(run_of("ar", out), 0);
  expect_ends({"train", "--resume", out.string(), "--steps", "40", "--lr", "0.001", "--lr-schedule",
               "cosine", "--weight-decay", "0.01"},
              0,
              {"lr 0.001 instead of 0.03", "lr-schedule cosine instead of constant",
               "weight-decay 0.01 instead of 0"});
  EXPECT_EQ(summary_of(out)["options"]["lr"], 0.001);
  // The changes last.
  expect_ends({"train", "--resume", out.string(), "--steps", "45"}, 0);
  EXPECT_EQ(summary_of(out)["options"]["lr"], 0.001);
  // What the state holds does not change.
  expect_ends({"train", "--resume", out.string(), "--steps", "50", "--momentum", "0"}, 2,
              {"momentum"});
  expect_ends({"train", "--resume", out.string(), "--steps", "50", "--model", "mlp"}, 2, {"model"});
}

// The epochs go on where they were: 1.5 with 20 steps each, the rest with 10.
TEST(Resume, TakesAnotherBatchSize) {
  for (const std::string algorithm : {"ar", "sgp", "eager-solo", "downpour"}) {
    SCOPED_TRACE(algorithm);
    const TemporaryDirectory folder;
    const fs::path out = folder.path() / "run";
    expect_ends(run_of(algorithm, out), 0);
    expect_ends({"train", "--resume", out.string(), "--epochs", "3", "--batch-size", "32"}, 0,
                {"batch-size 32 instead of 16"});
    EXPECT_EQ(summary_of(out)["steps"], 45);
    EXPECT_EQ(summary_of(out)["samples"], 3 * 640);
    const std::string rows = read_file(out / "metrics.csv");
    EXPECT_NE(rows.find("\n0,2,"), std::string::npos) << "the validation of the third epoch\n"
                                                      << rows;
    // Again with that size, which is the job's now.
    expect_ends({"train", "--resume", out.string(), "--epochs", "4"}, 0);
  }
}

// The epochs go on where they were: 1.5 with 20 steps of two workers each, the rest with 10 of
// four, then with 40 of one.
TEST(Resume, TakesAnotherNumberOfWorkers) {
  for (const std::string algorithm : {"ar", "sgp", "eager-solo", "gtopk"}) {
    SCOPED_TRACE(algorithm);
    const TemporaryDirectory folder;
    const fs::path out = folder.path() / "run";
    expect_ends(run_of(algorithm, out), 0);
    expect_ends({"train", "--resume", out.string(), "--epochs", "3", "--workers", "4"}, 0,
                {"workers 4 instead of 2", "4 workers x batch 16, 45 steps"});
    EXPECT_EQ(summary_of(out)["workers"], 4);
    EXPECT_EQ(summary_of(out)["views"], 2);
    EXPECT_EQ(summary_of(out)["samples"], 3 * 640);
    const std::string rows = read_file(out / "metrics.csv");
    EXPECT_NE(rows.find("\n3,2,"), std::string::npos) << "a step of rank 3 in epoch 2\n" << rows;
    expect_ends({"train", "--resume", out.string(), "--epochs", "4", "--workers", "1"}, 0,
                {"workers 1 instead of 4"});
    EXPECT_EQ(summary_of(out)["samples"], 4 * 640);
    expect_ends({"trace", out.string(), "--json"}, 0);
    expect_ends({"evaluate", out.string()}, 0);
  }
}

TEST(Resume, RefusesAnotherNumberOfWorkersBesideServers) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  expect_ends(run_of("downpour", out), 0);
  expect_ends({"train", "--resume", out.string(), "--steps", "50", "--workers", "4"}, 2,
              {"workers was 2, now it is 4", "beside servers", "--init"});
}

// Pairs count the steps of all ranks together.
TEST(Resume, RefusesAnotherBatchSizeOfRanksAtTheirOwnPace) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  expect_ends(run_of("ad-psgd", out), 0);
  expect_ends({"train", "--resume", out.string(), "--epochs", "3", "--batch-size", "32"}, 2,
              {"the batch size cannot change"});
}

// The ranks stand at different steps, and the exchanges would lie elsewhere.
TEST(Resume, RefusesWhatWouldMoveExchanges) {
  const TemporaryDirectory folder;
  const fs::path by_epoch = folder.path() / "by-epoch", by_rate = folder.path() / "by-rate";
  expect_ends(with(run_of("local-sgd", by_epoch), {"--set", "wiring.local_steps=0:2,1:5"}), 0);
  const std::vector<std::string> resume = {"train", "--resume", by_epoch.string(), "--epochs", "3"};
  expect_ends(with(resume, {"--batch-size", "32"}), 2,
              {"local_steps by epoch", "batch size", "--init"});
  expect_ends(with(resume, {"--lr", "0.001"}), 0);
  expect_ends(with(run_of("local-sgd", by_rate), {"--set", "wiring.qsr=0.05"}), 0);
  expect_ends({"train", "--resume", by_rate.string(), "--steps", "40", "--lr", "0.001"}, 2,
              {"wiring.qsr", "learning rate", "--init"});
}

// Of which epochs the rounds are that lie behind, the next checkpoint does not say.
TEST(Resume, RefusesOtherWorkersAfterAnotherBatchSizeWithPeersByEpoch) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  expect_ends(with(run_of("sgp", out), {"--workers", "4", "--set", "wiring.peers=0:1,1:2"}), 0);
  expect_ends({"train", "--resume", out.string(), "--epochs", "4", "--batch-size", "32"}, 0,
              {"batch-size 32 instead of 16"});
  expect_ends({"train", "--resume", out.string(), "--epochs", "5", "--workers", "3"}, 2,
              {"workers was 4, now it is 3", "wiring.peers by epoch", "--init"});
  expect_ends({"train", "--resume", out.string(), "--epochs", "5"}, 0);
}

// A cosine goes on where it was, and ends with the run.
TEST(Resume, TheRateKeepsItsEndWithAnotherNumberOfWorkers) {
  for (const char* workers : {"1", "4"}) {
    SCOPED_TRACE(workers);
    const TemporaryDirectory folder;
    const fs::path out = folder.path() / "run";
    expect_ends(with(run_of("ar", out), {"--steps", "20", "--lr-schedule", "cosine"}), 0);
    expect_ends({"train", "--resume", out.string(), "--steps", "40", "--workers", workers}, 0);
    std::istringstream rows(read_file(out / "metrics.csv"));
    std::string row;
    std::getline(rows, row);
    std::map<int, double> rates;
    while (std::getline(rows, row)) {
      int rank = 0, step = 0;
      double lr = 0;
      const bool of_step = row.compare(row.size() - 3, 3, ",,,") == 0;
      if (of_step &&
          std::sscanf(row.c_str(), "%d,%*f,%d,%*f,%*f,%*f,%*f,%*f,%*f,%*f,%lf", &rank, &step,
                      &lr) == 3 &&
          rank == 0)
        rates[step] = lr;
    }
    ASSERT_EQ(rates.count(39), 1U);
    for (const int step : {20, 30, 39})
      EXPECT_NEAR(rates[step], 0.03 * 0.5 * (1 + std::cos(3.141592653589793 * step / 40)), 1e-6)
          << step;
  }
}

TEST(Resume, AutoBeginsOrContinues) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const auto run = with(run_of("ar", out), {"--resume", "auto"});
  expect_ends(run, 0);
  EXPECT_EQ(summary_of(out)["steps"], 30);
  expect_ends(with(run, {"--steps", "40"}), 0, {"continues " + out.string() + " at step 30"});
  EXPECT_EQ(summary_of(out)["steps"], 40);
  expect_ends({"train", "--resume", "auto"}, 2, {"--out"});
}

TEST(Overwrite, IsAskedFor) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  expect_ends(run_of("ar", out), 0);
  const std::string model = read_file(out / "model.pt");
  expect_ends(with(run_of("ar", out), {"--seed", "2"}), 2,
              {"holds a run", "--resume " + out.string(), "--overwrite"});
  EXPECT_TRUE(read_file(out / "model.pt") == model);
  expect_ends(with(run_of("ar", out), {"--seed", "2", "--overwrite"}), 0);
  EXPECT_FALSE(read_file(out / "model.pt") == model);
  // A summary alone is a finished run, too.
  fs::remove_all(out / "checkpoint");
  expect_ends(run_of("ar", out), 2, {"holds a run: choose another folder, or replace it with"});
  // One that failed before its first checkpoint has nothing to lose.
  std::ofstream(out / "summary.json") << R"({"error": "loss is not finite"})";
  expect_ends(run_of("ar", out), 0);
}

TEST(Overwrite, IsAskedForWhereFilesAreOfOthers) {
  for (const std::string name : {"model.pt", "metrics.csv", "summary.json"}) {
    const TemporaryDirectory folder;
    std::ofstream(folder.path() / name) << "my own";
    expect_ends(run_of("ar", folder.path()), 2,
                {(folder.path() / name).string() + " was not written by a run", "--overwrite"});
    EXPECT_EQ(read_file(folder.path() / name), "my own");
    expect_ends(with(run_of("ar", folder.path()), {"--overwrite"}), 0);
  }
}

TEST(Init, BeginsWithTheWeights) {
  const TemporaryDirectory folder;
  const fs::path first = folder.path() / "first", second = folder.path() / "second";
  expect_ends(run_of("ar", first), 0);
  for (const fs::path& init : {first, first / "model.pt", first / "checkpoint/latest"}) {
    // With a rate of 0 the model stays what it was.
    expect_ends(with(run_of("ar", second), {"--init", init.string(), "--lr", "0", "--workers", "4",
                                            "--steps", "2", "--overwrite"}),
                0);
    EXPECT_EQ(summary_of(second)["test_loss"], summary_of(first)["test_loss"]);
  }
  expect_ends(with(run_of("ar", folder.path() / "never"), {"--init", "/no/such.pt"}), 2,
              {"--init /no/such.pt"});
  expect_ends(
      with(run_of("ar", folder.path() / "never"), {"--init", first.string(), "--model", "mlp"}), 2,
      {"--init", "fc1"});
}

// With a rate of 0 no validation is better than the first one.
TEST(EarlyStop, EndsARunThatGetsNoBetter) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const ProcessResult result =
      run_here(with(run_of("ar", out), {"--lr", "0", "--steps", "100000", "--early-stop", "2"}));
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.out.find("stopped early: 2 validations"), std::string::npos)
      << result.describe();
  EXPECT_EQ(summary_of(out)["early_stopped"], true);
  EXPECT_EQ(summary_of(out)["interrupted"], false);
  EXPECT_LT(summary_of(out)["steps"].get<double>(), 100000);
  EXPECT_TRUE(fs::exists(out / "model.pt"));
  EXPECT_EQ(fs::read_symlink(out / "checkpoint/best"), "epoch-0001");
  const ProcessResult best = run_here({"evaluate", (out / "checkpoint/best").string(), "--json"});
  ASSERT_EQ(best.exit_code, 0) << best.describe();
  EXPECT_NEAR(nlohmann::json::parse(best.out)["loss"].get<double>(),
              summary_of(out)["test_loss"].get<double>(), 1e-5)
      << "with a rate of 0 all models are the same";
  expect_ends(
      with(run_of("ar", folder.path() / "never"), {"--early-stop", "1", "--validate", "end"}), 2,
      {"--early-stop"});
}

// The last validation came too late to save a step: that is no early stop.
TEST(EarlyStop, ARunThatTookAllItsStepsHasNotStoppedEarly) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const ProcessResult result =
      run_here(with(run_of("ar", out), {"--lr", "0", "--steps", "40", "--early-stop", "1"}));
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(result.out.find("stopped early"), std::string::npos) << result.describe();
  EXPECT_FALSE(summary_of(out).contains("early_stopped"));
}

TEST(EarlyStop, NamesTheBestCheckpointWhereThereIsOne) {
  const TemporaryDirectory folder;
  const ProcessResult result = run_here(
      with(run_of("ar", folder.path() / "run"),
           {"--lr", "0", "--steps", "100000", "--early-stop", "1", "--checkpoint-keep", "latest"}));
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.out.find("stopped early: 1 validations without a better one\n"),
            std::string::npos)
      << result.describe();
}

TEST(EarlyStop, NeedsATestSet) {
  const TemporaryDirectory folder;
  std::ofstream(folder.path() / "train.bin", std::ios::binary) << std::string(4000, '\1');
  expect_ends({"train", "--data", "tokens:" + folder.path().string() + ",length=8", "--model",
               "transformer", "--early-stop", "2", "--out", (folder.path() / "never").string()},
              2, {"--early-stop 2", "no test samples"});
}

// An interrupted run goes on counting: here two validations were before it, and one is enough.
TEST(EarlyStop, CountsOnInARunThatIsContinued) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  expect_ends(with(run_of("ar", out), {"--lr", "0", "--steps", "60"}), 0);
  const ProcessResult result = run_here({"train", "--resume", out.string(), "--steps", "100000",
                                         "--early-stop", "3", "--delay", "rank=0:50ms"});
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_EQ(summary_of(out)["early_stopped"], true);
  EXPECT_LT(summary_of(out)["steps"].get<double>(), 120) << "3 epochs, and the fourth one";
  EXPECT_EQ(fs::read_symlink(out / "checkpoint/best"), "epoch-0001");
}

// In a job that is submitted again, after its end.
TEST(Resume, ARunAtItsEndKeepsItsSummary) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  expect_ends(run_of("ar", out), 0);
  const std::string summary = read_file(out / "summary.json");
  const auto goodput = summary_of(out)["goodput"];
  ASSERT_TRUE(goodput.is_number());
  expect_ends({"train", "--resume", "auto", "--out", out.string()}, 0);
  EXPECT_EQ(read_file(out / "summary.json"), summary);
}

TEST(Accumulate, IsOneStepOfALargerBatch) {
  const TemporaryDirectory folder;
  const fs::path one = folder.path() / "one", parts = folder.path() / "parts";
  expect_ends(with(run_of("ar", one), {"--batch-size", "16", "--steps", "10"}), 0);
  expect_ends(
      with(run_of("ar", parts), {"--batch-size", "4", "--accumulate", "4", "--steps", "10"}), 0);
  EXPECT_NEAR(summary_of(one)["test_loss"].get<double>(),
              summary_of(parts)["test_loss"].get<double>(), 1e-5);
  EXPECT_EQ(summary_of(one)["samples"], summary_of(parts)["samples"]);
  expect_ends(with(run_of("ar", folder.path() / "never"), {"--accumulate", "0"}), 2,
              {"--accumulate"});
}

// A part of the rate that no step begins with. A run that continues may leave its warm-up out.
TEST(WarmupFrom, IsRefusedWithoutAWarmup) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  expect_ends(with(run_of("ar", out), {"--warmup-from", "0.5"}), 2,
              {"--warmup-from 0.5", "--warmup-steps"});
  expect_ends(with(run_of("ar", out), {"--warmup-from", "0.5", "--warmup-steps", "2"}), 0);
  expect_ends({"train", "--resume", out.string(), "--steps", "35", "--warmup-steps", "0"}, 0);
}

// The summary says what the user sees, and what makes the run.
TEST(Summary, HasTheOptionsAndTheOrigin) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const ProcessResult result = run_here(with(run_of("sgp", out), {"--lr-schedule", "cosine"}));
  ASSERT_EQ(result.exit_code, 0) << result.describe();
  EXPECT_NE(result.err.find("epoch 1: test accuracy 0."), std::string::npos) << result.describe();
  const nlohmann::json summary = summary_of(out);
  EXPECT_EQ(summary["options"]["lr-schedule"], "cosine");
  EXPECT_EQ(summary["options"]["batch-size"], 16);
  EXPECT_EQ(summary["options"]["nesterov"], false);
  EXPECT_EQ(summary["out"], out.string());
  EXPECT_FALSE(summary["host"].get<std::string>().empty());
  EXPECT_EQ(summary["date"].get<std::string>().size(), 24U) << summary["date"];
  // A validation has the time at which its epoch had ended: that of its last step.
  std::istringstream rows(read_file(out / "metrics.csv"));
  double last = 0, validated = -1;
  for (std::string row; std::getline(rows, row);) {
    double time = 0;
    int step = -1;
    double epoch = 0;
    const bool timed = std::sscanf(row.c_str(), "%*d,%lf,%d,%lf", &epoch, &step, &time) == 3;
    const bool of_step = row.compare(row.size() - 3, 3, ",,,") == 0;
    if (!timed) continue;
    if (of_step && epoch < 1) last = std::max(last, time);
    if (!of_step && validated < 0) validated = time;
  }
  EXPECT_NEAR(validated, last, 1e-4);
}

}  // namespace resume_options_test
}  // namespace grapevine
