// Processes of two containers that share the network of their host, and have the same number.
#include <gtest/gtest.h>

#include <string>

#include "tests/apps/cluster/job_processes.hpp"
#include "tests/apps/process.hpp"

namespace grapevine {
namespace {

ProcessOptions in_a_container() {
  ProcessOptions options;
  options.program = "/usr/bin/unshare";
  return options;
}

TEST(SameNumber, IsNamedWithWhatToDo) {
  const std::vector<std::string> own_numbers = {"--pid", "--fork", "--kill-child"};
  const auto contained = [&](std::vector<std::string> command) {
    command.insert(command.begin(), own_numbers.begin(), own_numbers.end());
    return command;
  };
  if (run_process(contained({"true"}), in_a_container()).exit_code != 0)
    GTEST_SKIP() << "this user may not make a namespace of process numbers";
  const TemporaryDirectory folder;
  const std::string port = std::to_string(cluster_test::free_port());
  const auto start = [&](int rank) {
    ProcessOptions options = in_a_container();
    options.environment = {"RANK=" + std::to_string(rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                           "MASTER_PORT=" + port, "GRAPEVINE_JOB_TOKEN=0123456789abcdef"};
    return Process(contained({GRAPEVINE_EXECUTABLE, "train", "--model", "linear", "--data",
                              "hyperplane:8", "--steps", "2", "--transport", "tcp", "--out",
                              (folder.path() / "run").string()}),
                   options);
  };
  Process head = start(0);
  Process other = start(1);
  const ProcessResult refused = other.wait();
  EXPECT_EQ(refused.exit_code, 2) << refused.describe();
  EXPECT_NE(refused.err.find("give the containers the host's process numbers (--pid=host"),
            std::string::npos)
      << refused.describe();
  head.signal(SIGKILL);
}

}  // namespace
}  // namespace grapevine
