// A process of a run that is stopped: the others name its rank long before it counts as lost.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "net/addresses.hpp"
#include "tests/apps/cluster/job_processes.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace stalled_process_test {

namespace fs = std::filesystem;

// UCX over tcp: see cluster_test::kUcxBetweenHosts.
Process start(int process, int processes, std::uint16_t port,
              const std::vector<std::string>& arguments) {
  return cluster_test::start("torchrun", process, processes, port, arguments,
                             {cluster_test::kUcxBetweenHosts});
}

TEST(StalledProcess, IsNamedAndEndsTheRun) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const auto port = reserve_tcp_port();
  ASSERT_TRUE(port);
  const auto arguments =
      with(small_run("ar", out), {"--transport", "tcp", "--steps", "1000000", "--checkpoint-every",
                                  "0.5", "--stall-abort", "15", "--lost-after", "0"});
  std::vector<std::unique_ptr<Process>> processes;
  for (int process = 0; process < 4; ++process)
    processes.emplace_back(new Process(start(process, 4, port->number, arguments)));
  ASSERT_TRUE(appears(out / "checkpoint" / "latest", std::chrono::seconds(120)))
      << processes[0]->so_far().describe();
  processes[2]->signal(SIGSTOP);
  for (const std::size_t process : {0U, 1U, 3U}) {
    SCOPED_TRACE(process);
    const auto result = processes[process]->wait();
    EXPECT_EQ(result.exit_code, 3) << result.describe();
    const std::string line = ProcessResult::last_line(result.err);
    for (const std::string& part :
         {std::string("has waited "), std::string(" for chunk "),
          std::string("from rank 2; rank 2 of process 2 has not answered for "),
          "; resume with --resume " + out.string()})
      EXPECT_NE(line.find(part), std::string::npos) << result.describe();
  }
  processes[2]->signal(SIGKILL);
}

struct Stalled {
  std::string preset, transport;
};
void PrintTo(const Stalled& stalled, std::ostream* out) {
  *out << stalled.preset << " over " << stalled.transport;
}

// Over each transport, and in each way in which ranks wait for one.
class StalledProcesses : public testing::TestWithParam<Stalled> {};

// The others continue without it; another process takes its place, and the stopped one ends as soon
// as it continues.
TEST_P(StalledProcesses, CountsAsLostWhileOthersWait) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const auto port = reserve_tcp_port();
  ASSERT_TRUE(port);
  const auto arguments = with(
      small_run(GetParam().preset, out),
      {"--transport", GetParam().transport, "--steps", "1000000", "--checkpoint-every", "0.5"});
  std::vector<std::unique_ptr<Process>> processes;
  for (int process = 0; process < 4; ++process)
    processes.emplace_back(new Process(start(process, 4, port->number, arguments)));
  Process& head = *processes[0];
  ASSERT_TRUE(appears(out / "checkpoint" / "latest", std::chrono::seconds(120)))
      << head.so_far().describe();
  processes[1]->signal(SIGSTOP);
  ASSERT_TRUE(head.wait_for_output("process 1 has not answered for ")) << head.so_far().describe();
  ASSERT_TRUE(head.wait_for_output("(--lost-after): it counts as lost"))
      << head.so_far().describe();
  Process again = start(1, 4, port->number, arguments);
  ASSERT_TRUE(head.wait_for_output("process 1 has joined again")) << head.so_far().describe();
  processes[1]->signal(SIGCONT);
  const ProcessResult stopped = processes[1]->wait();
  EXPECT_EQ(stopped.exit_code, 3) << stopped.describe();
  EXPECT_EQ(ProcessResult::last_line(stopped.err).rfind("error: ", 0), 0U) << stopped.describe();
  head.signal(SIGTERM);
  const ProcessResult ended = head.wait();
  EXPECT_EQ(ended.exit_code, 4) << ended.describe();
  for (const std::size_t process : {2U, 3U}) EXPECT_EQ(processes[process]->wait().exit_code, 0);
  const ProcessResult returned = again.wait();
  EXPECT_EQ(returned.exit_code, 0) << returned.describe() << ended.describe();
}

INSTANTIATE_TEST_SUITE_P(Transports, StalledProcesses,
                         testing::Values(Stalled{"ar", "tcp"}, Stalled{"ar", "shm"},
                                         Stalled{"ar", "ucx"}, Stalled{"sgp", "tcp"},
                                         Stalled{"eager-majority", "ucx"}),
                         [](const auto& info) {
                           std::string name = info.param.preset + "_" + info.param.transport;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace stalled_process_test
}  // namespace grapevine
