// A job begins with fewer processes than --max-ranks allows, and others join it.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "net/ucx/ucx.hpp"
#include "tests/apps/cluster/job_processes.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace grown_job_test {

namespace fs = std::filesystem;
using cluster_test::free_port;
using cluster_test::has_begun;
using cluster_test::start;
using nlohmann::json;

class GrownJob : public testing::Test {
 protected:
  using Arguments = std::vector<std::string>;

  std::unique_ptr<Process> make(int process, int processes, const Arguments& arguments) const {
    return std::unique_ptr<Process>(
        new Process(start("torchrun", process, processes, port_, arguments,
                          {"GRAPEVINE_JOB_TOKEN=a secret", cluster_test::kUcxBetweenHosts})));
  }
  // It begins with two processes.
  void begin(const std::string& algorithm, const std::string& transport) {
    fs::remove_all(out_);
    processes_.clear();
    port_ = free_port();
    const Arguments arguments =
        with(small_run(algorithm, out_),
             {"--transport", transport, "--steps", "100000000", "--checkpoint-every", "0.5",
              "--log-every", "100", "--max-ranks", "4", "--lost-after", "0"});
    for (int process = 0; process < 2; ++process) processes_.push_back(make(process, 2, arguments));
    ASSERT_TRUE(has_begun(out_)) << head().so_far().describe();
  }
  std::unique_ptr<Process> join(const Arguments& more = {}) const {
    ProcessOptions options;
    options.environment = {"GRAPEVINE_JOB_TOKEN=a secret", cluster_test::kUcxBetweenHosts};
    return std::unique_ptr<Process>(new Process(
        with({"train", "--join", "127.0.0.1:" + std::to_string(port_)}, more), options));
  }
  Process& head() { return *processes_.front(); }
  void expect_told(const std::string& line) {
    EXPECT_TRUE(head().wait_for_output(line)) << head().so_far().describe();
    head().forget_output();
  }
  // It has written records of steps.
  bool trains(int process) const {
    const std::string name = "process-000" + std::to_string(process);
    return cluster_test::becomes_true([&] {
      std::uintmax_t bytes = 0;
      for (const auto& file : fs::directory_iterator(out_ / "trace"))
        if (file.path().filename().string().rfind(name, 0) == 0) bytes += file.file_size();
      return bytes > 4000;
    });
  }
  // A stop by request.
  json stop() {
    head().signal(SIGTERM);
    const auto ended = head().wait();
    EXPECT_EQ(ended.exit_code, 4) << ended.describe();
    for (std::size_t other = 1; other < processes_.size(); ++other) {
      const auto result = processes_[other]->wait();
      EXPECT_EQ(result.exit_code, 0) << "process " << other << result.describe();
    }
    const json summary = json::parse(std::ifstream(out_ / "summary.json"));
    const json& counts = summary["contributions"];
    EXPECT_EQ(counts["produced"].get<std::int64_t>(),
              counts["applied"].get<std::int64_t>() + counts["pending"].get<std::int64_t>() +
                  counts["dropped"].get<std::int64_t>() + counts["destroyed"].get<std::int64_t>());
    return summary;
  }

  TemporaryDirectory folder_;
  const fs::path out_ = folder_.path() / "run";
  std::uint16_t port_ = 0;
  std::vector<std::unique_ptr<Process>> processes_;
};

