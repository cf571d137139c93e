// `grapevine train --processes-per-worker` as a launcher starts it: the training of the same
// workers with several devices in one process, and what ends such a job.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/apps/cluster/job_processes.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace worker_processes_command_test {

namespace fs = std::filesystem;
using Arguments = std::vector<std::string>;
using nlohmann::json;

// With batch normalization, so that buffers cross the link; a few seconds.
Arguments small_job(const std::string& algorithm, const fs::path& out, const Arguments& more) {
  return with(with(small_run(algorithm, out), {"--model", "resnet20", "--data", "glyphs:256",
                                               "--steps", "4", "--device", "cpu"}),
              more);
}

Arguments launched(int processes, const Arguments& command) {
  return with({"launch", "-n", std::to_string(processes), "--"}, command);
}

ProcessResult run_quietly(const Arguments& arguments) {
  ProcessOptions options;
  options.environment = {cluster_test::kUcxBetweenHosts};
  return run_process(arguments, options);
}

// One of the processes of a machine, as torchrun starts them. `more`: variables beside those.
std::unique_ptr<Process> started(int number, int processes, std::uint16_t port,
                                 const Arguments& command, const Arguments& more,
                                 const std::string& program = GRAPEVINE_EXECUTABLE) {
  const std::string rank = std::to_string(number), count = std::to_string(processes);
  ProcessOptions options;
  options.program = program;
  options.environment = {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port),
                         "RANK=" + rank,          "WORLD_SIZE=" + count,
                         "LOCAL_RANK=" + rank,    "LOCAL_WORLD_SIZE=" + count};
  options.environment.insert(options.environment.end(), more.begin(), more.end());
  return std::make_unique<Process>(command, options);
}

// Of the summary, what training has computed and how many gradients it took.
std::vector<std::string> losses_of(const fs::path& out) {
  const json summary = summary_of(out);
  return {summary.at("final_loss").dump(), summary.at("test_loss").dump(),
          summary.at("contributions").dump()};
}

// Two workers of two replicas each, once in two processes and once in four.
TEST(WorkerProcessesCommand, TrainsTheBitsOfSeveralDevicesInOneProcess) {
  for (const std::string algorithm : {"ar", "sgp"}) {
    SCOPED_TRACE(algorithm);
    const TemporaryDirectory folder;
    const fs::path devices = folder.path() / "devices", processes = folder.path() / "processes";
    const ProcessResult one =
        run_quietly(launched(2, small_job(algorithm, devices, {"--devices-per-worker", "2"})));
    ASSERT_EQ(one.exit_code, 0) << one.describe();
    const ProcessResult two =
        run_quietly(launched(4, small_job(algorithm, processes, {"--processes-per-worker", "2"})));
    ASSERT_EQ(two.exit_code, 0) << two.describe();
    EXPECT_EQ(losses_of(processes), losses_of(devices));
    EXPECT_EQ(read_file(processes / "model.pt"), read_file(devices / "model.pt"));
    for (const std::string member : {"\n[1]", "\n[3]"})  // prints nothing
      EXPECT_EQ(("\n" + two.err).find(member), std::string::npos) << two.err;

    // It continues from its checkpoint, and not with another number of processes.
    const Arguments longer =
        small_job(algorithm, processes, {"--steps", "6", "--resume", processes.string()});
    const ProcessResult resumed = run_quietly(launched(4, longer));
    EXPECT_EQ(resumed.exit_code, 0) << resumed.describe();
    const ProcessResult expected = run_quietly(
        launched(2, small_job(algorithm, devices, {"--steps", "6", "--resume", devices.string()})));
    EXPECT_EQ(expected.exit_code, 0) << expected.describe();
    EXPECT_EQ(losses_of(processes), losses_of(devices));
    EXPECT_EQ(read_file(processes / "model.pt"), read_file(devices / "model.pt"));
    const ProcessResult other =
        run_quietly(launched(2, with(longer, {"--steps", "8", "--processes-per-worker", "1"})));
    EXPECT_EQ(other.exit_code, 2) << other.describe();
    EXPECT_NE(other.err.find("processes-per-worker was 2"), std::string::npos) << other.err;
  }
}

