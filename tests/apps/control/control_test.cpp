// A running job is asked and changed, over the socket in its folder and over a port.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "messages/ids.hpp"
#include "tests/apps/control/control_run.hpp"

namespace grapevine {
namespace control_test {

using testing::HasSubstr;

void expect_refused(const ProcessResult& result, const std::string& line) {
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_THAT(ProcessResult::last_line(result.err), HasSubstr("error: ")) << result.describe();
  EXPECT_THAT(ProcessResult::last_line(result.err), HasSubstr(line)) << result.describe();
}

std::int64_t checkpoint_step(const std::filesystem::path& out) {
  const std::string name = std::filesystem::read_symlink(out / "checkpoint" / "latest").string();
  return std::stoll(name.substr(name.find_first_of("0123456789")));
}

// The next change is not refused because another one is in progress.
bool is_settled(const nlohmann::json& status) { return status["changes_members"] == false; }

// The job again, in two processes; what the first one says.
ProcessResult resume(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "train");
  const std::uint16_t port = cluster_test::free_port();
  Process other(cluster_test::start("torch", 1, 2, port, arguments));
  return cluster_test::start("torch", 0, 2, port, arguments).wait();
}

TEST(Control, NamesTheRankWhoseProcessIsStopped) {
  ControlledJob job("ar", 3, {"--lost-after", "0"});
  ASSERT_TRUE(job.has_begun()) << job.describe();
  job.process(2).signal(SIGSTOP);
  const auto status = job.status_when([](const nlohmann::json& now) {
    return now["ranks"][2]["state"] == "no answer" && now["ranks"][0]["state"] == "waits" &&
           now["waits"].size() == 1;
  });
  ASSERT_TRUE(status.is_object()) << job.describe();
  EXPECT_EQ(status["ranks"][2]["state"], "no answer") << status;
  EXPECT_GT(status["ranks"][2]["silent_s"], 0) << status;
  EXPECT_EQ(status["ranks"][1]["state"], "waits") << status;
  ASSERT_EQ(status["waits"].size(), 1U) << status;
  EXPECT_THAT(status["waits"][0].get<std::string>(),
              HasSubstr("rank 2 of process 2 has not answered for"));
  const ProcessResult text = job.control({"status"});
  EXPECT_EQ(text.exit_code, 0) << text.describe();
  EXPECT_THAT(text.out, HasSubstr("rank 2 of process 2 has not answered for"));
  job.process(2).signal(SIGCONT);
  const auto after = job.status_when([&](const nlohmann::json& now) {
    return now["ranks"][2]["steps"] > status["ranks"][2]["steps"] && now["waits"].empty();
  });
  EXPECT_GT(after["ranks"][2]["steps"], status["ranks"][2]["steps"]) << after;
  job.kill_all();
}

// Both ends are of the ranks that are there: the epochs of the four that were planned would be more
// than those that lie behind.
TEST(Control, AnEndThatIsTooEarlyIsNamedInStepsAndEpochsOfTheRanksThatRemain) {
  ControlledJob job("ar", 1, {"--workers", "4"});
  ASSERT_TRUE(job.has_begun()) << job.describe();
  ASSERT_EQ(job.control({"drain", "3"}).exit_code, 0) << job.describe();
  const auto drained =
      job.status_when([](const nlohmann::json& now) { return now["ranks"][3]["state"] == "lost"; });
  const auto later = job.status_when([&](const nlohmann::json& now) {
    return now["ranks"][0]["steps"].get<Step>() > drained["ranks"][0]["steps"].get<Step>() + 100;
  });
  ASSERT_TRUE(later.is_object()) << job.describe();
  ASSERT_EQ(job.control({"stop"}).exit_code, 0) << job.describe();
  job.process(0).wait();
  const Step step = checkpoint_step(job.out());
  const ProcessResult refused =
      run_here({"train", "--resume", job.out().string(), "--steps", std::to_string(step - 1)});
  EXPECT_EQ(refused.exit_code, 2) << refused.describe();
  const std::string line = ProcessResult::last_line(refused.err);
  double done = 0, end = 0;
  const char* ends = std::strstr(line.c_str(), ": it is at step ");
  ASSERT_NE(ends, nullptr) << line;
  ASSERT_EQ(std::sscanf(ends,
                        ": it is at step %*d, after %lf epochs, the job ends at step %*d, "
                        "after %lf",
                        &done, &end),
            2)
      << line;
  EXPECT_THAT(line, HasSubstr("the job ends at step " + std::to_string(step - 1) + ","));
  EXPECT_LT(end, done) << line;
}

TEST(Control, WritesACheckpointAndStops) {
  ControlledJob job("ar", 2, {});
  ASSERT_TRUE(job.has_begun()) << job.describe();
  struct stat socket {};
  ASSERT_EQ(::stat((job.out() / "control.sock").c_str(), &socket), 0);
  EXPECT_EQ(socket.st_mode & 0777U, 0600U);
  EXPECT_EQ(job.status()["checkpoint"], nlohmann::json());
  const ProcessResult checkpoint = job.control({"checkpoint"});
  EXPECT_EQ(checkpoint.exit_code, 0) << checkpoint.describe();
  EXPECT_EQ(checkpoint.out, "a checkpoint is being written\n");
  const auto status =
      job.status_when([](const nlohmann::json& now) { return now["checkpoint"].is_string(); });
  EXPECT_TRUE(status["checkpoint"].is_string()) << status;
  EXPECT_TRUE(std::filesystem::exists(job.out() / "checkpoint" / "latest" / "job.json"));
  const ProcessResult stop = job.control({"stop", "--json"});
  EXPECT_EQ(stop.exit_code, 0) << stop.describe();
  EXPECT_EQ(nlohmann::json::parse(stop.out)["text"], "the run writes a checkpoint and stops");
  const ProcessResult again = job.control({"stop"});
  EXPECT_THAT(again.out + again.err,
              testing::AnyOf(HasSubstr("stopping already"), HasSubstr("has ended")));
  // Whatever the moment, the exit code of a run that has ended is the same. By the program itself.
  for (int code = 0; code == 0;) {
    const ProcessResult late = run_process({"control", job.out().string(), "status"});
    code = late.exit_code;
    EXPECT_TRUE(code == 0 || code == 2) << late.describe();
  }
  const ProcessResult ended = job.process(0).wait();
  EXPECT_EQ(ended.exit_code, 4) << ended.describe();
  EXPECT_THAT(ProcessResult::last_line(ended.err), HasSubstr("stopped by request; resume with"));
  EXPECT_EQ(job.process(1).wait().exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(job.out() / "control.sock"));
  expect_refused(job.control({"status"}), "it has ended, see its summary.json");
}

TEST(Control, ARankLeavesAndTheOthersContinue) {
  ControlledJob job("sgp", 4, {});
  ASSERT_TRUE(job.has_begun()) << job.describe();
  expect_refused(job.control({"drain", "4"}), "drain 4: the ranks are 0 to 3");
  const ProcessResult drain = job.control({"drain", "3"});
  EXPECT_EQ(drain.out, "rank 3 leaves: 3 of 4 ranks that train remain\n") << drain.describe();
  const ProcessResult left = job.process(3).wait();
  EXPECT_EQ(left.exit_code, 0) << left.describe();
  const auto is_without = [](const nlohmann::json& now) {
    return now["view"] == 2 && now["ranks"][3]["state"] == "lost" && is_settled(now);
  };
  const auto status = job.status_when(is_without);
  ASSERT_TRUE(is_without(status)) << status;
  const auto later = job.status_when([&](const nlohmann::json& now) {
    return now["ranks"][0]["steps"] > status["ranks"][0]["steps"].get<std::int64_t>() + 5;
  });
  EXPECT_GT(later["ranks"][0]["steps"], status["ranks"][0]["steps"]) << later;
  expect_refused(job.control({"drain", "3"}), "drain 3: the rank does not train any more");
  expect_refused(job.control({"drain", "2"}), "and --min-ranks needs 3");
  job.control({"stop"});
  job.process(0).wait();
  EXPECT_EQ(summary_of(job.out())["lost_ranks"], nlohmann::json({3}));
}

// Of three, beside servers, which take no steps.
bool all_workers_train(const ControlledJob& job) {
  const auto train = [](const nlohmann::json& now) {
    if (now["stage"] != "running") return false;
    for (int rank = 0; rank < 3; ++rank)
      if (now["ranks"][rank]["steps"] < 2) return false;
    return true;
  };
  const auto status = job.status_when(train);
  return status.is_object() && train(status);
}

// It takes the models of the other processes through its ranks.
TEST(Control, TheLastRankOfProcess0Stays) {
  ControlledJob job("sgp", 3, {});
  ASSERT_TRUE(job.has_begun()) << job.describe();
  expect_refused(job.control({"drain", "0"}), "drain 0: it is the last rank of process 0");
  EXPECT_EQ(job.control({"stop"}).exit_code, 0);
  const ProcessResult ended = job.process(0).wait();
  EXPECT_EQ(ended.exit_code, 4) << ended.describe();
}

// Servers of process 0 fetch the models, too, as long as there are any.
TEST(Control, TheLastRankOfProcess0LeavesItsServers) {
  ControlledJob job("gem", 3, {});
  ASSERT_TRUE(all_workers_train(job)) << job.describe();
  const ProcessResult drain = job.control({"drain", "0"});
  EXPECT_EQ(drain.exit_code, 0) << drain.describe();
  const auto is_without = [](const nlohmann::json& now) {
    return now["view"] == 2 && now["ranks"][0]["state"] == "lost" && is_settled(now);
  };
  const auto status = job.status_when(is_without);
  ASSERT_TRUE(is_without(status)) << status;
  expect_refused(job.control({"set", "algorithm=ar"}), "process 0 has only parameter servers left");
  EXPECT_EQ(job.control({"stop"}).exit_code, 0);
  const ProcessResult ended = job.process(0).wait();
  EXPECT_EQ(ended.exit_code, 4) << ended.describe();
}

// Those that do not wait for it train on.
TEST(Control, NumbersDoNotChangeWhileARankDoesNotAnswer) {
  ControlledJob job("gem", 3, {"--lost-after", "0"});
  ASSERT_TRUE(all_workers_train(job)) << job.describe();
  job.process(2).signal(SIGSTOP);
  expect_refused(job.control({"set", "lr=0.01"}),
                 "set: rank 2 does not answer: nothing has changed, ask again");
  const auto steps = [](const nlohmann::json& now) {
    return now["ranks"][0]["steps"].get<std::int64_t>();
  };
  const nlohmann::json refused = job.status();
  ASSERT_TRUE(refused.is_object()) << job.describe();
  const auto goes_on = [&](const nlohmann::json& now) { return steps(now) > steps(refused) + 2; };
  const auto status = job.status_when(goes_on);
  EXPECT_TRUE(goes_on(status)) << status;
  EXPECT_EQ(status["changes_members"], false) << status;
  job.process(2).signal(SIGCONT);
  job.kill_all();
}

// Numbers that change: with a step of the old value behind them, and in all that the run leaves.
TEST(Control, SettingsChangeAndAResumedRunHasThem) {
  ControlledJob job("ar", 2, {});
  ASSERT_TRUE(job.has_begun()) << job.describe();
  EXPECT_EQ(job.status()["ranks"][0]["lr"], 0.03);
  for (const auto& [setting, problem] : std::vector<std::pair<std::string, std::string>>{
           {"lr=fast", "expected a number"},
           {"lr=-1", "--lr"},
           {"wiring.topology=ring", "topology"},
           {"wiring.topolgy=ring", "did you mean 'wiring.topology'"},
           {"momentum=0.5", "unknown setting of a running job 'momentum'"},
           {"algorithm=sgb", "did you mean 'sgp'"},
           {"wiring.hierarchy=3", "does not divide 2 ranks"},
           {"wiring.level.1.rank=2", "unknown setting of a running job 'wiring.level.1.rank'"},
           {"wiring.density=0.1", "density"},
           {"lr", "expected KEY=VALUE"}})
    expect_refused(job.control({"set", setting}), problem);
  EXPECT_EQ(job.status()["view"], 1);
  const ProcessResult set = job.control({"set", "lr=0.0070", "weight-decay=1e-3"});
  EXPECT_EQ(set.out, "lr = 0.007, weight-decay = 0.001 from the next view on\n") << set.describe();
  const auto has_changed = [](const nlohmann::json& now) {
    return now["view"] == 2 && now["ranks"][0]["lr"] == 0.007 && now["ranks"][1]["lr"] == 0.007 &&
           is_settled(now);
  };
  const auto status = job.status_when(has_changed);
  ASSERT_TRUE(has_changed(status)) << status << job.describe();
  job.control({"stop"});
  EXPECT_EQ(job.process(0).wait().exit_code, 4) << job.describe();
  EXPECT_THAT(job.describe(), HasSubstr("changed: lr = 0.007"));
  EXPECT_EQ(summary_of(job.out())["options"]["lr"], 0.007);
  const auto checkpoint =
      nlohmann::json::parse(read_file(job.out() / "checkpoint" / "latest" / "job.json"));
  EXPECT_EQ(checkpoint["job"]["lr"], "0.007");
  EXPECT_THAT(read_file(job.out() / "job.toml"), HasSubstr("\nlr = 0.007\n"));
  const std::int64_t steps = checkpoint_step(job.out());
  const ProcessResult resumed =
      resume({"--steps", std::to_string(steps + 20), "--resume", job.out().string()});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.describe();
  const std::string rows = read_file(job.out() / "metrics.csv");
  EXPECT_THAT(rows.substr(rows.rfind("\n1,") + 1), HasSubstr(",0.007,"));
}

// Of a run in one process.
nlohmann::json status_of(const std::filesystem::path& out) {
  const ProcessResult result = ControlledJob::control_at(out.string(), {"status", "--json"});
  return nlohmann::json::parse(result.out, nullptr, false);
}

// Every role that has the key continues with another value of it.
TEST(Control, EachNumberOfAWiringChanges) {
  for (const auto& [algorithm, setting] :
       std::vector<std::pair<std::string, std::string>>{{"osgp", "wiring.staleness=3"},
                                                        {"sgp", "wiring.clip=0.5"},
                                                        {"gtopk", "wiring.density=0.01"},
                                                        {"topk", "wiring.density=0.2"},
                                                        {"choco-sgd", "wiring.density=0.3"},
                                                        {"eager-quorum", "wiring.quorum=3"},
                                                        {"wagma", "wiring.staleness=4"},
                                                        {"diloco", "wiring.outer_lr=0.5"},
                                                        {"ad-psgd", "lr=0.01"}}) {
    SCOPED_TRACE(algorithm + " " + setting);
    const TemporaryDirectory folder;
    const auto out = folder.path() / "run";
    Process run(with(small_run(algorithm, out), {"--steps", "100000000", "--trace", "off"}));
    ASSERT_TRUE(appears(out / "control.sock")) << run.so_far().describe();
    const auto trains_in_view = [&](std::int64_t view, std::int64_t after) {
      const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      std::int64_t steps = -1;
      while (steps <= after && std::chrono::steady_clock::now() < deadline) {
        const auto status = status_of(out);
        if (status.is_object() && status["view"] == view) steps = status["ranks"][3]["steps"];
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      return steps;
    };
    const std::int64_t before = trains_in_view(1, 4);
    ASSERT_GT(before, 4) << run.so_far().describe();
    const ProcessResult set = ControlledJob::control_at(out.string(), {"set", setting});
    ASSERT_EQ(set.exit_code, 0) << set.describe();
    EXPECT_GT(trains_in_view(2, before + 20), before + 20) << run.so_far().describe();
    ControlledJob::control_at(out.string(), {"stop"});
    EXPECT_EQ(run.wait().exit_code, 4) << run.so_far().describe();
    const auto counts = summary_of(out)["contributions"];
    EXPECT_EQ(counts["produced"].get<std::int64_t>(), counts["applied"].get<std::int64_t>() +
                                                          counts["pending"].get<std::int64_t>() +
                                                          counts["dropped"].get<std::int64_t>());
  }
}

// The socket's name would be too long for the system in such a folder.
TEST(Control, ReachesARunInAFolderWithALongPath) {
  const TemporaryDirectory folder;
  const auto deep = folder.path() / std::string(120, 'a') / std::string(120, 'b');
  std::filesystem::create_directories(deep);
  Process run(with(small_run("sgp", deep / "run"), {"--steps", "100000000", "--trace", "off"}));
  const auto answers = [&] {
    return ControlledJob::control_at((deep / "run").string(), {"status"}).exit_code == 0;
  };
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!answers() && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_TRUE(answers()) << run.so_far().describe();
  run.signal(SIGKILL);
  run.wait();
  // Its socket is still there.
  expect_refused(ControlledJob::control_at((deep / "run").string(), {"stop"}), "it has ended");
}

TEST(Control, SaysWhatIsWrong) {
  const TemporaryDirectory folder;
  const std::string empty = folder.path().string();
  expect_refused(ControlledJob::control_at(empty, {"status"}), "is not the folder of a run");
  expect_refused(ControlledJob::control_at(empty + "/none", {"status"}),
                 "is neither the folder of a run nor HOST:PORT");
  expect_refused(ControlledJob::control_at(empty, {"pause"}), "unknown action 'pause'");
  expect_refused(ControlledJob::control_at(empty, {"drain"}), "expected the number of one rank");
  expect_refused(ControlledJob::control_at(empty, {"drain", "x"}),
                 "expected the number of one rank");
  expect_refused(ControlledJob::control_at(empty, {"stop", "now"}), "takes no argument");
  expect_refused(ControlledJob::control_at("127.0.0.1:1", {"status"}, {"GRAPEVINE_JOB_TOKEN"}),
                 "set GRAPEVINE_JOB_TOKEN");
}

// "control: HOST:PORT" in its output.
std::string place_of(Process& process) {
  EXPECT_TRUE(process.wait_for_output("control: 127.0.0.1:")) << process.so_far().describe();
  const std::string text = process.so_far().err;
  const std::size_t begin = text.find("127.0.0.1:", text.find("control: "));
  return text.substr(begin, text.find('\n', begin) - begin);
}

TEST(Control, ProvesTheSecretOverAPort) {
  const std::string secret = "GRAPEVINE_JOB_TOKEN=0123456789abcdef";
  ControlledJob job("sgp", 2, {"--control", "127.0.0.1:0"}, {secret});
  const std::string place = place_of(job.process(0));
  ASSERT_TRUE(job.has_begun()) << job.describe();
  const ProcessResult status = ControlledJob::control_at(place, {"status", "--json"}, {secret});
  EXPECT_EQ(status.exit_code, 0) << status.describe();
  EXPECT_EQ(nlohmann::json::parse(status.out)["ranks"].size(), 2U);
  expect_refused(
      ControlledJob::control_at(place, {"stop"}, {"GRAPEVINE_JOB_TOKEN=0123456789abcdee"}),
      "has another secret");
  EXPECT_EQ(job.status()["stopping"], false);
  const ProcessResult stop = ControlledJob::control_at(place, {"stop"}, {secret});
  EXPECT_EQ(stop.exit_code, 0) << stop.describe();
  const ProcessResult ended = job.process(0).wait();
  EXPECT_EQ(ended.exit_code, 4) << ended.describe();
  EXPECT_THAT(ended.err, HasSubstr("a client is refused: it does not prove"));
}

// The secret that the user gives to `launch` and to `control`.
TEST(Control, ReachesALaunchedJobOverAPort) {
  const TemporaryDirectory folder;
  const std::string secret = "GRAPEVINE_JOB_TOKEN=0123456789abcdef";
  ProcessOptions options;
  options.environment = {secret};
  Process launch(with(with({"launch", "-n", "2", "--"}, small_run("sgp", folder.path() / "run")),
                      {"--steps", "100000000", "--trace", "off", "--control", "127.0.0.1:0"}),
                 options);
  const std::string place = place_of(launch);
  options.timeout = std::chrono::seconds(60);
  // One that is asked to stop before its processes have met has no state to continue from.
  const auto is_training = ControlledJob::is_training;
  EXPECT_TRUE(is_training(ControlledJob::status_when_at(place, is_training, {secret})));
  const ProcessResult stop = run_process({"control", place, "stop"}, options);
  EXPECT_EQ(stop.exit_code, 0) << stop.describe();
  if (stop.exit_code != 0) launch.signal(SIGTERM);
  const ProcessResult ended = launch.wait();
  EXPECT_EQ(ended.exit_code, 4) << ended.describe();
}

// And leaves no folder behind: nothing of the run is there yet.
TEST(Control, NeedsASecretOverAPort) {
  const TemporaryDirectory folder;
  expect_refused(
      run_here(with(small_run("sgp", folder.path() / "run"), {"--control", "127.0.0.1:0"})),
      "set GRAPEVINE_JOB_TOKEN");
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "run"));
}

TEST(Control, PortsThatCannotBeOpenedLeaveNoFolder) {
  const TemporaryDirectory folder;
  const std::string out = folder.path() / "run";
  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--control", "9500"},
                                                {"--control", "192.0.2.1:9500"},
                                                {"--metrics-port", "192.0.2.1:9500"}}) {
    SCOPED_TRACE(wrong[1]);
    expect_refused(run_here(with(small_run("sgp", out), wrong), {"GRAPEVINE_JOB_TOKEN=secret"}),
                   wrong[0]);
    EXPECT_FALSE(std::filesystem::exists(out));
  }
}

}  // namespace control_test
}  // namespace grapevine