// Both vacant places are taken, one of these processes dies, and another takes its place.
TEST_F(GrownJob, OthersJoinOverEveryTransport) {
  std::vector<std::pair<std::string, std::string>> cases = {
      {"auto", "sgp"}, {"tcp", "gem"}, {"shm", "ad-psgd"}};
  if (ucx_built_in()) cases.emplace_back("ucx", "ar");
  for (const auto& [transport, algorithm] : cases) {
    SCOPED_TRACE(algorithm + " over " + transport);
    begin(algorithm, transport);
    ASSERT_FALSE(HasFatalFailure());
    processes_.push_back(join());
    expect_told("process 2 has joined");
    EXPECT_TRUE(trains(2));
    processes_.push_back(join());
    expect_told("process 3 has joined");
    EXPECT_TRUE(trains(3));
    const auto late = join({"--join-timeout", "0.5"})->wait();
    EXPECT_NE(late.exit_code, 0);
    EXPECT_NE(late.err.find("no process of the job is lost, and no place is vacant"),
              std::string::npos)
        << late.describe();
    processes_[2]->signal(SIGKILL);
    processes_[2]->wait();
    expect_told("rank 2 of process 2 is gone");
    processes_[2] = join();
    expect_told("process 2 has joined again");
    const json summary = stop();
    EXPECT_EQ(summary["joined_ranks"], 2);
    EXPECT_EQ(summary["vacant_ranks"], json::array());
    EXPECT_EQ(summary["lost_ranks"], json::array());
    EXPECT_EQ(summary["views"], 5);
  }
}

// Each is offered a place before the other has taken its own.
TEST_F(GrownJob, TwoThatComeAtOnceTakeBothPlaces) {
  begin("sgp", "tcp");
  ASSERT_FALSE(HasFatalFailure());
  for (int i = 0; i < 2; ++i) processes_.push_back(join());
  for (const std::string line : {"process 2 has joined", "process 3 has joined"})
    EXPECT_TRUE(head().wait_for_output(line)) << head().so_far().describe();
  const json summary = stop();
  EXPECT_EQ(summary["joined_ranks"], 2);
  EXPECT_EQ(summary["vacant_ranks"], json::array());
}

// Fewer processes continue it, whose job file has the places, and others may join again.
TEST_F(GrownJob, ItIsResumedByFewerAndGrowsAgain) {
  begin("sgp", "tcp");
  ASSERT_FALSE(HasFatalFailure());
  expect_told("2 places are vacant: 'grapevine train --join 127.0.0.1:" + std::to_string(port_) +
              "' takes one, with the job's GRAPEVINE_JOB_TOKEN");
  processes_.push_back(join());
  expect_told("process 2 has joined");
  EXPECT_TRUE(trains(2));
  const json before = stop();
  EXPECT_EQ(before["vacant_ranks"], json({3}));
  processes_.clear();
  port_ = free_port();
  for (int process = 0; process < 2; ++process)
    processes_.push_back(make(process, 2, {"train", "--resume", out_.string()}));
  expect_told("2 places are vacant");
  processes_.push_back(join());
  expect_told("process 2 has joined");
  const json after = stop();
  EXPECT_EQ(after["joined_ranks"], 1);
  EXPECT_EQ(after["vacant_ranks"], json({3}));
  EXPECT_GE(after["contributions"]["produced"], before["contributions"]["produced"]);
}

TEST_F(GrownJob, WhatDoesNotFitIsOneClearLine) {
  const Arguments small = small_run("sgp", out_);
  const Arguments launch = {"launch", "-n", "2", "--"};
  const std::vector<std::pair<Arguments, std::string>> cases = {
      {with(small, {"--max-ranks", "4"}), "begin with 'grapevine launch -n N -- train …'"},
      {with(with(launch, small), {"--max-ranks", "1"}), "2 ranks begin the run"},
      {with(with(launch, small), {"--max-ranks", "5", "--workers", "2"}), "give a multiple"},
      {with(with(launch, small), {"--max-ranks", "-4"}), "--max-ranks -4: expected 0..4096"},
      {with(with(launch, small), {"--max-ranks", "4", "--min-ranks", "3"}),
       "the job begins with only 2 ranks that train"},
      {with(with(launch, small_run("gem", out_)),
            {"--max-ranks", "6", "--set", "wiring.hierarchy=2"}),
       "--max-ranks 6: this wiring does not change its ranks while it trains"}};
  for (const auto& [arguments, why] : cases) {
    const auto result = run_process(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.describe();
    EXPECT_NE(result.err.find(why), std::string::npos) << why << result.describe();
    EXPECT_FALSE(fs::exists(out_)) << "before the folder is made";
  }
}

}  // namespace grown_job_test
}  // namespace grapevine