// The only worker has all processes: there are no messages between ranks then.
TEST(WorkerProcessesCommand, OneWorkerMayHaveAllProcesses) {
  const TemporaryDirectory folder;
  const fs::path devices = folder.path() / "devices", processes = folder.path() / "processes";
  const ProcessResult one =
      run_process(small_job("ar", devices, {"--workers", "1", "--devices-per-worker", "2"}));
  ASSERT_EQ(one.exit_code, 0) << one.describe();
  const ProcessResult two =
      run_process(launched(2, small_job("ar", processes, {"--processes-per-worker", "2"})));
  ASSERT_EQ(two.exit_code, 0) << two.describe();
  EXPECT_EQ(losses_of(processes), losses_of(devices));
  EXPECT_EQ(read_file(processes / "model.pt"), read_file(devices / "model.pt"));
  // Its job file repeats it.
  const fs::path again = folder.path() / "again";
  const ProcessResult repeated = run_process(
      launched(2, {"train", (processes / "job.toml").string(), "--out", again.string()}));
  ASSERT_EQ(repeated.exit_code, 0) << repeated.describe();
  EXPECT_EQ(losses_of(again), losses_of(processes));
}

// On the devices of the tests, which end a process if one of its streams misses a wait. `groups`:
// GRAPEVINE_FAKE_GROUPS.
ProcessResult run_on_gpus(const std::string& groups, const Arguments& arguments) {
  ProcessOptions options;
  options.program = GRAPEVINE_FAKE_GPUS;
  options.environment = {cluster_test::kUcxBetweenHosts, "GRAPEVINE_LOG_LEVEL=info",
                         "GRAPEVINE_FAKE_GROUPS=" + groups};
  return run_process(arguments, options);
}

// Whether a group in the place of NCCL's sums the gradients, of devices in one process or in two,
// or the host: all add in the order of the replicas.
TEST(WorkerProcessesCommand, EachProcessMayHaveAGpu) {
  const TemporaryDirectory folder;
  std::vector<fs::path> runs;
  for (const std::string groups : {"none", "nccl"}) {
    const std::string method = groups == "none" ? "on the host" : "by NCCL";
    const fs::path devices = folder.path() / (groups + "-devices");
    const ProcessResult one = run_on_gpus(
        groups, with(small_run("sgp", devices),
                     {"--device", "cuda", "--workers", "1", "--devices-per-worker", "2"}));
    ASSERT_EQ(one.exit_code, 0) << one.describe();
    EXPECT_NE(one.err.find("2 replicas: gradients are summed " + method), std::string::npos)
        << one.describe();
    const fs::path processes = folder.path() / (groups + "-processes");
    const ProcessResult two =
        run_on_gpus(groups, launched(2, with(small_run("sgp", processes),
                                             {"--device", "cuda", "--processes-per-worker", "2"})));
    ASSERT_EQ(two.exit_code, 0) << two.describe();
    EXPECT_NE(two.err.find("2 replicas in processes of their own: gradients are summed " + method),
              std::string::npos)
        << two.describe();
    runs.insert(runs.end(), {devices, processes});
  }
  for (const fs::path& run : runs) {
    EXPECT_EQ(losses_of(run), losses_of(runs.front())) << run;
    EXPECT_EQ(read_file(run / "model.pt"), read_file(runs.front() / "model.pt")) << run;
  }
}

// Bytes that the lead's GPU has received from the host's memory, and sent there. The other lines
// are those of `launch` about process 1.
std::pair<std::int64_t, std::int64_t> link_of_lead(const ProcessResult& result) {
  std::istringstream lines(result.err);
  for (std::string line; std::getline(lines, line);) {
    const auto begin = line.find("traffic of the GPUs: ");
    if (begin == std::string::npos || line.rfind("[1]", 0) == 0) continue;
    long long up = 0, in_place = 0, down = 0;
    EXPECT_EQ(std::sscanf(line.c_str() + begin,
                          "traffic of the GPUs: %lld bytes up, %lld of them from pinned models; "
                          "%lld bytes down",
                          &up, &in_place, &down),
              3)
        << line;
    return {up, down};
  }
  ADD_FAILURE() << result.describe();
  return {};
}

