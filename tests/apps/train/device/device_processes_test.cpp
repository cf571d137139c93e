// Jobs of several processes whose ranks keep their models on GPUs: the fake devices of the tests,
// which end a process with a failure if one of its streams misses a wait.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "gpu/threads/near_cpus.hpp"
#include "tests/apps/cluster/job_processes.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace device_processes_test {

namespace fs = std::filesystem;
using nlohmann::json;
using Arguments = std::vector<std::string>;

ProcessResult run_on_gpus(const Arguments& arguments, const Arguments& environment = {}) {
  ProcessOptions options;
  options.program = GRAPEVINE_FAKE_GPUS;
  options.environment =
      with({"GRAPEVINE_LOG_LEVEL=info", cluster_test::kUcxBetweenHosts}, environment);
  return run_process(arguments, options);
}

Arguments job_of_two(const std::string& algorithm, const std::string& transport,
                     const fs::path& out, const Arguments& more) {
  return with(with({"launch", "-n", "2", "--"}, small_run(algorithm, out)),
              with({"--workers", "2", "--transport", transport, "--device", "cuda"}, more));
}

bool says(const ProcessResult& result, const std::string& text) {
  return result.err.find(text) != std::string::npos;
}

json summary_of(const fs::path& out) { return json::parse(read_file(out / "summary.json")); }

// The sum of gradients does not depend on the order of messages: bits are those of models in the
// host's memory, over each wire.
TEST(DeviceProcesses, TrainTheModelOfTheHost) {
  const TemporaryDirectory folder;
  const auto loss = [&](const std::string& transport, const std::string& peers) {
    const fs::path out = folder.path() / (transport + "-" + peers);
    const auto result = run_on_gpus(job_of_two("ar", transport, out, {"--peers", peers}));
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    const bool on_gpus =
        result.err.find("the ranks keep their models on the workers' GPUs") != std::string::npos;
    EXPECT_EQ(on_gpus, peers == "device") << result.describe();
    return summary_of(out).at("test_loss").get<double>();
  };
  const double host = loss("tcp", "host");
  for (const std::string transport : {"tcp", "shm", "ucx"})
    EXPECT_EQ(loss(transport, "device"), host);
}

TEST(DeviceProcesses, AllKindsOfExchangeConserveGradients) {
  const TemporaryDirectory folder;
  const std::vector<std::pair<std::string, Arguments>> jobs = {
      {"osgp", {}},
      {"ad-psgd", {}},
      {"eager-majority", {}},
      {"gtopk", {}},
      {"gem", {}},
      {"ar", {"--set", "wiring.compress=int8"}},
      {"sgp", {"--checkpoint-every", "0.5"}}};
  for (const auto& [algorithm, more] : jobs) {
    SCOPED_TRACE(algorithm);
    const fs::path out = folder.path() / (algorithm + std::to_string(more.size()));
    const auto result =
        run_on_gpus(job_of_two(algorithm, "auto", out, with({"--peers", "device"}, more)));
    ASSERT_EQ(result.exit_code, 0) << result.describe();
    const json counts = summary_of(out).at("contributions");
    EXPECT_GT(counts.at("produced"), 0);
    EXPECT_EQ(counts.at("produced"), counts.at("applied").get<std::int64_t>() +
                                         counts.at("pending").get<std::int64_t>() +
                                         counts.at("dropped").get<std::int64_t>())
        << counts;
  }
  // Its states are those of models in the host's memory.
  const auto resumed =
      run_on_gpus({"launch", "-n", "2", "--", "train", "--resume",
                   (folder.path() / "sgp2").string(), "--peers", "host", "--steps", "80"});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.describe();
}

// Each on the first of its devices. Those of several workers are shared, so that no group sums.
TEST(DeviceProcesses, WorkersWithSeveralDevicesTrainTheModelOfTheHost) {
  const TemporaryDirectory folder;
  const auto loss = [&](const std::string& groups, const std::string& workers,
                        const std::string& peers, const Arguments& launch) {
    const fs::path out = folder.path() / (groups + workers + peers + std::to_string(launch.size()));
    const auto result = run_on_gpus(
        with(launch, with(small_run("ar", out), {"--device", "cuda", "--devices-per-worker", "2",
                                                 "--workers", workers, "--peers", peers})),
        {"GRAPEVINE_FAKE_GROUPS=" + groups});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    EXPECT_EQ(says(result, "the ranks keep their models on the workers' GPUs"), peers != "host")
        << result.describe();
    return summary_of(out).at("test_loss").get<double>();
  };
  for (const std::string groups : {"none", "nccl"})
    EXPECT_EQ(loss(groups, "1", "device", {}), loss(groups, "1", "host", {}));
  const double host = loss("none", "2", "host", {});
  EXPECT_EQ(loss("none", "2", "auto", {}), host);
  const Arguments two = {"launch", "-n", "2", "--"};
  EXPECT_EQ(loss("none", "1", "device", two), host);
}

