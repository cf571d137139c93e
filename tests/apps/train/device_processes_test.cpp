// Jobs of several processes whose ranks keep their models on GPUs: the fake devices of the tests,
// which end a process with a failure if one of its streams misses a wait.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/apps/cluster/job_processes.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace device_processes_test {

namespace fs = std::filesystem;
using nlohmann::json;
using Arguments = std::vector<std::string>;

ProcessResult run_on_gpus(const Arguments& arguments) {
  ProcessOptions options;
  options.program = GRAPEVINE_FAKE_GPUS;
  options.environment = {"GRAPEVINE_LOG_LEVEL=info", cluster_test::kUcxBetweenHosts};
  return run_process(arguments, options);
}

Arguments job_of_two(const std::string& algorithm, const std::string& transport,
                     const fs::path& out, const Arguments& more) {
  return with(with({"launch", "-n", "2", "--"}, small_run(algorithm, out)),
              with({"--workers", "2", "--transport", transport, "--device", "cuda"}, more));
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

// The models of the host are pinned, also with a transport that could share memory; those that
// other processes of the machine read are in shared memory.
TEST(DeviceProcesses, PinTheModelsThatNoOtherProcessReads) {
  const TemporaryDirectory folder;
  const auto run = [&](const std::string& processes, const Arguments& more) {
    const fs::path out = folder.path() / ("of-" + processes + std::to_string(more.size()));
    auto result = run_on_gpus(with(
        with({"launch", "-n", processes, "--"}, small_run("ar", out)),
        with({"--workers", "2", "--transport", "auto", "--device", "cuda", "--peers", "host"},
             more)));
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return result;
  };
  const auto says = [](const ProcessResult& result, const std::string& text) {
    return result.err.find(text) != std::string::npos;
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
}

}  // namespace device_processes_test
}  // namespace grapevine
