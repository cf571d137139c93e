// A run whose processes live, and cannot all reach each other: over network namespaces.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/apps/cluster/network.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace link_loss_test {

namespace fs = std::filesystem;

// Also where the ranks could go on without each other, and two models would drift apart.
TEST(LinkLoss, ALinkThatIsCutEndsTheRunByItsName) {
  if (::geteuid() != 0) GTEST_SKIP() << "not root: network namespaces cannot be made";
  const Network network;
  if (!network.good()) GTEST_SKIP() << "no network namespaces, bridges or tbf here";
  const TemporaryDirectory folder;
  for (const std::string algorithm : {"ar", "osgp"}) {
    SCOPED_TRACE(algorithm);
    const fs::path out = folder.path() / algorithm;
    const auto arguments =
        with(small_run(algorithm, out), {"--transport", "tcp", "--steps", "1000000", "--timeout",
                                         "10", "--checkpoint-every", "0.5", "--min-ranks", "3"});
    std::vector<std::unique_ptr<Process>> processes;
    for (int host = 0; host < kHosts; ++host)
      processes.emplace_back(new Process(network.start(host, arguments)));
    ASSERT_TRUE(appears(out / "checkpoint" / "latest", std::chrono::seconds(120)))
        << processes[0]->so_far().describe();
    ASSERT_TRUE(network.cut(1, 2));
    for (const auto& process : processes) {
      const auto result = process->wait();
      EXPECT_EQ(result.exit_code, 3) << result.describe();
      const std::string line = ProcessResult::last_line(result.err);
      const bool named =
          line.find("link between rank 1 (process 1) and rank 2 (process 2)") != line.npos ||
          line.find("link between rank 2 (process 2) and rank 1 (process 1)") != line.npos;
      EXPECT_TRUE(named) << result.describe();
      EXPECT_NE(line.find("; resume with --resume " + out.string()), std::string::npos) << line;
    }
    // By whichever of the two noticed it first.
    const bool warned =
        processes[1]->so_far().err.find("the link to process 2") != std::string::npos ||
        processes[2]->so_far().err.find("the link to process 1") != std::string::npos;
    EXPECT_TRUE(warned) << processes[1]->so_far().describe() << processes[2]->so_far().describe();
    ASSERT_TRUE(network.mend(1, 2));
  }
}

}  // namespace link_loss_test
}  // namespace grapevine