// The models of the host are pinned, also with a transport that could share memory; those that
// other processes of the machine read are in shared memory.
TEST(DeviceProcesses, PinTheModelsThatNoOtherProcessReads) {
  const TemporaryDirectory folder;
  const auto run = [&](const std::string& processes, const Arguments& more) {
    const fs::path out = folder.path() / ("of-" + processes + std::to_string(more.size()));
    auto result = run_on_gpus(
        with(with({"launch", "-n", processes, "--"}, small_run("ar", out)),
             with({"--workers", "2", "--transport", "auto", "--device", "cuda", "--peers", "host"},
                  more)));
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return result;
  };
  const std::string kPinned = "its model lies in pinned memory";
  const std::string kNone = " 0 of them from pinned models";
  const auto alone = run("1", {});
  EXPECT_TRUE(says(alone, kPinned)) << alone.describe();
  EXPECT_TRUE(says(alone, "traffic of the GPUs: ")) << alone.describe();
  EXPECT_FALSE(says(alone, kNone)) << alone.describe();
  const auto sharing = run("2", {});
  EXPECT_TRUE(says(sharing, "its model is not in pinned memory")) << sharing.describe();
  EXPECT_TRUE(says(sharing, kNone)) << sharing.describe();
  const auto off = run("1", {"--pinned-models", "0"});
  EXPECT_FALSE(says(off, kPinned)) << off.describe();
  EXPECT_TRUE(says(off, kNone)) << off.describe();
}

// Half of the CPUs are near the first GPU, none near the second one.
TEST(DeviceProcesses, LaunchFromTheCpusNearTheirGpus) {
  const CpuSet own = thread_cpus().value();
  if (own.size() < 2) GTEST_SKIP() << "this process may use one CPU only";
  const CpuSet half(own.begin(), std::next(own.begin(), static_cast<int>((own.size() + 1) / 2)));
  const std::string near = cpus_text(half);
  const TemporaryDirectory folder;
  for (const char* gpu : {"gpu0", "gpu1"}) fs::create_directory(folder.path() / gpu);
  std::ofstream(folder.path() / "gpu0" / "local_cpulist") << near << "\n";
  std::ofstream(folder.path() / "gpu1" / "local_cpulist") << "8000\n";
  const auto run = [&](const std::string& name, const Arguments& more) {
    Arguments arguments = small_run("ar", folder.path() / name);
    const auto threads = std::find(arguments.begin(), arguments.end(), "--threads");
    arguments.erase(threads, std::next(threads, 2));  // the default
    auto result = run_on_gpus(with(with(arguments, {"--device", "cuda"}), more),
                              {"GRAPEVINE_FAKE_PCI=" + folder.path().string()});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return result;
  };
  const std::string bound = "its threads run on CPUs " + near + ", near ";

  const auto one = run("one", {"--workers", "1"});
  EXPECT_TRUE(says(one, "rank 0: " + bound)) << one.describe();
  EXPECT_TRUE(says(one, "--threads " + std::to_string(half.size()) + " for each GPU"))
      << one.describe();
  const std::string job = read_file(folder.path() / "one" / "job.toml");
  EXPECT_NE(job.find("threads = " + std::to_string(own.size()) + "\n"), std::string::npos)
      << "another machine has other GPUs: " << job;

  const auto two = run("two", {"--workers", "2"});
  EXPECT_TRUE(says(two, "rank 0: " + bound)) << two.describe();
  EXPECT_TRUE(says(two,
                   "rank 1: its threads are not bound to CPUs: this process may not use the "
                   "CPUs near cuda:1 (8000)"))
      << two.describe();

  const auto replicas = run("replicas", {"--workers", "1", "--devices-per-worker", "2"});
  EXPECT_TRUE(says(replicas, "rank 0, replica 0: " + bound)) << replicas.describe();

  const auto off = run("off", {"--workers", "1", "--bind-threads", "none"});
  EXPECT_FALSE(says(off, "its threads run on CPUs")) << off.describe();
}

json of_four_ranks(double share) {
  return {{"mean", share}, {"ranks", {{"0", share}, {"1", share}, {"2", share}, {"3", share}}}};
}

// The devices take no time, or so much that they are busy all the time. The first steps do not
// count.
TEST(DeviceProcesses, ReportHowBusyTheirGpusAre) {
  const TemporaryDirectory folder;
  const auto busy = [&](const std::string& name, const Arguments& more, const char* duration) {
    const fs::path out = folder.path() / name;
    const auto result = run_on_gpus(job_of_two("ar", "tcp", out, more),
                                    {std::string("GRAPEVINE_FAKE_DURATION=") + duration});
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return summary_of(out).value("gpu_busy", json());
  };
  constexpr char kNothing[] = "aten::addmm.out 0", kLong[] = "aten::addmm.out 1000";
  for (const std::string peers : {"host", "device"}) {
    SCOPED_TRACE(peers);
    const Arguments more = {"--peers", peers, "--steps", "26"};
    EXPECT_EQ(busy(peers + "-all", more, kLong), of_four_ranks(1.0));
    EXPECT_EQ(busy(peers + "-none", more, kNothing), of_four_ranks(0.0));
  }
  EXPECT_EQ(busy("short", {"--peers", "host"}, kLong), json());
  EXPECT_EQ(busy("cpu", {"--device", "cpu", "--steps", "26"}, kLong), json());
}

}  // namespace device_processes_test
}  // namespace grapevine
