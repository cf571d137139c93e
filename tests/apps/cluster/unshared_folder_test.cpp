// A run whose processes do not share the output folder: states travel to process 0 in parts.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "net/addresses.hpp"
#include "net/ucx/ucx.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace unshared_folder_test {

namespace fs = std::filesystem;

constexpr int kProcesses = 3;

// `own`: the process sees an empty file system in the place of `folder`.
Process start(int process, std::uint16_t port, const fs::path& folder, bool own,
              const std::vector<std::string>& arguments) {
  ProcessOptions options;
  options.environment = {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port),
                         "RANK=" + std::to_string(process),
                         "WORLD_SIZE=" + std::to_string(kProcesses)};
  if (!own) return Process(arguments, options);
  options.program = "/usr/bin/unshare";
  return Process(
      with({"--mount", "--propagation", "private", "/bin/sh", "-c",
            "mount -t tmpfs tmpfs \"$0\" && exec \"$@\"", folder.string(), GRAPEVINE_EXECUTABLE},
           arguments),
      options);
}

bool can_mount(const fs::path& folder) {
  ProcessOptions options;
  options.program = "/usr/bin/unshare";
  return run_process({"--mount", "--propagation", "private", "/bin/mount", "-t", "tmpfs", "tmpfs",
                      folder.string()},
                     options)
             .exit_code == 0;
}

class UnsharedFolder : public testing::TestWithParam<std::string> {
 protected:
  void train(const std::vector<std::string>& more) {
    const auto port = reserve_tcp_port();
    ASSERT_TRUE(port);
    const auto arguments = with(with(small_run("ar", out_), {"--transport", GetParam()}), more);
    std::vector<std::unique_ptr<Process>> processes;
    for (int process = 0; process < kProcesses; ++process)
      processes.emplace_back(
          new Process(start(process, port->number, folder_.path(), process == 1, arguments)));
    for (const auto& process : processes) {
      const auto result = process->wait();
      EXPECT_EQ(result.exit_code, 0) << result.describe();
      EXPECT_EQ(result.err.find("this checkpoint is not written"), std::string::npos) << result.err;
    }
  }

  const TemporaryDirectory folder_;
  const fs::path out_ = folder_.path() / "run";
};

TEST_P(UnsharedFolder, HoldsCheckpointsOfAllRanks) {
  if (::geteuid() != 0 || !can_mount(folder_.path())) GTEST_SKIP() << "not root: no mounts";
  if (GetParam() == "ucx" && !ucx_built_in()) GTEST_SKIP() << "UCX is not in this build";
  train({});
  const auto checkpoint = read_checkpoint(out_.string());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->steps(), std::vector<Step>(kProcesses, 12));
  for (const auto& entry : fs::directory_iterator(out_ / "checkpoint"))
    EXPECT_EQ(entry.path().filename().string().find(".writing"), std::string::npos) << entry;
}

INSTANTIATE_TEST_SUITE_P(Transports, UnsharedFolder, testing::Values("tcp", "ucx"),
                         [](const auto& info) { return info.param; });

}  // namespace unshared_folder_test
}  // namespace grapevine
