// A process of a running job is stopped and continues, another one leaves by request, and one more
// takes its place: over each wire, with exchanges of two kinds.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <string>

#include <nlohmann/json.hpp>

#include "net/ucx/ucx.hpp"
#include "tests/apps/control/control_run.hpp"

namespace grapevine {
namespace leaving_process_test {

using nlohmann::json;

constexpr int kProcesses = 3;  // with one worker each

struct Exchange {
  std::string preset, wire;
};
void PrintTo(const Exchange& exchange, std::ostream* out) {
  *out << exchange.preset << " over " << exchange.wire;
}

class LeavingProcess : public testing::TestWithParam<Exchange> {
 protected:
  void SetUp() override {
    if (GetParam().wire == "ucx" && !ucx_built_in()) GTEST_SKIP() << "UCX is not in this build";
  }

  static std::int64_t steps_of(const json& status, int rank) {
    return status["ranks"][rank]["steps"].get<std::int64_t>();
  }
  // All ranks that train take steps in that view, which does not change any more.
  void expect_training(std::int64_t view) const {
    json first;
    const auto has_trained = [&](const json& now) {
      if (now["stage"] != "running" || now["view"] != view || now["changes_members"] == true)
        return false;
      if (first.is_null()) first = now;
      for (int rank = 0; rank < kProcesses; ++rank)
        if (now["ranks"][rank]["state"] != "lost" &&
            steps_of(now, rank) < steps_of(first, rank) + 3)
          return false;
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
  // A stop by request, after which no gradient is missing.
  void expect_end() {
    EXPECT_EQ(job_.control({"stop"}).exit_code, 0) << job_.describe();
    const ProcessResult head = job_.process(0).wait();
    EXPECT_EQ(head.exit_code, 4) << head.describe();
    for (std::size_t number = 1; number < kProcesses; ++number) {
      const ProcessResult result = job_.process(number).wait();
      EXPECT_EQ(result.exit_code, 0) << "process " << number << result.describe();
    }
    const json summary = summary_of(job_.out());
    EXPECT_EQ(summary["lost_ranks"], json::array());
    EXPECT_EQ(summary["views"], 3);
    const json& counts = summary["contributions"];
    EXPECT_EQ(counts["produced"].get<std::int64_t>(),
              counts["applied"].get<std::int64_t>() + counts["pending"].get<std::int64_t>() +
                  counts["dropped"].get<std::int64_t>() + counts["destroyed"].get<std::int64_t>())
        << counts;
  }

  // None of them counts as lost by its silence.
  ControlledJob job_{
      GetParam().preset, kProcesses, {"--transport", GetParam().wire, "--lost-after", "0"}};
};

TEST_P(LeavingProcess, MayBeStoppedBeforeAndReturnsAfterwards) {
  expect_training(1);
  job_.process(1).signal(SIGSTOP);
  expect_no_answer_of(1);
  job_.process(1).signal(SIGCONT);
  expect_training(1);
  ASSERT_FALSE(HasFatalFailure());

  const ProcessResult drain = job_.control({"drain", "2"});
  EXPECT_EQ(drain.out, "rank 2 leaves: 2 of 3 ranks that train remain\n") << drain.describe();
  const ProcessResult left = job_.process(2).wait();
  EXPECT_EQ(left.exit_code, 0) << left.describe();
  expect_training(2);
  ASSERT_FALSE(HasFatalFailure());

  job_.start(2);
  expect_training(3);
  ASSERT_FALSE(HasFatalFailure()) << job_.process(2).so_far().describe();
  expect_end();
}

INSTANTIATE_TEST_SUITE_P(Wires, LeavingProcess,
                         testing::Values(Exchange{"ar", "tcp"}, Exchange{"gem", "tcp"},
                                         Exchange{"sgp", "ucx"}, Exchange{"eager-majority", "ucx"},
                                         Exchange{"ad-psgd", "shm"}, Exchange{"wagma", "shm"}),
                         [](const auto& info) {
                           std::string name = info.param.preset + "_" + info.param.wire;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace leaving_process_test
}  // namespace grapevine
