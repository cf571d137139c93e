#include <fmt/format.h>

#include <set>

#include "actors/run/simulation/run_check.hpp"

namespace grapevine {
namespace {

class LedgerCheck final : public RunCheck {
 public:
  explicit LedgerCheck(const CheckedRun& run)
      : RunCheck("ledger", run), pending_(static_cast<std::size_t>(run.workers)) {}

  // Its pending gradients are lost; from now on it counts the steps of its donor.
  void on_returned(Timestamp, Rank rank) override {
    pending_[static_cast<std::size_t>(rank)].clear();
  }

  void on_record(const TraceRecord& record) override {
    const bool ends = record.kind == EventKind::committed || record.kind == EventKind::dropped;
    if (record.kind == EventKind::produced) return produced(record);
    if (ends) ended(record);
  }

  void on_end(const RunResult& result) override {
    const Ledger& ledger = result.ledger;
    if (ledger.pending() < 0)
      report(fmt::format("{} gradients were applied or dropped and {} produced",
                         ledger.committed + ledger.dropped, ledger.produced));
    if (result.destroyed < 0 || result.destroyed > ledger.pending())
      report(fmt::format("{} gradients are destroyed, of {} that are pending", result.destroyed,
                         ledger.pending()));
    if (result.error) return;  // reports of ranks are missing
    // A lost rank's last report may be older than its last records.
    if (!result.lost.empty() || result.returned > 0) return;
    const std::int64_t pending = produced_ - committed_ - dropped_;
    if (ledger.produced != produced_ || ledger.committed != committed_ ||
        ledger.dropped != dropped_)
      report(
          fmt::format("the ledger has {} produced = {} applied + {} pending + {} dropped, the "
                      "trace {} = {} + {} + {}",
                      ledger.produced, ledger.committed, ledger.pending(), ledger.dropped,
                      produced_, committed_, pending, dropped_));
    else if (pending != 0)
      report(fmt::format("{} gradients are neither applied nor dropped at the end", pending));
  }

 private:
  void produced(const TraceRecord& record) {
    ++produced_;
    if (!pending_[static_cast<std::size_t>(record.rank)].insert(record.origin_step).second)
      report(fmt::format("rank {} produced its gradient of step {} twice", record.rank,
                         record.origin_step));
  }

  void ended(const TraceRecord& record) {
    const bool committed = record.kind == EventKind::committed;
    ++(committed ? committed_ : dropped_);
    if (record.origin < 0 || record.origin >= run().workers) {
      report(fmt::format("rank {} ended a gradient of rank {}", record.rank, record.origin));
      return;
    }
    if (pending_[static_cast<std::size_t>(record.origin)].erase(record.origin_step) == 0)
      report(fmt::format("rank {} {} the gradient of rank {} at step {}, which was not pending",
                         record.rank, committed ? "applied" : "dropped", record.origin,
                         record.origin_step));
  }

  std::vector<std::set<Step>> pending_;  // by rank
  std::int64_t produced_ = 0, committed_ = 0, dropped_ = 0;
};

}  // namespace

std::unique_ptr<RunCheck> make_ledger_check(const CheckedRun& run) {
  return std::make_unique<LedgerCheck>(run);
}

}  // namespace grapevine
