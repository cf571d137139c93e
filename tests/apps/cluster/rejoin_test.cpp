// A process of a running job is killed, and another one takes its place.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "net/ucx/ucx.hpp"
#include "tests/apps/cluster/job_processes.hpp"
#include "tests/apps/control/control_run.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace rejoin_test {

namespace fs = std::filesystem;
using cluster_test::free_port;
using cluster_test::has_begun;
using cluster_test::start;
using nlohmann::json;

constexpr int kProcesses = 4;

// It trains until it is told to stop, and no process counts as lost by its silence: how often
// members change depends on no clock.
std::vector<std::string> endless(const std::string& algorithm, const fs::path& out,
                                 const std::string& transport) {
  return with(small_run(algorithm, out),
              {"--transport", transport, "--steps", "100000000", "--checkpoint-every", "0.5",
               "--log-every", "100", "--lost-after", "0"});
}

std::int64_t sum_of_states(const json& counts) {
  std::int64_t sum = 0;
  for (const char* state : {"applied", "pending", "dropped", "destroyed"})
    sum += counts[state].get<std::int64_t>();
  return sum;
}

// Every gradient is accounted for, and so is every batch of which the changes of members made too
// few or too many: the lists have at most 64 runs.
void expect_all_accounted(const json& summary) {
  const json& counts = summary["contributions"];
  EXPECT_EQ(counts["produced"].get<std::int64_t>(), sum_of_states(counts)) << counts;
  const json& batches = summary["batches"];
  for (const std::string kind : {"left_out", "taken_again"}) {
    const json& runs = batches[kind + "_runs"];
    std::int64_t listed = 0;
    for (const json& run : runs) listed += run["count"].get<std::int64_t>();
    if (runs.size() < 64) {
      EXPECT_EQ(listed, batches[kind].get<std::int64_t>()) << batches;
    } else {
      EXPECT_LE(listed, batches[kind].get<std::int64_t>()) << batches;
    }
  }
}

class Rejoin : public testing::Test {
 protected:
  void begin(const std::string& algorithm, const std::vector<std::string>& more = {},
             const std::vector<std::string>& options = {}) {
    port_ = free_port();
    arguments_ = with(endless(algorithm, out_, transport_), options);
    more_ = more;
    more_.emplace_back(cluster_test::kUcxBetweenHosts);
    for (int process = 0; process < kProcesses; ++process) processes_.push_back(make(process));
    ASSERT_TRUE(has_begun(out_));
  }
  std::unique_ptr<Process> make(int process) const {
    return std::unique_ptr<Process>(
        new Process(start("torchrun", process, kProcesses, port_, arguments_, more_)));
  }
  // With the address of process 0 alone.
  std::unique_ptr<Process> joining(const std::vector<std::string>& more,
                                   const ProcessOptions& options) const {
    const std::string address = "127.0.0.1:" + std::to_string(port_);
    return std::unique_ptr<Process>(new Process(with({"train", "--join", address}, more), options));
  }
  Process& process(int number) { return *processes_[static_cast<std::size_t>(number)]; }
  void kill(int number) {
    process(number).signal(SIGKILL);
    process(number).wait();
  }
  void expect_return() {
    EXPECT_TRUE(process(0).wait_for_output("has joined again")) << process(0).so_far().describe();
  }
  // By the trace of its new life.
  bool trains_again(int number) const {
    const fs::path trace = out_ / "trace" / fmt::format("process-{:04d}.1.gvtrace", number);
    return cluster_test::becomes_true(
        [&] { return fs::exists(trace) && fs::file_size(trace) > 4000; });
  }
  // Ends the run; all ranks are in its summary, and every gradient.
  void expect_end(int least_views, int most_views) {
    process(0).signal(SIGTERM);
    const auto head = process(0).wait();
    EXPECT_EQ(head.exit_code, 4) << head.describe();
    for (int number = 1; number < kProcesses; ++number) {
      const auto result = process(number).wait();
      EXPECT_EQ(result.exit_code, 0) << "process " << number << result.describe();
    }
    const json summary = json::parse(std::ifstream(out_ / "summary.json"));
    EXPECT_EQ(summary["lost_ranks"], json::array());
    EXPECT_GE(summary["views"], least_views);
    EXPECT_LE(summary["views"], most_views);
    expect_all_accounted(summary);
  }

