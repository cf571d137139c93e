// `grapevine train` on a device, in a precision: what is had, and what is refused and how.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace device_command_test {

namespace fs = std::filesystem;
using nlohmann::json;

// A run of a second, on a machine that shows no GPU.
ProcessResult train(const fs::path& out, const std::vector<std::string>& more) {
  const std::vector<std::string> arguments = {
      "train",   "--model", "gem-cnn",   "--data", "glyphs:640", "--workers", "2",
      "--steps", "10",      "--threads", "1",      "--json",     "--out",     out.string()};
  ProcessOptions options;
  options.environment = {"CUDA_VISIBLE_DEVICES="};
  return run_process(with(arguments, more), options);
}

void expect_refused(const std::vector<std::string>& more, const std::vector<std::string>& parts) {
  const TemporaryDirectory folder;
  const ProcessResult result = train(folder.path() / "never", more);
  EXPECT_EQ(result.exit_code, 2) << result.describe();
  const std::string line = ProcessResult::last_line(result.err);
  EXPECT_EQ(line.rfind("error: ", 0), 0U) << result.describe();
  for (const std::string& part : parts)
    EXPECT_NE(line.find(part), std::string::npos) << "wanted '" << part << "' in: " << line;
  EXPECT_FALSE(fs::exists(folder.path() / "never"));
}

TEST(TrainDevice, WhatCannotBeHadIsRefused) {
  expect_refused({"--device", "cuda"}, {"--device cuda: ", "use cpu or auto"});
  expect_refused({"--device", "cuda:1"}, {"--device cuda:1: ", "use cpu or auto"});
  expect_refused({"--device", "cuda:x"}, {"--device cuda:x: ", "cuda:INDEX"});
  expect_refused({"--device", "gpu"}, {"unknown --device 'gpu'", "cpu, cuda, cuda:INDEX, auto"});
  expect_refused({"--peers", "gpu"}, {"unknown --peers 'gpu'", "host, device, auto"});
  expect_refused({"--bind-threads", "far"}, {"unknown --bind-threads 'far'", "near, none"});
  expect_refused({"--pinned-models", "-1"}, {"--pinned-models -1: expected 0..1000"});
  expect_refused({"--peers", "device"}, {"--peers device: ", "compute on the CPU", "--peers host"});
  expect_refused({"--precision", "bf61"}, {"unknown --precision 'bf61'", "'bf16'"});
  expect_refused({"--precision", "fp16"}, {"--precision fp16", "CUDA GPU", "bf16"});
  expect_refused({"--precision", "tf32"}, {"--precision tf32", "CUDA GPU"});
  expect_refused({"--cuda-graphs"}, {"--cuda-graphs: ", "CUDA GPU", "leave it out"});
  expect_refused({"--data", "hyperplane", "--model", "linear", "--channels-last"},
                 {"--channels-last", "hyperplane", "no images"});
  expect_refused({"--devices-per-worker", "0"}, {"--devices-per-worker 0: expected 1.."});
  expect_refused({"--devices-per-worker", "3"}, {"--devices-per-worker 3", "--batch-size 32"});
  expect_refused({"--devices-per-worker", "-1"}, {"--devices-per-worker -1: expected 1.."});
}

// Same start, same batches: losses differ by bf16's rounding, not more, and not by nothing.
TEST(TrainDevice, TrainsInBf16AndChannelsLastOnTheCpu) {
  const TemporaryDirectory folder;
  const auto loss = [&](const std::string& name, const std::vector<std::string>& more) {
    const ProcessResult result = train(folder.path() / name, more);
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return json::parse(ProcessResult::last_line(result.out))["final_loss"].get<double>();
  };
  const double exact = loss("fp32", {"--device", "cpu"});
  const double rounded = loss("bf16", {"--precision", "bf16"});
  const double last = loss("last", {"--channels-last"});
  EXPECT_NE(rounded, exact);
  EXPECT_NEAR(rounded, exact, 0.05 * exact);
  EXPECT_NEAR(last, exact, 0.01 * exact);
}

// Another one is named.
TEST(TrainDevice, ARunContinuesInItsPrecision) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  ASSERT_EQ(train(out, {"--precision", "bf16"}).exit_code, 0);
  const std::vector<std::string> more = {"--steps", "12", "--resume", out.string()};
  const ProcessResult same = train(out, more);
  EXPECT_EQ(same.exit_code, 0) << same.describe();
  EXPECT_EQ(same.err.find("instead of bf16"), std::string::npos) << same.err;
  const ProcessResult other = train(out, with(more, {"--steps", "14", "--precision", "fp32"}));
  EXPECT_EQ(other.exit_code, 0) << other.describe();
  EXPECT_NE(other.err.find("instead of bf16"), std::string::npos) << other.err;
}

// Each replica has a slice of the batch that one device would have, for whatever algorithm.
TEST(TrainDevice, SeveralDevicesTrainAsOneDoes) {
  const TemporaryDirectory folder;
  const auto run = [&](const std::string& algorithm, const std::string& devices) {
    const fs::path out = folder.path() / (algorithm + devices);
    const ProcessResult result = run_process(
        with(small_run(algorithm, out), {"--workers", "2", "--devices-per-worker", devices}));
    EXPECT_EQ(result.exit_code, 0) << result.describe();
    return summary_of(out);
  };
  for (const std::string algorithm : {"sgp", "eager-majority", "gem"}) {
    SCOPED_TRACE(algorithm);
    const json one = run(algorithm, "1"), four = run(algorithm, "4");
    EXPECT_EQ(one["contributions"], four["contributions"]);
    const ProcessResult resumed =
        run_process({"train", "--resume", (folder.path() / (algorithm + "4")).string(),
                     "--algorithm", algorithm, "--model", "mlp", "--data", "glyphs:1200", "--steps",
                     "14", "--batch-size", "8", "--workers", "2", "--devices-per-worker", "1"});
    EXPECT_EQ(resumed.exit_code, 2) << resumed.describe();
    EXPECT_NE(resumed.err.find("devices-per-worker was 4"), std::string::npos) << resumed.err;
    if (algorithm != "sgp") continue;  // the others' order of arrival differs between runs
    EXPECT_NEAR(four["final_loss"].get<double>(), one["final_loss"].get<double>(), 1e-4);
    EXPECT_EQ(one["bytes_sent"], four["bytes_sent"]);
  }
}

}  // namespace device_command_test
}  // namespace grapevine
