// RunResult: what a run has come to, from the last reports of its ranks.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/protocol/supervisor.hpp"
#include "actors/record/batch_tally.hpp"
#include "actors/run/supervision/run_members.hpp"
#include "actors/run/supervision/training_progress.hpp"

namespace grapevine {

struct RunResult {
  std::optional<Error> error;        // the run failed; the other members give its progress
  bool interrupted = false;          // stopped by request, with a checkpoint
  FrozenTensor z;                    // [d] mean of the ranks' de-biased models, or the servers' one
  FrozenTensor buffers;              // [b] mean, or empty
  double consensus_distance = 0;     // mean over ranks of |z_i - z|_2 / |z|_2
  double weight_sum = 0;             // of push-sum
  std::vector<Step> steps;           // by rank, of those that train
  Ledger ledger;                     // of all ranks
  std::int64_t destroyed = 0;        // of the ledger's pending ones: of lost ranks
  std::vector<double> step_seconds;  // of all ranks; of long runs a sample
  std::map<Rank, StateDict> measures;  // of RankReport, by rank; none where it has none
  // Ranks that died while the others continued, and are so; also those whose loss ended the run.
  std::vector<Rank> lost;
  std::vector<Rank> vacant;   // places that no rank has taken
  std::int64_t views = 1;     // sets of members, one after the other
  std::int64_t returned = 0;  // how often a rank that was lost has joined again
  std::int64_t joined = 0;    // ranks that have taken a vacant place
  // Also of what came before the run was resumed; of a run that has not ended training, up to its
  // last change of members.
  BatchTally batches;
  // Of training, also before the checkpoint of a resumed run: to the last change of a model,
  // without the validations and the writing that follow.
  double seconds = 0;
  std::uint64_t trace_hash = 0;
  std::uint64_t trace_records = 0;  // behind that hash
  std::string checkpoint;           // the newest one written, or empty
  bool lacks_final = false;         // the checkpoint of the end was given up, with a warning
  bool writing = false;             // one is still being written
};

// Adds steps, ledgers and measures of the remaining ranks; of lost ranks their steps, samples and
// contributions up to their last report. REQUIRES: a report of each remaining rank.
void add_reports(RunResult& result, const std::map<Rank, RankReport>& reports,
                 const TrainingProgress& progress, const RunMembers& members);

void add_models(RunResult& result, AveragedModels average);

// By rank. REQUIRES: reports with their models.
std::vector<LastModel> last_models(const std::map<Rank, RankReport>& reports,
                                   const RunMembers& members);

}  // namespace grapevine
