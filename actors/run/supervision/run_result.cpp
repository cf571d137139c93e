#include "actors/run/supervision/run_result.hpp"

#include "actors/run/model_average.hpp"

namespace grapevine {
namespace {

struct Models {
  std::vector<FrozenTensor> workers, buffers, slices;
};

void add_worker(RunResult& result, Models& models, const RankReport& report) {
  models.workers.push_back(report.z);
  models.buffers.push_back(report.buffers);
  result.weight_sum += report.w;
  result.steps[static_cast<std::size_t>(report.rank)] = report.step;
  result.step_seconds.insert(result.step_seconds.end(), report.step_seconds.begin(),
                             report.step_seconds.end());
}

void average(RunResult& result, const Models& models) {
  result.z = models.slices.empty() ? mean_of(models.workers) : concatenate(models.slices);
  result.buffers = mean_of(models.buffers);
  for (const FrozenTensor& model : models.workers)
    result.consensus_distance +=
        relative_distance(model, result.z) / static_cast<double>(models.workers.size());
}

// What a lost rank had produced and not applied is gone with it.
void add_lost(RunResult& result, const Ledger& last, std::int64_t samples) {
  result.ledger.produced += last.produced;
  result.ledger.committed += last.committed;
  result.ledger.dropped += last.dropped;
  result.destroyed += last.pending();
  result.ledger.samples += samples;
}

}  // namespace

void add_reports(RunResult& result, const std::map<Rank, RankReport>& reports,
                 const TrainingProgress& progress, const RunMembers& members) {
  result.steps.assign(static_cast<std::size_t>(members.workers()), 0);
  for (const auto& [rank, step] : progress.steps())
    result.steps[static_cast<std::size_t>(rank)] = step + 1;
  for (const FormerLife& life : progress.former_lives(members))
    add_lost(result, life.ledger, life.samples);
  Models models;
  for (const auto& [rank, report] : reports) {
    result.ledger.merge(report.ledger);
    if (!report.measures.entries().empty()) result.measures[rank] = report.measures;
    if (rank >= members.workers())
      models.slices.push_back(report.z);
    else
      add_worker(result, models, report);
  }
  average(result, models);
}

}  // namespace grapevine
