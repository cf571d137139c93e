// A run whose processes live, and cannot all reach each other: over network namespaces, where
// messages vanish, and by sockets that are shut down.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "net/ucx/ucx.hpp"
#include "tests/apps/cluster/cut_link.hpp"
#include "tests/apps/cluster/job_processes.hpp"
#include "tests/apps/cluster/network.hpp"
#include "tests/apps/control/control_run.hpp"
#include "tests/apps/process.hpp"
#include "tests/apps/train/train_run.hpp"

namespace grapevine {
namespace link_loss_test {

namespace fs = std::filesystem;
using nlohmann::json;

bool names_the_link(const std::string& line) {
  return line.find("link between rank 1 (process 1) and rank 2 (process 2)") != line.npos ||
         line.find("link between rank 2 (process 2) and rank 1 (process 1)") != line.npos;
}

// One that was being written when the run ended may be whole.
bool names_a_checkpoint(const std::string& line, const fs::path& out) {
  return line.find("; resume with --resume " + out.string()) != line.npos ||
         line.find("; a checkpoint was being written: look in " + out.string()) != line.npos;
}

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
      EXPECT_TRUE(names_the_link(line)) << result.describe();
      EXPECT_TRUE(names_a_checkpoint(line, out)) << line;
    }
    // By whichever of the two noticed it first.
    const bool warned =
        processes[1]->so_far().err.find("the link to process 2") != std::string::npos ||
        processes[2]->so_far().err.find("the link to process 1") != std::string::npos;
    EXPECT_TRUE(warned) << processes[1]->so_far().describe() << processes[2]->so_far().describe();
    ASSERT_TRUE(network.mend(1, 2));
  }
}

// Of three processes, over each wire whose connections the system can end. The links between them
// are the connections for tensors; messages for control go to process 0 alone.
class CutLink : public testing::TestWithParam<std::string> {
 protected:
  std::vector<std::string> options(const std::vector<std::string>& more = {}) const {
    return with({"--transport", GetParam(), "--checkpoint-every", "0.5", "--lost-after", "0"},
                more);
  }
  void SetUp() override {
    if (GetParam() == "ucx" && !ucx_built_in()) GTEST_SKIP() << "UCX is not in this build";
  }
  // UCX's shared memory has no connection that could be cut.
  static std::vector<std::string> environment() { return {cluster_test::kUcxBetweenHosts}; }
  // Between processes 1 and 2, once all have trained.
  static void cut(ControlledJob& job) {
    ASSERT_TRUE(job.has_begun()) << job.describe();
    ASSERT_TRUE(cluster_test::has_begun(job.out())) << job.describe();
    if (cluster_test::sockets_of(job.process(1).pid()).empty())
      GTEST_SKIP() << "the system does not give the sockets of another process (pidfd_getfd)";
    ASSERT_GT(cluster_test::cut_links(job.process(1).pid(), job.process(2).pid()), 0);
  }
};

TEST_P(CutLink, EndsTheRunByItsNameWhereAllRanksAreNeeded) {
  for (const std::string algorithm : {"ar", "osgp"}) {
    SCOPED_TRACE(algorithm);
    ControlledJob job(algorithm, 3, options({"--min-ranks", "3"}), environment());
    cut(job);
    if (HasFatalFailure() || IsSkipped()) return;
    for (std::size_t process = 0; process < 3; ++process) {
      const ProcessResult result = job.process(process).wait();
      EXPECT_EQ(result.exit_code, 3) << result.describe();
      const std::string line = ProcessResult::last_line(result.err);
      EXPECT_TRUE(names_the_link(line)) << result.describe();
      EXPECT_TRUE(names_a_checkpoint(line, job.out())) << line;
    }
  }
}

// It ends with the reason; the others continue, and no gradient is missing.
TEST_P(CutLink, DropsTheProcessOfOneEnd) {
  for (const std::string algorithm : {"ar", "ad-psgd"}) {
    SCOPED_TRACE(algorithm);
    ControlledJob job(algorithm, 3, options(), environment());
    cut(job);
    if (HasFatalFailure() || IsSkipped()) return;
    ASSERT_TRUE(job.process(0).wait_for_output(" is dropped: link between ")) << job.describe();
    const bool is_first = job.describe().find("process 1 is dropped: ") != std::string::npos;
    const std::size_t dropped = is_first ? 1 : 2, other = is_first ? 2 : 1;
    const ProcessResult end = job.process(dropped).wait();
    EXPECT_EQ(end.exit_code, 3) << end.describe();
    EXPECT_TRUE(names_the_link(ProcessResult::last_line(end.err))) << end.describe();

    json first;
    const auto has_trained = [&](const json& now) {
      if (now["stage"] != "running" || now["view"] < 2 || now["changes_members"] == true)
        return false;
      if (first.is_null() || first["view"] != now["view"]) first = now;
      return now["ranks"][other]["steps"] > first["ranks"][other]["steps"] &&
             now["ranks"][0]["steps"] > first["ranks"][0]["steps"];
    };
    const json status = job.status_when(has_trained);
    ASSERT_TRUE(status.is_object() && has_trained(status)) << status << job.describe();
    EXPECT_EQ(job.control({"stop"}).exit_code, 0) << job.describe();
    const ProcessResult head = job.process(0).wait(), remaining = job.process(other).wait();
    EXPECT_EQ(head.exit_code, 4) << head.describe();
    EXPECT_EQ(remaining.exit_code, 0) << remaining.describe();
    const json summary = summary_of(job.out());
    EXPECT_EQ(summary["lost_ranks"], json({dropped}));
    EXPECT_EQ(summary["views"], 2) << "the end of the process begins no other one";
    const json& counts = summary["contributions"];
    EXPECT_EQ(counts["produced"].get<std::int64_t>(),
              counts["applied"].get<std::int64_t>() + counts["pending"].get<std::int64_t>() +
                  counts["dropped"].get<std::int64_t>() + counts["destroyed"].get<std::int64_t>())
        << counts;
  }
}

INSTANTIATE_TEST_SUITE_P(Wires, CutLink, testing::Values("tcp", "ucx", "shm"),
                         [](const auto& info) { return info.param; });

}  // namespace link_loss_test
}  // namespace grapevine