  TemporaryDirectory folder_;
  const fs::path out_ = folder_.path() / "run";
  std::string transport_ = "auto";
  std::uint16_t port_ = 0;
  std::vector<std::string> arguments_, more_;
  std::vector<std::unique_ptr<Process>> processes_;
};

// As a launcher restarts a rank: with the same variables. One for each kind of exchange.
TEST_F(Rejoin, AKilledProcessReturnsToItsRun) {
  int dead = 0;
  for (const std::string algorithm :
       {"ar", "sgp", "d-psgd", "ad-psgd", "eager-majority", "wagma", "gem", "easgd"}) {
    dead = dead % 3 + 1;
    SCOPED_TRACE(algorithm + ", process " + std::to_string(dead));
    fs::remove_all(out_);
    processes_.clear();
    begin(algorithm);
    kill(dead);
    processes_[static_cast<std::size_t>(dead)] = make(dead);
    expect_return();
    EXPECT_TRUE(trains_again(dead));
    expect_end(3, 3);
  }
}

// Two nodes of two ranks: the head of the second one returns behind the rank that has taken its
// place, which is lost then.
TEST_F(Rejoin, RanksOfANodeReturn) {
  for (const std::string algorithm : {"ar", "sgp"}) {
    SCOPED_TRACE(algorithm);
    fs::remove_all(out_);
    processes_.clear();
    begin(algorithm, {}, {"--set", "wiring.hierarchy=2"});
    for (const int dead : {2, 3, 1}) {
      kill(dead);
      processes_[static_cast<std::size_t>(dead)] = make(dead);
      expect_return();
      process(0).forget_output();
    }
    EXPECT_TRUE(trains_again(1));
    expect_end(3, 7);
  }
}

// Again and again, also a process that has returned before.
TEST_F(Rejoin, SoItDoesOverUcx) {
  if (!ucx_built_in()) GTEST_SKIP() << "UCX is not in this build";
  transport_ = "ucx";
  for (const std::string algorithm : {"ar", "sgp", "ad-psgd"}) {
    SCOPED_TRACE(algorithm);
    fs::remove_all(out_);
    processes_.clear();
    begin(algorithm);
    for (const int dead : {1, 3, 1}) {
      kill(dead);
      processes_[static_cast<std::size_t>(dead)] = make(dead);
      expect_return();
      process(0).forget_output();
    }
    expect_end(2, 7);
  }
}

// Twice, and another one in between; the restart may come before the loss is known.
TEST_F(Rejoin, ProcessesMayBeLostAndReturnAgainAndAgain) {
  begin("sgp");
  for (const int dead : {2, 1, 2}) {
    kill(dead);
    processes_[static_cast<std::size_t>(dead)] = make(dead);
    expect_return();
    process(0).forget_output();
  }
  expect_end(2, 7);  // a loss may come while another rank joins
}