constexpr char kOnGpus[] = "the ranks keep their models on the workers' GPUs";

// The group takes z from the lead's GPU to the other one, and leaves the mean there: twelve further
// steps move batches over the lead's link, less than half of a model.
TEST(WorkerProcessesCommand, TheModelMayLieOnTheGpuOfTheLead) {
  const TemporaryDirectory folder;
  const auto run = [&](const std::string& name, const Arguments& more) {
    auto result = run_on_gpus(
        "nccl", launched(2, with(small_run("sgp", folder.path() / name),
                                 with({"--device", "cuda", "--processes-per-worker", "2"}, more))));
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return result;
  };
  run("host", {});
  const auto here = run("device", {"--peers", "device"});
  EXPECT_NE(here.err.find(kOnGpus), std::string::npos) << here.describe();
  EXPECT_EQ(losses_of(folder.path() / "device"), losses_of(folder.path() / "host"));
  EXPECT_EQ(read_file(folder.path() / "device" / "model.pt"),
            read_file(folder.path() / "host" / "model.pt"));

  const auto longer = run("longer", {"--peers", "auto", "--steps", "24"});
  EXPECT_NE(longer.err.find(kOnGpus), std::string::npos) << longer.describe();
  const std::int64_t model =
      4 * summary_of(folder.path() / "longer").at("parameters").get<std::int64_t>();
  const auto [up, down] = link_of_lead(here);
  const auto [more_up, more_down] = link_of_lead(longer);
  EXPECT_GT(more_up, up);
  EXPECT_LT(more_up - up, model / 2);
  EXPECT_LT(more_down - down, model / 2);
}

// Else the processes share it in the host's memory.
TEST(WorkerProcessesCommand, WithoutAGroupTheModelLiesInTheHostsMemory) {
  const TemporaryDirectory folder;
  const auto run = [&](const std::string& peers) {
    return run_on_gpus(
        "none",
        launched(2, with(small_run("sgp", folder.path() / peers),
                         {"--device", "cuda", "--processes-per-worker", "2", "--peers", peers})));
  };
  const std::string why = "no NCCL group takes a worker's model from the GPU of its first process";
  const auto chosen = run("auto");
  EXPECT_EQ(chosen.exit_code, 0) << chosen.describe();
  EXPECT_NE(
      chosen.err.find("--peers auto: the ranks keep their models in the host's memory: " + why),
      std::string::npos)
      << chosen.describe();
  const auto asked = run("device");
  EXPECT_EQ(asked.exit_code, 2) << asked.describe();
  EXPECT_NE(asked.err.find("error: --peers device: " + why), std::string::npos) << asked.describe();
  EXPECT_FALSE(fs::exists(folder.path() / "device"));
}

// The others wait in the group for it, for up to an hour by default. Without `launch`, which may
// end the lead before the lead has seen the death itself.
TEST(WorkerProcessesCommand, AProcessThatDiesWhileTheOthersJoinAGroupEndsThem) {
  const TemporaryDirectory folder;
  const std::uint16_t port = cluster_test::free_port();
  const auto start = [&](int number) {
    return started(number, 2, port,
                   with(small_run("sgp", folder.path() / "out"),
                        {"--device", "cuda", "--processes-per-worker", "2"}),
                   {"GRAPEVINE_JOB_TOKEN=t3", "GRAPEVINE_FAKE_GROUPS=dies"}, GRAPEVINE_FAKE_GPUS);
  };
  const auto lead = start(0), member = start(1);
  EXPECT_EQ(member->wait().signal, SIGKILL);
  const ProcessResult result = lead->wait();
  EXPECT_EQ(result.exit_code, 3) << result.describe();
  EXPECT_NE(result.err.find("rank 0, replica 1, process 1: this process of the worker is lost"),
            std::string::npos)
      << result.describe();
}

// ---- ends

