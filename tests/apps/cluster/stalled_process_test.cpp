// A process of a run that is stopped: the others name its rank long before it counts as lost.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "net/addresses.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace stalled_process_test {

namespace fs = std::filesystem;

Process start(int process, int processes, std::uint16_t port,
              const std::vector<std::string>& arguments) {
  ProcessOptions options;
  options.environment = {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + std::to_string(port),
                         "RANK=" + std::to_string(process),
                         "WORLD_SIZE=" + std::to_string(processes)};
  return Process(arguments, options);
}

TEST(StalledProcess, IsNamedAndEndsTheRun) {
  const TemporaryDirectory folder;
  const fs::path out = folder.path() / "run";
  const auto port = reserve_tcp_port();
  ASSERT_TRUE(port);
  const auto arguments =
      with(small_run("ar", out), {"--transport", "tcp", "--steps", "1000000", "--checkpoint-every",
                                  "0.5", "--stall-abort", "6"});
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

}  // namespace stalled_process_test
}  // namespace grapevine