// With the address of process 0 alone: the job and the place come from there.
TEST_F(Rejoin, TheAddressOfProcessZeroIsEnough) {
  begin("ar", {"GRAPEVINE_JOB_TOKEN=a secret"}, {"--accumulate", "2"});
  std::vector<std::string> variables;
  const auto join = [&](const std::vector<std::string>& more, const std::string& token) {
    ProcessOptions options;
    options.environment = variables;
    if (!token.empty()) options.environment.push_back("GRAPEVINE_JOB_TOKEN=" + token);
    return joining(more, options);
  };
  const auto refused = [&](const std::vector<std::string>& more, const std::string& token,
                           const std::string& why) {
    const auto result = join(more, token)->wait();
    EXPECT_EQ(result.exit_code == 0, false);
    EXPECT_NE(ProcessResult::last_line(result.err).find(why), std::string::npos)
        << result.describe();
    EXPECT_EQ(result.err.find("this process this process"), std::string::npos) << result.err;
  };
  // Long enough for its warning that it waits.
  refused({"--join-timeout", "4"}, "a secret", "no process of the job is lost");
  refused({}, "", "the secret differs");
  refused({}, "another", "the secret differs");
  refused({"--out", "x"}, "a secret", "does not go with --out");
  // It waits for no place.
  refused({"--lr", "0.5"}, "a secret", "lr = 0.5");
  refused({"--accumulate", "1"}, "a secret", "accumulate = nothing, process 0 with 2");
  refused({"--timeout", "30"}, "a secret", "timeout = 30, process 0 with 300");
  refused({"--transport", "tcp"}, "a secret", "transport = tcp, process 0 with auto");
  variables = {"GRAPEVINE_LR=0.5"};
  refused({}, "a secret", "lr = 0.5");
  variables.clear();
  kill(3);
  // Its own number of workers, and what is as in the job.
  processes_[3] = join({"--workers", "1", "--timeout", "300"}, "a secret");
  EXPECT_TRUE(process(3).wait_for_output("rank 3 receives the state of the run, "));
  EXPECT_TRUE(process(3).wait_for_output("rank 3 takes part from step "));
  expect_return();
  EXPECT_TRUE(trains_again(3));
  expect_end(3, 3);
}

// The option replaces the job's on this machine alone.
TEST_F(Rejoin, TheDataOfAProcessThatJoinsMayLieElsewhere) {
  const fs::path here = folder_.path() / "here", elsewhere = folder_.path() / "elsewhere";
  for (const fs::path& text : {here, elsewhere})
    std::ofstream(text) << std::string(20000, 'a') + std::string(20000, 'b');
  begin("ar", {"GRAPEVINE_JOB_TOKEN=a secret"},
        {"--model", "lstm", "--data", "text:" + here.string()});
  fs::remove(here);
  kill(3);
  ProcessOptions options;
  options.environment = {"GRAPEVINE_JOB_TOKEN=a secret"};
  processes_[3] = joining({"--data", "text:" + elsewhere.string()}, options);
  expect_return();
  expect_end(3, 3);
}

// The epochs of a run that went on with another batch size have another length from then on.
TEST_F(Rejoin, ARunWithAnotherBatchSizeIsJoined) {
  begin("ar", {"GRAPEVINE_JOB_TOKEN=a secret"});
  expect_end(1, 1);
  processes_.clear();
  const fs::path latest = out_ / "checkpoint" / "latest", before = fs::read_symlink(latest);
  begin("ar", {"GRAPEVINE_JOB_TOKEN=a secret"}, {"--resume", out_.string(), "--batch-size", "8"});
  ASSERT_TRUE(cluster_test::becomes_true([&] { return fs::read_symlink(latest) != before; }))
      << "it has not continued";
  kill(3);
  ProcessOptions options;
  options.environment.push_back("GRAPEVINE_JOB_TOKEN=a secret");
  processes_[3] = joining({}, options);
  expect_return();
  expect_end(3, 3);
}

// The newest checkpoint, from which the process that is started again takes its options, has a
// setting that process 0 was not started with.
TEST_F(Rejoin, AProcessReturnsToAResumedRunWhoseSettingsHaveChanged) {
  begin("ar");
  expect_end(1, 1);
  processes_.clear();
  const fs::path latest = out_ / "checkpoint" / "latest", before = fs::read_symlink(latest);
  begin("ar", {}, {"--resume", out_.string()});
  ASSERT_TRUE(cluster_test::becomes_true([&] { return fs::read_symlink(latest) != before; }))
      << "it has not continued";
  const ProcessResult set = ControlledJob::set_at(out_.string(), {"weight-decay=0.002"});
  ASSERT_EQ(set.exit_code, 0) << set.describe();
  ASSERT_TRUE(cluster_test::becomes_true([&] {
    return read_file(latest / "job.toml").find("weight-decay = 0.002") != std::string::npos;
  }));
  kill(3);
  processes_[3] = make(3);
  expect_return();
  expect_end(4, 6);
}