// Processes of one job, started one by one: two workers of two processes, without end.
class LongJob {
 public:
  explicit LongJob(const fs::path& out) : out_(out) {
    const Arguments command =
        with(small_run("sgp", out), {"--steps", "1000000", "--checkpoint-every", "0.02",
                                     "--processes-per-worker", "2", "--timeout", "60"});
    const std::uint16_t port = cluster_test::free_port();
    for (int i = 0; i < 4; ++i)
      processes_.push_back(
          started(i, 4, port, command, {"GRAPEVINE_JOB_TOKEN=t1", cluster_test::kUcxBetweenHosts}));
  }
  Process& process(int number) { return *processes_.at(static_cast<std::size_t>(number)); }
  bool has_begun() const { return cluster_test::has_begun(out_); }

 private:
  const fs::path out_;
  std::vector<std::unique_ptr<Process>> processes_;
};

TEST(WorkerProcessesCommand, AKilledMemberEndsTheRun) {
  const TemporaryDirectory folder;
  LongJob job(folder.path() / "run");
  ASSERT_TRUE(job.has_begun());
  job.process(3).signal(SIGKILL);
  const ProcessResult lead = job.process(2).wait();
  EXPECT_FALSE(lead.timed_out) << lead.describe();
  EXPECT_NE(lead.exit_code, 0) << lead.describe();
  EXPECT_NE(lead.err.find("rank 1, replica 1, process 3: this process of the worker is lost"),
            std::string::npos)
      << lead.describe();
  const ProcessResult head = job.process(0).wait();
  EXPECT_FALSE(head.timed_out) << head.describe();
  EXPECT_NE(head.exit_code, 0) << head.describe();
  EXPECT_FALSE(job.process(1).wait().timed_out);
}

TEST(WorkerProcessesCommand, AMemberEndsWithItsKilledLead) {
  const TemporaryDirectory folder;
  LongJob job(folder.path() / "run");
  ASSERT_TRUE(job.has_begun());
  job.process(2).signal(SIGKILL);
  const ProcessResult member = job.process(3).wait();
  EXPECT_EQ(member.exit_code, 3) << member.describe();
  EXPECT_EQ(member.err, "error: process 2, the lead of this process's worker, is lost\n");
  for (const int other : {0, 1}) EXPECT_FALSE(job.process(other).wait().timed_out);
}

// Under a launcher of this program: the code of a lost process, and nothing is left behind.
TEST(WorkerProcessesCommand, LaunchEndsWithALostMember) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  Process launch(
      launched(4, with(small_run("sgp", out), {"--steps", "1000000", "--checkpoint-every", "0.02",
                                               "--processes-per-worker", "2"})));
  ASSERT_TRUE(cluster_test::has_begun(out));
  // The member of the second worker, by the environment of the processes.
  bool killed = false;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string pid = entry.path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream parent("/proc/" + pid + "/stat"), variables("/proc/" + pid + "/environ");
    const std::string stat{std::istreambuf_iterator<char>(parent), {}};
    const std::string environment =
        std::string(1, '\0') + std::string{std::istreambuf_iterator<char>(variables), {}};
    const auto end = stat.rfind(") ");
    if (end == std::string::npos) continue;
    const std::string ours = " " + std::to_string(launch.pid()) + " ";
    if (stat.compare(end + 3, ours.size(), ours) != 0) continue;
    if (environment.find(std::string("\0RANK=3\0", 8)) == std::string::npos) continue;
    ::kill(static_cast<pid_t>(std::stol(pid)), SIGKILL);
    killed = true;
  }
  ASSERT_TRUE(killed);
  const ProcessResult result = launch.wait();
  EXPECT_FALSE(result.timed_out) << result.describe();
  EXPECT_EQ(result.exit_code, 3) << result.describe();
}

// Its member ends without an error, so that `launch` reports the lead's, whichever it sees first.
TEST(WorkerProcessesCommand, TheErrorOfALeadIsThatOfItsJob) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  Process other(with(small_run("sgp", out), {"--steps", "1000000", "--checkpoint-every", "0.02"}));
  ASSERT_TRUE(cluster_test::has_begun(out));
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    const ProcessResult result = run_quietly(
        launched(2, with(small_run("sgp", out), {"--overwrite", "--processes-per-worker", "2"})));
    EXPECT_EQ(result.exit_code, 2) << result.describe();
    EXPECT_NE(result.err.find("another run writes there"), std::string::npos) << result.describe();
    EXPECT_EQ(result.err.find("is lost"), std::string::npos) << result.describe();
  }
}

