#include <fmt/format.h>

#include "actors/run/simulation/run_check.hpp"

namespace grapevine {
namespace {

class StalenessCheck final : public RunCheck {
 public:
  explicit StalenessCheck(const CheckedRun& run) : RunCheck("staleness", run) {}

  void on_joined(Timestamp, Rank) override { has_grown_ = true; }

  void on_record(const TraceRecord& record) override {
    const std::int64_t most = run().most_staleness;
    if (record.kind != EventKind::applied || most < 0 || record.staleness <= most) return;
    // Members of a later view continue at steps of their own. A rank that joins is a change that
    // the others do not record.
    if (record.view > 0 || has_grown_) return;
    report(
        fmt::format("rank {} applied an update of rank {} with staleness {} in step {}: at most "
                    "{}",
                    record.rank, record.origin, record.staleness, record.step, most));
  }

 private:
  bool has_grown_ = false;
};

}  // namespace

std::unique_ptr<RunCheck> make_staleness_check(const CheckedRun& run) {
  return std::make_unique<StalenessCheck>(run);
}

}  // namespace grapevine
