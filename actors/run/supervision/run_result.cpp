#include "actors/run/supervision/run_result.hpp"

#include <utility>

#include "actors/protocol/record.hpp"

namespace grapevine {
namespace {

void add_worker(RunResult& result, const RankReport& report) {
  result.weight_sum += report.w;
  result.steps[static_cast<std::size_t>(report.rank)] = report.step;
  result.step_seconds.insert(result.step_seconds.end(), report.step_seconds.begin(),
                             report.step_seconds.end());
}

// What a lost rank had produced and not applied is gone with it.
void add_lost(RunResult& result, const Ledger& last, std::int64_t samples) {
  result.ledger.produced += last.produced;
  result.ledger.committed += last.committed;
  result.ledger.dropped += last.dropped;
  result.destroyed += last.pending();
  result.ledger.samples += samples;
  result.ledger.sent_before += last.sent + last.sent_before;
  result.ledger.bytes_sent += last.bytes_sent;
  for (const auto& [age, count] : last.staleness) result.ledger.staleness[age] += count;
}

}  // namespace

void add_reports(RunResult& result, const std::map<Rank, RankReport>& reports,
                 const TrainingProgress& progress, const RunMembers& members) {
  result.steps.assign(static_cast<std::size_t>(members.workers()), 0);
  for (const auto& [rank, step] : progress.steps())
    result.steps[static_cast<std::size_t>(rank)] = step + 1;
  for (const FormerLife& life : progress.former_lives(members))
    if (life.ledger.produced == 0) {
      // What a server of a wiring before has applied; or a rank that has ended before its figures
      // came.
      result.ledger.merge(life.ledger);
      result.ledger.samples += life.samples;
    } else {
      add_lost(result, life.ledger, life.samples);
    }
  for (const auto& [rank, report] : reports) {
    result.ledger.merge(report.ledger);
    if (!report.measures.entries().empty()) result.measures[rank] = report.measures;
    if (rank < members.workers()) add_worker(result, report);
  }
}

void add_models(RunResult& result, AveragedModels average) {
  result.z = std::move(average.z);
  result.buffers = std::move(average.buffers);
  result.consensus_distance = average.consensus_distance;
}

std::vector<LastModel> last_models(const std::map<Rank, RankReport>& reports,
                                   const RunMembers& members) {
  std::vector<LastModel> models;
  for (const auto& [rank, report] : reports)
    models.push_back({rank >= members.workers(), report.z, report.buffers, report.offer});
  return models;
}

}  // namespace grapevine
