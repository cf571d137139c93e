// The processes of a running job change, with every preset and over each wire: one is killed and
// started again, another one is stopped and continues, leaves by request and is started again.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "algorithms/wiring/wiring.hpp"
#include "net/ucx/ucx.hpp"
#include "tests/apps/control/control_run.hpp"

namespace grapevine {
namespace every_preset_test {

using nlohmann::json;

struct Changed {
  std::string preset, wire;
  bool has_nodes = false;  // of two ranks each, which act as one rank
};
std::ostream& operator<<(std::ostream& out, const Changed& job) {
  return out << job.preset << " over " << job.wire << (job.has_nodes ? ", with nodes" : "");
}

// All presets, and nodes of both kinds: replicas, and models of their own.
std::vector<Changed> jobs_over(const std::string& wire) {
  std::vector<Changed> jobs;
  for (const Preset& preset : presets()) jobs.push_back({preset.name, wire});
  jobs.push_back({"ar", wire, true});
  jobs.push_back({"sgp", wire, true});
  return jobs;
}

std::vector<std::string> options_of(const Changed& job) {
  // No process counts as lost by its silence: how often members change depends on no clock.
  std::vector<std::string> options = {"--transport", job.wire, "--lost-after", "0"};
  return job.has_nodes ? with(options, {"--set", "wiring.hierarchy=2"}) : options;
}

class ChangedProcesses : public testing::TestWithParam<Changed> {
 protected:
  void SetUp() override {
    if (GetParam().wire == "ucx" && !ucx_built_in()) GTEST_SKIP() << "UCX is not in this build";
  }

  static std::int64_t steps_of(const json& status, int rank) {
    return status["ranks"][rank]["steps"].get<std::int64_t>();
  }
  // All ranks but `lost` take steps in that view, or in a later one.
  void expect_training(std::int64_t least_view, int lost = -1) const {
    SCOPED_TRACE("view " + std::to_string(least_view));
    json first;
    const auto has_trained = [&](const json& now) {
      if (now["stage"] != "running" || now["view"] < least_view || now["changes_members"] == true)
        return false;
      if (first.is_null() || first["view"] != now["view"]) first = now;
      for (int rank = 0; rank < processes_; ++rank)
        if (rank != lost && steps_of(now, rank) < steps_of(first, rank) + 3) return false;
      return true;
    };
    const json status = job_.status_when(has_trained);
    ASSERT_TRUE(status.is_object() && has_trained(status)) << status << job_.describe();
  }
  void expect_no_answer_of(int rank) const {
    const auto is_silent = [rank](const json& now) {
      return now["ranks"][rank]["state"] == "no answer";
    };
    const json status = job_.status_when(is_silent);
    ASSERT_TRUE(status.is_object() && is_silent(status)) << status << job_.describe();
  }

  void kill(std::size_t process) {
    job_.process(process).signal(SIGKILL);
    job_.process(process).wait();
  }
  // By request.
  void leave(std::size_t process) {
    const ProcessResult drain = job_.control({"drain", std::to_string(process)});
    const std::string all = std::to_string(processes_), rest = std::to_string(processes_ - 1);
    EXPECT_EQ(drain.out, "rank " + std::to_string(process) + " leaves: " + rest + " of " + all +
                             " ranks that train remain\n")
        << drain.describe();
    const ProcessResult left = job_.process(process).wait();
    EXPECT_EQ(left.exit_code, 0) << left.describe();
  }
  // A stop by request, after which no rank and no gradient is missing.
  void expect_end(std::int64_t views) {
    EXPECT_EQ(job_.control({"stop"}).exit_code, 0) << job_.describe();
    const ProcessResult head = job_.process(0).wait();
    EXPECT_EQ(head.exit_code, 4) << head.describe();
    for (int number = 1; number < processes_; ++number) {
      const ProcessResult result = job_.process(static_cast<std::size_t>(number)).wait();
      EXPECT_EQ(result.exit_code, 0) << "process " << number << result.describe();
    }
    const json summary = summary_of(job_.out());
    EXPECT_EQ(summary["lost_ranks"], json::array());
    EXPECT_EQ(summary["views"], views);
    const json& counts = summary["contributions"];
    EXPECT_EQ(counts["produced"].get<std::int64_t>(),
              counts["applied"].get<std::int64_t>() + counts["pending"].get<std::int64_t>() +
                  counts["dropped"].get<std::int64_t>() + counts["destroyed"].get<std::int64_t>())
        << counts;
  }

  const int processes_ = GetParam().has_nodes ? 4 : 3;  // with one worker each
  ControlledJob job_{
      GetParam().preset, processes_, options_of(GetParam()), {cluster_test::kUcxBetweenHosts}};
};

TEST_P(ChangedProcesses, EachIsReplacedAndNoGradientIsMissing) {
  expect_training(1);
  kill(1);
  expect_training(2, 1);
  ASSERT_FALSE(HasFatalFailure());
  job_.start(1);
  expect_training(3);
  ASSERT_FALSE(HasFatalFailure()) << job_.process(1).so_far().describe();

  job_.process(2).signal(SIGSTOP);
  expect_no_answer_of(2);
  job_.process(2).signal(SIGCONT);
  expect_training(3);
  ASSERT_FALSE(HasFatalFailure());

  leave(2);
  expect_training(4, 2);
  ASSERT_FALSE(HasFatalFailure());
  job_.start(2);
  expect_training(5);
  ASSERT_FALSE(HasFatalFailure()) << job_.process(2).so_far().describe();
  expect_end(5);
}

std::string name_of(const testing::TestParamInfo<Changed>& info) {
  std::string name = info.param.preset + (info.param.has_nodes ? "_nodes" : "");
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

// A suite for each wire, so that they run side by side.
INSTANTIATE_TEST_SUITE_P(Tcp, ChangedProcesses, testing::ValuesIn(jobs_over("tcp")), name_of);
INSTANTIATE_TEST_SUITE_P(Ucx, ChangedProcesses, testing::ValuesIn(jobs_over("ucx")), name_of);
INSTANTIATE_TEST_SUITE_P(Shm, ChangedProcesses, testing::ValuesIn(jobs_over("shm")), name_of);

}  // namespace every_preset_test
}  // namespace grapevine
