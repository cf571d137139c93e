#include <fmt/format.h>

#include <algorithm>

#include "actors/run/simulation/run_check.hpp"

namespace grapevine {
namespace {

class LivenessCheck final : public RunCheck {
 public:
  explicit LivenessCheck(const CheckedRun& run) : RunCheck("liveness", run) {}

  void on_end(const RunResult& result) override {
    if (result.error) {
      report(result.error->message);
      return;
    }
    // Fewer ranks take over the steps of those that are lost.
    if (!run().plans_each_rank) return;
    for (std::size_t rank = 0; rank < result.steps.size(); ++rank)
      if (!is_missing(result, rank) && result.steps[rank] < run().steps)
        report(fmt::format("rank {} ended after {} of {} steps", rank, result.steps[rank],
                           run().steps));
  }
};

}  // namespace

std::unique_ptr<RunCheck> make_liveness_check(const CheckedRun& run) {
  return std::make_unique<LivenessCheck>(run);
}

}  // namespace grapevine