// The lead stops the run, with a checkpoint; its member serves it until then.
TEST(WorkerProcessesCommand, AMemberThatIsAskedToStopAsksItsLead) {
  const TemporaryDirectory folder;
  LongJob job(folder.path() / "run");
  ASSERT_TRUE(job.has_begun());
  job.process(3).signal(SIGTERM);
  const ProcessResult head = job.process(0).wait();
  EXPECT_EQ(head.exit_code, 4) << head.describe();
  for (const int other : {1, 2, 3}) {
    const ProcessResult result = job.process(other).wait();
    EXPECT_EQ(result.exit_code, 0) << other << ": " << result.describe();
  }
}

// ---- what is refused

void expect_refused(const Arguments& arguments, const std::vector<std::string>& environment,
                    const std::string& part) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "never";
  ProcessOptions options;
  options.environment = environment;
  const ProcessResult result = run_process(with(small_run("sgp", out), arguments), options);
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  EXPECT_NE(result.err.find(part), std::string::npos) << "wanted " << part << result.describe();
  EXPECT_FALSE(fs::exists(out));
}

TEST(WorkerProcessesCommand, WhatDoesNotFitIsRefusedBeforeAnyWork) {
  const std::vector<std::string> place = {"RANK=0",
                                          "WORLD_SIZE=4",
                                          "LOCAL_RANK=0",
                                          "LOCAL_WORLD_SIZE=4",
                                          "MASTER_ADDR=127.0.0.1",
                                          "MASTER_PORT=29555"};
  const std::string option = "--processes-per-worker";
  expect_refused({option, "2"}, {}, "no launcher has started several processes");
  expect_refused({option, "3", "--batch-size", "9"}, place, "start a multiple of 3");
  expect_refused({option, "4", "--batch-size", "6"}, place, "--batch-size 6");
  expect_refused({option, "0"}, place, "--processes-per-worker 0: expected 1..");
  expect_refused({option, "2", "--devices-per-worker", "2"}, place, "--devices-per-worker 2");
  expect_refused({option, "2", "--workers", "2"}, place, "--workers 2");
  expect_refused({option, "2", "--max-ranks", "8"}, place, "--max-ranks");
  expect_refused({option, "2", "--peers", "device", "--device", "cpu"}, place, "--peers host");
  expect_refused({option, "2", "--cluster", "127.0.0.1:1"}, {}, "--cluster");
  std::vector<std::string> continues = place;
  continues.emplace_back("GRAPEVINE_REPORT_BEGIN=1");
  expect_refused({option, "2"}, continues, "--on-failure");
}

// Both ends name the other one.
TEST(WorkerProcessesCommand, ProcessesWithOtherOptionsAreRefused) {
  const TemporaryDirectory folder;
  const std::uint16_t port = cluster_test::free_port();
  const auto start = [&](int number, const std::string& seed) {
    return started(number, 2, port,
                   with(small_run("sgp", folder.path() / "run"),
                        {"--processes-per-worker", "2", "--seed", seed}),
                   {"GRAPEVINE_JOB_TOKEN=t2"});
  };
  const auto lead = start(0, "1"), member = start(1, "2");
  const ProcessResult at_lead = lead->wait(), at_member = member->wait();
  EXPECT_EQ(at_lead.exit_code, 2) << at_lead.describe();
  EXPECT_NE(at_lead.err.find("rank 0, replica 1, process 1 does not fit its worker: its options"),
            std::string::npos)
      << at_lead.describe();
  EXPECT_EQ(at_member.exit_code, 2) << at_member.describe();
  EXPECT_NE(at_member.err.find("process 0, the lead of this process's worker: its options"),
            std::string::npos)
      << at_member.describe();
}

}  // namespace worker_processes_command_test
}  // namespace grapevine
