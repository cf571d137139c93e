// The wiring of a running job changes, by command and by schedule, between real processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "tests/apps/control/control_run.hpp"

namespace grapevine {
namespace control_wiring_test {

using testing::HasSubstr;

// A change takes two views.
nlohmann::json wait_for_view(const ControlledJob& job, std::int64_t view) {
  std::int64_t least = -1;
  return job.status_when([&](const nlohmann::json& now) {
    if (now["view"] != view || now["changes_members"] == true) return false;
    std::int64_t slowest = now["ranks"][0]["steps"];
    for (const auto& rank : now["ranks"])
      if (rank["rank"] < now["workers"])
        slowest = std::min(slowest, rank["steps"].get<std::int64_t>());
    if (least < 0) least = slowest;
    return slowest > least + 5;  // all ranks train
  });
}

void expect_nothing_lost(const nlohmann::json& counts, std::int64_t most_dropped) {
  EXPECT_EQ(counts["produced"].get<std::int64_t>(),
            counts["applied"].get<std::int64_t>() + counts["pending"].get<std::int64_t>() +
                counts["dropped"].get<std::int64_t>() + counts["destroyed"].get<std::int64_t>())
      << counts;
  EXPECT_LE(counts["dropped"].get<std::int64_t>(), most_dropped) << counts;
}

// Over each wire one job runs one algorithm after the other, and continues from its checkpoint with
// the last one.
TEST(ControlWiring, OneAlgorithmAfterTheOther) {
  for (const std::string wire : {"tcp", "shm", "ucx"}) {
    SCOPED_TRACE(wire);
    ControlledJob job("ar", 3, {"--transport", wire});
    ASSERT_TRUE(job.has_begun()) << job.describe();
    std::int64_t view = 1;
    for (const std::vector<std::string>& settings :
         std::vector<std::vector<std::string>>{{"algorithm=sgp"},
                                               {"wiring.topology=ring", "lr=0.02"},
                                               {"algorithm=gtopk", "wiring.density=0.1"},
                                               {"algorithm=gem"},
                                               {"algorithm=easgd", "wiring.servers=2"},
                                               {"algorithm=eager-majority"},
                                               {"algorithm=osgp"}}) {
      SCOPED_TRACE(settings.front());
      const ProcessResult set = job.set(settings);
      ASSERT_EQ(set.exit_code, 0) << set.describe();
      const auto status = wait_for_view(job, view += 2);
      ASSERT_EQ(status["view"], view) << status << job.describe();
      expect_nothing_lost(status["contributions"], 3 * (view / 2));
    }
    const auto status = job.status();
    EXPECT_EQ(status["run"]["algorithm"], "osgp");
    EXPECT_EQ(status["settings"], nlohmann::json({{"algorithm", "osgp"}, {"lr", "0.02"}}));
    job.control({"stop"});
    EXPECT_EQ(job.process(0).wait().exit_code, 4) << job.describe();
    const auto summary = summary_of(job.out());
    EXPECT_EQ(summary["algorithm"], "osgp");
    EXPECT_EQ(summary["wiring"]["exchange"], "gossip");
    expect_nothing_lost(summary["contributions"], 21);
    EXPECT_EQ(summary["contributions"]["pending"], 0);
    const std::string file = read_file(job.out() / "job.toml");
    EXPECT_THAT(file, HasSubstr("\nalgorithm = 'osgp'\n"));
    EXPECT_THAT(file, HasSubstr("\noverlap = true\n"));
  }
}

// Each checkpoint has the job that it is of: a run that dies after a change, before the next one,
// continues as it was then.
TEST(ControlWiring, ACheckpointFromBeforeAChangeIsContinued) {
  ControlledJob job("ar", 2, {"--lr", "0.02"});
  ASSERT_TRUE(job.has_begun()) << job.describe();
  ASSERT_EQ(job.control({"checkpoint"}).exit_code, 0);
  const auto state = job.out() / "checkpoint" / "latest" / "job.toml";
  ASSERT_TRUE(job.status_when([&](const nlohmann::json&) { return std::filesystem::exists(state); })
                  .is_object());
  const ProcessResult set = job.set({"algorithm=sgp", "lr=0.01"});
  ASSERT_EQ(set.exit_code, 0) << set.describe();
  wait_for_view(job, 3);
  for (const std::size_t process : {0, 1}) job.process(process).signal(SIGKILL);
  for (const std::size_t process : {0, 1}) job.process(process).wait();
  EXPECT_THAT(read_file(job.out() / "job.toml"), HasSubstr("\nalgorithm = 'sgp'\n"));
  EXPECT_THAT(read_file(state), HasSubstr("\nalgorithm = 'ar'\n"));

  const auto saved = read_checkpoint(job.out().string());
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  const std::vector<std::string> again = {"train", "--resume", job.out().string(), "--steps",
                                          std::to_string(saved->steps().front() + 10)};
  const std::uint16_t port = cluster_test::free_port();
  Process other = cluster_test::start("torch", 1, 2, port, again);
  const ProcessResult head = cluster_test::start("torch", 0, 2, port, again).wait();
  ASSERT_EQ(head.exit_code, 0) << head.describe();
  EXPECT_EQ(other.wait().exit_code, 0);
  EXPECT_EQ(summary_of(job.out())["algorithm"], "ar");
  EXPECT_THAT(read_file(job.out() / "job.toml"), HasSubstr("\nlr = 0.02\n"));
}

std::string write_schedule(const std::filesystem::path& folder, const std::string& text) {
  const auto path = folder / "changes.toml";
  std::ofstream(path) << text;
  return path.string();
}

TEST(Schedule, ChangesAtItsEpochs) {
  const TemporaryDirectory folder;
  const auto out = folder.path() / "run";
  const std::string schedule = write_schedule(folder.path(),
                                              "[[change]]\n"
                                              "epoch = 1\n"
                                              "algorithm = 'gtopk'\n"
                                              "wiring.density = 0.2\n"
                                              "[[change]]\n"
                                              "epoch = 2\n"
                                              "lr = 0.01\n"
                                              "[[change]]\n"
                                              "epoch = 3\n"
                                              "algorithm = 'sgp'\n");
  const auto arguments = with(small_run("ar", out), {"--steps", "150", "--schedule", schedule});
  const ProcessResult whole = run_here(arguments);
  ASSERT_EQ(whole.exit_code, 0) << whole.describe();
  EXPECT_THAT(whole.err, HasSubstr("changed: algorithm = gtopk"));
  EXPECT_THAT(whole.err, HasSubstr("changed: lr = 0.01"));
  EXPECT_THAT(whole.err, HasSubstr("changed: algorithm = sgp"));
  const auto summary = summary_of(out);
  EXPECT_EQ(summary["algorithm"], "sgp");
  EXPECT_EQ(summary["views"], 6);
  expect_nothing_lost(summary["contributions"], 8);
  EXPECT_EQ(summary["contributions"]["pending"], 0);

  const auto timeline = (folder.path() / "timeline.json").string();
  const auto page = (folder.path() / "page.html").string();
  const auto traced =
      run_here({"trace", out.string(), "--json", "--perfetto", timeline, "--html", page});
  ASSERT_EQ(traced.exit_code, 0) << traced.describe();
  const auto figures = nlohmann::json::parse(ProcessResult::last_line(traced.out));
  const std::vector<nlohmann::json> expected = {{{"algorithm", "gtopk"}, {"wiring.density", "0.2"}},
                                                {{"lr", "0.01"}},
                                                {{"algorithm", "sgp"}}};
  ASSERT_EQ(figures["changes"].size(), expected.size());
  double before = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(figures["changes"][i]["settings"], expected[i]);
    EXPECT_GT(figures["changes"][i]["time_s"], before);
    before = figures["changes"][i]["time_s"];
  }
  EXPECT_LT(before, figures["seconds"].get<double>());
  EXPECT_THAT(read_file(timeline), HasSubstr("algorithm = gtopk, wiring.density = 0.2"));
  EXPECT_THAT(read_file(page), HasSubstr("\"wiring.density\":\"0.2\""));
  EXPECT_THAT(run_here({"trace", out.string()}).out, HasSubstr("s  algorithm = sgp\n"));
}

// What has changed is not changed again.
TEST(Schedule, IsContinuedByAResumedRun) {
  const TemporaryDirectory folder;
  const std::string schedule = write_schedule(folder.path(),
                                              "[[change]]\n"
                                              "epoch = 0.1\n"
                                              "algorithm = 'sgp'\n"
                                              "[[change]]\n"
                                              "epoch = 1e6\n"
                                              "algorithm = 'ar'\n");
  ControlledJob job("ar", 2, {"--schedule", schedule});
  ASSERT_EQ(wait_for_view(job, 3)["view"], 3) << job.describe();
  job.control({"stop"});
  EXPECT_EQ(job.process(0).wait().exit_code, 4) << job.describe();
  const std::string steps = std::to_string(summary_of(job.out())["steps"].get<std::int64_t>() + 40);
  const std::uint16_t port = cluster_test::free_port();
  const std::vector<std::string> resume = {"train", "--resume", job.out().string(), "--steps",
                                           steps};
  Process other(cluster_test::start("torch", 1, 2, port, resume));
  const ProcessResult resumed = cluster_test::start("torch", 0, 2, port, resume).wait();
  EXPECT_EQ(resumed.exit_code, 0) << resumed.describe();
  EXPECT_THAT(resumed.err, testing::Not(HasSubstr("changed: algorithm")));
  EXPECT_EQ(summary_of(job.out())["algorithm"], "sgp");
}

// From servers to none and back: the results are those of the last wiring, and the trace has the
// servers of both.
TEST(Schedule, ServersGoAndComeAgain) {
  const TemporaryDirectory folder;
  const auto out = folder.path() / "run";
  const std::string schedule = write_schedule(folder.path(),
                                              "[[change]]\nepoch = 1\nalgorithm = 'ar'\n"
                                              "[[change]]\nepoch = 2\nalgorithm = 'downpour'\n"
                                              "wiring.servers = 3\n");
  const ProcessResult run = run_here(with(
      small_run("gem", out), {"--steps", "150", "--validate", "epoch", "--schedule", schedule}));
  ASSERT_EQ(run.exit_code, 0) << run.describe();
  const auto summary = summary_of(out);
  EXPECT_EQ(summary["algorithm"], "downpour");
  EXPECT_EQ(summary["views"], 5);
  EXPECT_EQ(summary["server"]["servers"].size(), 3u);
  expect_nothing_lost(summary["contributions"], 8);
  const ProcessResult traced = run_here({"trace", out.string(), "--json"});
  ASSERT_EQ(traced.exit_code, 0) << traced.describe();
  const auto figures = nlohmann::json::parse(ProcessResult::last_line(traced.out));
  int serving = 0;
  for (const auto& rank : figures["ranks"]) serving += rank["rank"] >= summary["workers"];
  EXPECT_EQ(serving, 3) << figures["ranks"];
}

TEST(Schedule, SaysWhatIsWrongBeforeTraining) {
  const TemporaryDirectory folder;
  const auto out = folder.path() / "run";
  for (const auto& [text, problem] : std::vector<std::pair<std::string, std::string>>{
           {"", "expected tables [[change]]"},
           {"epoch = 3\n", "changes.toml:1: 'epoch': expected tables [[change]]"},
           {"[[change]]\nlr = 0.1\n", "changes.toml:1: expected epoch = a number above 0"},
           {"[[change]]\nepoch = 1\n", "a change without settings"},
           {"[[change]]\nepoch = 2\nlr = 0.1\n[[change]]\nepoch = 1\nlr = 0.2\n",
            "changes.toml:4: epoch 1 follows epoch 2"},
           {"[[change]]\nepoch = 1\nalgorithm = 'sgb'\n", "epoch 1: unknown algorithm"},
           {"[[change]]\nepoch = 1\nalgorithm = 'gem'\nwiring.hierarchy = 2\n",
            "does not come into a running job"},
           {"[[change]]\nepoch = 1\nalgorithm = 'gem'\nwiring.servers = 9\n",
            "epoch 1: 9 parameter servers do not come into a running job, which has room for 8"},
           {"[[change]]\nepoch = 1\nwiring.topolgy = 'ring'\n", "did you mean"},
           {"[[change]]\nepoch = 1\nmomentum = 0.5\n", "unknown setting of a running job"},
           {"[[change\n", "changes.toml:1"}}) {
    SCOPED_TRACE(text);
    const ProcessResult result =
        run_here(with(small_run("ar", out), {"--schedule", write_schedule(folder.path(), text)}));
    EXPECT_EQ(result.exit_code, 2) << result.describe();
    EXPECT_THAT(ProcessResult::last_line(result.err), HasSubstr(problem)) << result.describe();
    EXPECT_FALSE(std::filesystem::exists(out / "metrics.csv"));
  }
  const ProcessResult numbers =
      run_here(with(small_run("gem", out),
                    {"--steps", "400", "--schedule",
                     write_schedule(folder.path(), "[[change]]\nepoch = 0.5\nlr = 0.01\n")}));
  EXPECT_EQ(numbers.exit_code, 0) << numbers.describe();
  EXPECT_THAT(numbers.err, HasSubstr("changed: lr = 0.01"));
}

// Groups and nodes come, and a run that continues has them.
TEST(Schedule, LevelsComeAndAResumedRunHasThem) {
  const TemporaryDirectory folder;
  const auto out = folder.path() / "run";
  const std::string text =
      "[[change]]\nepoch = 1\nwiring.hierarchy = 2\n"
      "[[change]]\nepoch = 2\nalgorithm = 'sgp'\nwiring.level.1.ranks = 2\n"
      "wiring.level.1.exchange = 'aggregate'\n";
  const ProcessResult run =
      run_here(with(small_run("ar", out), {"--workers", "4", "--steps", "120", "--schedule",
                                           write_schedule(folder.path(), text)}));
  ASSERT_EQ(run.exit_code, 0) << run.describe();
  EXPECT_THAT(run.err, HasSubstr("changed: wiring.hierarchy = 2"));
  EXPECT_THAT(run.err, HasSubstr("wiring.level.1.ranks = 2"));
  EXPECT_THAT(read_file(out / "job.toml"), HasSubstr("[[wiring.level]]"));
  const ProcessResult longer = run_here({"train", "--steps", "160", "--resume", out.string()});
  EXPECT_EQ(longer.exit_code, 0) << longer.describe();
  EXPECT_EQ(summary_of(out)["wiring"]["level.1.exchange"], "aggregate") << summary_of(out);
}

}  // namespace control_wiring_test
}  // namespace grapevine
