#include "apps/compare/compare_command.hpp"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "actors/record/files.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"
#include "tests/apps/verb_runner.hpp"

namespace grapevine {
namespace compare_command_test {

namespace fs = std::filesystem;

const testing_apps::VerbRunner kVerb(make_compare_command);

class CompareCommand : public testing::Test {
 protected:
  std::string run(const std::string& name, const std::string& job, const std::string& summary) {
    const fs::path path = folder_.path() / name;
    fs::create_directories(path);
    if (!job.empty()) std::ofstream(path / "job.toml") << job;
    if (!summary.empty()) std::ofstream(path / "summary.json") << summary;
    return "'" + path.string() + "'";
  }

  const TemporaryDirectory folder_;
};

TEST_F(CompareCommand, ShowsFiguresAndOnlyTheOptionsThatDiffer) {
  const std::string a =
      run("a", "algorithm = 'ar'\nlr = 0.03\nseed = 1\n[wiring]\nexchange = 'aggregate'\n",
          R"({"test_accuracy":0.9,"wall_seconds":2.5,"staleness":{"mean":0}})");
  const std::string b = run("b",
                            "algorithm = 'sgp'\nlr = 0.03\nseed = 1\n[wiring]\npeers = '2'\n"
                            "[[wiring.level]]\nranks = 2\n",
                            R"({"test_accuracy":0.95,"wall_seconds":1.5,"staleness":{"mean":1}})");
  const std::string text = kVerb.output(a + " " + b);
  EXPECT_NE(text.find("0.9500"), std::string::npos) << text;
  EXPECT_NE(text.find("2.5s"), std::string::npos) << text;
  EXPECT_EQ(text.find("seed"), std::string::npos) << text;
  EXPECT_EQ(text.find("lr"), std::string::npos) << text;
  const auto object = nlohmann::json::parse(kVerb.output(a + " " + b + " --json"));
  EXPECT_EQ(object["different"], nlohmann::json({"algorithm", "wiring.exchange",
                                                 "wiring.level.1.ranks", "wiring.peers"}));
  EXPECT_EQ(object["runs"][1]["options"]["wiring.level.1.ranks"], "2");
  EXPECT_TRUE(object["runs"][0]["options"]["wiring.peers"].is_null());
  EXPECT_EQ(object["runs"][0]["summary"]["test_accuracy"], 0.9);
}

// job.toml has the number in each process, summary.json that of the job.
TEST_F(CompareCommand, WorkersAreThoseOfTheJob) {
  const std::string runs = run("one", "seed = 1\nworkers = 4\n", R"({"workers": 4})") + " " +
                           run("launched", "seed = 1\nworkers = 1\n", R"({"workers": 4})");
  EXPECT_NE(kVerb.output(runs).find("all options are the same"), std::string::npos);
  const std::string more = runs + " " +
                           run("more", "seed = 1\nworkers = 1\n", R"({"workers": 8})") + " " +
                           run("going", "seed = 1\nworkers = 2\n", "");
  const auto object = nlohmann::json::parse(kVerb.output(more + " --json"));
  EXPECT_EQ(object["different"], nlohmann::json({"workers"}));
  EXPECT_EQ(object["runs"][1]["options"]["workers"], "4");
  EXPECT_EQ(object["runs"][2]["options"]["workers"], "8");
  EXPECT_EQ(object["runs"][3]["options"]["workers"], "2") << "not ended: what job.toml has";
}

TEST_F(CompareCommand, SortsTheBestFirstAndRunsWithoutTheFigureLast) {
  const std::string runs = run("a", "seed = 1\n", R"({"test_accuracy":0.1,"wall_seconds":1})") +
                           " " + run("b", "seed = 2\n", "") + " " +
                           run("c", "seed = 3\n", R"({"test_accuracy":0.7,"wall_seconds":9})");
  const auto order = [&](const std::string& sort) {
    std::string names;
    const auto object = nlohmann::json::parse(kVerb.output(runs + " --json --sort " + sort));
    for (const auto& each : object["runs"])
      names += fs::path(each["run"].get<std::string>()).filename().string();
    return names;
  };
  EXPECT_EQ(order("given"), "abc");
  EXPECT_EQ(order("accuracy"), "cab");
  EXPECT_EQ(order("time"), "acb");
  EXPECT_NE(kVerb.error(runs + " --sort speed").find("--sort"), std::string::npos);
}

TEST_F(CompareCommand, TellsTheStatesOfRuns) {
  const std::string runs = run("done", "seed = 1\n", R"({"interrupted":false})") + " " +
                           run("stopped", "seed = 1\n", R"({"interrupted":true})") + " " +
                           run("failed", "seed = 1\n", R"({"error":"loss is not finite"})") + " " +
                           run("going", "seed = 1\n", "");
  const auto object = nlohmann::json::parse(kVerb.output(runs + " --json"));
  const std::vector<std::string> states = {"done", "stopped", "failed", "not ended"};
  for (std::size_t i = 0; i < states.size(); ++i) EXPECT_EQ(object["runs"][i]["state"], states[i]);
  EXPECT_NE(kVerb.output(runs).find("all options are the same"), std::string::npos);
}

// The summary of the part before stays until the end: it says nothing of the run as it is now.
TEST_F(CompareCommand, ARunThatIsContinuedHasNoFiguresYet) {
  const std::string summary = R"({"interrupted":true,"steps":10,"wall_seconds":2})";
  const std::string runs = run("stopped", "seed = 1\n", summary) + " " +
                           run("killed", "seed = 1\n", summary) + " " +
                           run("going", "seed = 1\n", summary);
  const auto write_rows = [this](const std::string& name, int last) {
    std::ofstream rows(folder_.path() / name / "metrics.csv");
    rows << "rank,epoch,step,time_s\n";
    for (int step = 0; step <= last; ++step) rows << "0,0.5," << step << ",1\n";
    rows << "0,0.5,99";  // cut off
  };
  write_rows("stopped", 9);
  write_rows("killed", 10000);
  const auto lock = lock_folder(folder_.path() / "going");
  ASSERT_TRUE(lock.ok());
  const auto object = nlohmann::json::parse(kVerb.output(runs + " --json"));
  const std::vector<std::string> states = {"stopped", "not ended", "running"};
  for (std::size_t i = 0; i < states.size(); ++i) {
    EXPECT_EQ(object["runs"][i]["state"], states[i]);
    EXPECT_EQ(object["runs"][i]["summary"].empty(), i > 0) << i;
  }
}

// Ranks are a few steps further than the last checkpoint.
TEST_F(CompareCommand, AStoppedRunHasItsFigures) {
  const fs::path out = folder_.path() / "run";
  Process process(
      {"train",         "--algorithm", "sgp",       "--model", "mlp",    "--data",
       "glyphs:1200",   "--workers",   "4",         "--steps", "100000", "--delay",
       "random=1:20ms", "--threads",   "1",         "--trace", "off",    "--checkpoint-every",
       "0.5",           "--out",       out.string()});
  ASSERT_TRUE(appears(out / "checkpoint" / "latest" / "job.json")) << process.so_far().describe();
  process.signal(SIGINT);
  EXPECT_EQ(process.wait().signal, 0);
  const std::string run = "'" + out.string() + "'";
  const auto object = nlohmann::json::parse(kVerb.output(run + " --json"))["runs"][0];
  EXPECT_EQ(object["state"], "stopped") << object;
  ASSERT_TRUE(object["summary"].contains("reported_steps")) << object;
  const auto reported = object["summary"]["reported_steps"].get<std::int64_t>();
  EXPECT_GE(reported, object["summary"]["steps"].get<std::int64_t>());
  // As a run that continued it, and was killed, would leave it.
  std::ofstream(out / "metrics.csv", std::ios::app)
      << "0,9.5," << reported << ",1,1,1,1,1,,,0.1,,,,\n";
  EXPECT_NE(kVerb.output(run).find("not ended"), std::string::npos);
}

TEST_F(CompareCommand, NamesWhatIsNoRun) {
  EXPECT_NE(kVerb.error("/no/such/run").find("/no/such/run: is no folder"), std::string::npos);
  const std::string empty = run("empty", "", "");
  EXPECT_NE(kVerb.error(empty).find("is not the folder of a run: it has no job.toml"),
            std::string::npos);
  std::ofstream(folder_.path() / "empty" / "job.toml").close();
  EXPECT_NE(kVerb.error(empty).find("/job.toml: is empty"), std::string::npos);
  EXPECT_NE(kVerb.error(run("bad", "lr = [[[\n", "")).find("/job.toml:1: a list is not complete"),
            std::string::npos);
}

}  // namespace compare_command_test
}  // namespace grapevine