TEST_F(Rejoin, BadAddressesAreOneClearLine) {
  for (const std::string address : {"nowhere", "127.0.0.1:0", "127.0.0.1:x"}) {
    const auto result = run_process({"train", "--join", address});
    EXPECT_EQ(result.exit_code, 2) << result.describe();
    EXPECT_NE(result.err.find("--join '" + address + "': expected HOST:PORT"), std::string::npos)
        << result.err;
  }
  const std::string nobody = "127.0.0.1:" + std::to_string(free_port());
  const auto result = run_process({"train", "--join", nobody, "--join-timeout", "0.5"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(ProcessResult::last_line(result.err).find("--join " + nobody), std::string::npos)
      << result.describe();
}

// `launch` starts it again.
class RejoinUnderLaunch : public testing::Test {
 protected:
  std::unique_ptr<Process> launch(const std::vector<std::string>& more,
                                  const std::vector<std::string>& environment = {}) const {
    ProcessOptions options;
    options.environment = environment;
    return std::unique_ptr<Process>(new Process(
        with(with({"launch", "-n", "3", "--on-failure", "continue", "--restarts", "2", "--"},
                  endless("ar", out_, "auto")),
             more),
        options));
  }
  // SIGKILL to the process of that rank.
  static void kill(const Process& launch, int rank) {
    const std::string id = std::to_string(launch.pid());
    std::ifstream children("/proc/" + id + "/task/" + id + "/children");
    const std::string wanted = fmt::format("RANK={}", rank);
    for (pid_t child = 0; children >> child;) {
      std::ifstream environment(fmt::format("/proc/{}/environ", child));
      for (std::string entry; std::getline(environment, entry, '\0');)
        if (entry == wanted) ::kill(child, SIGKILL);
    }
  }

  const TemporaryDirectory folder_;
  const fs::path out_ = folder_.path() / "run";
};

TEST_F(RejoinUnderLaunch, ARestartedProcessTakesPartAgain) {
  const auto job = launch({});
  ASSERT_TRUE(has_begun(out_)) << job->so_far().describe();
  kill(*job, 2);
  ASSERT_TRUE(job->wait_for_output("starting it again (1 of 2)")) << job->so_far().describe();
  ASSERT_TRUE(job->wait_for_output("process 2 has joined again")) << job->so_far().describe();
  job->signal(SIGTERM);
  const auto result = job->wait();
  EXPECT_EQ(result.exit_code, 4) << result.describe();
  const json summary = summary_of(out_);
  EXPECT_EQ(summary["lost_ranks"], json::array());
  EXPECT_EQ(summary["views"], 3);
  expect_all_accounted(summary);
}

TEST_F(RejoinUnderLaunch, ARestartWithoutItsDataLeavesTheRunAlone) {
  const fs::path text = folder_.path() / "text";
  std::ofstream(text) << std::string(20000, 'a') + std::string(20000, 'b');
  const auto job = launch({"--model", "lstm", "--data", "text:" + text.string()});
  ASSERT_TRUE(has_begun(out_)) << job->so_far().describe();
  fs::remove(text);
  kill(*job, 2);
  ASSERT_TRUE(job->wait_for_output("exited with code 2: the others continue"))
      << job->so_far().describe();
  EXPECT_TRUE(job->so_far().err.find("the file does not exist") != std::string::npos)
      << job->so_far().describe();
  job->signal(SIGTERM);
  const auto result = job->wait();
  EXPECT_EQ(result.exit_code, 4) << result.describe();
}

TEST_F(RejoinUnderLaunch, ARestartEndsWithProcessZero) {
  const auto job = launch({"--join-timeout", "3600"});
  ASSERT_TRUE(has_begun(out_)) << job->so_far().describe();
  kill(*job, 2);
  ASSERT_TRUE(job->wait_for_output("starting it again")) << job->so_far().describe();
  kill(*job, 0);
  const auto result = job->wait();
  EXPECT_EQ(result.exit_code, 3) << result.describe();
  const std::string last = ProcessResult::last_line(result.err);
  EXPECT_EQ(last.rfind("error: process 0 on ", 0), 0U) << result.describe();
  EXPECT_NE(last.find("resume with --resume " + out_.string()), std::string::npos) << last;
  EXPECT_EQ(result.err.find("cannot reach process 0"), std::string::npos) << result.err;
}

}  // namespace rejoin_test
}  // namespace grapevine
