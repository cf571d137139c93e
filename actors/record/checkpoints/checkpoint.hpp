// Checkpoints: the whole graph of one moment, on disk.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/protocol.hpp"
#include "actors/record/checkpoints/find_checkpoint.hpp"
#include "actors/record/checkpoints/saved_view.hpp"
#include "actors/record/shards/shard_folder.hpp"
#include "algorithms/state_dict.hpp"

namespace grapevine {

// The job of a checkpoint. A resumed job must be the same in all of
// these but for the number of steps.
using JobIdentity = std::map<std::string, std::string>;
inline constexpr char kStepsKey[] = "steps";  // the number of steps; may differ in a resumed run

// The job file of a run, and of each of its checkpoints.
inline constexpr char kJobFileName[] = "job.toml";

// Layout of <folder>/<name>: job.json, job.toml if `job_file` is its text, and rank-0000.pt,
// rank-0001.pt, … (a dict that torch.load reads: tensors, numbers and text). job.json has the
// length and the CRC-32 of each of these files and the furthest step of a rank, and names the ranks
// that were lost and have none, with what they had done and which batches of it are dealt again,
// and the batches that changes of members have cost. States that are stored already are taken from
// `shards`. Written under a temporary name, synced, renamed; then <folder>/latest points to
// it. Returns the final path. `on_progress`, where there is one: after each rank.
Expected<std::string> write_checkpoint(const std::string& folder, const JobIdentity& identity,
                                       const WriteCheckpoint& order,
                                       const std::function<void()>& on_progress = {},
                                       const std::string& shards = "",
                                       const std::string& job_file = "");

// Steps that a rank had reported to the supervisor, from its saved state. Where gradients are
// applied later they may be more than the steps of its model.
Step reported_steps(const StateDict& rank);
// The step after the last one whose batch it had taken.
Step taken_steps(const StateDict& rank);

struct Checkpoint {
  std::string path;
  JobIdentity identity;
  std::vector<StateDict> ranks;  // by rank; empty: it was lost
  std::vector<Rank> lost;        // ascending
  std::vector<FormerLife> former;
  BatchTally batches;          // of all changes of members until then
  BatchesOfLost lost_batches;  // also of the ranks that change_ranks() leaves out

  bool is_lost(Rank rank) const;
  // By rank. One that was lost is as far as the furthest of the others, because it begins anew with
  // the state of one of them.
  std::vector<Step> steps() const;
  std::vector<Step> reported() const;  // see reported_steps()
  std::vector<double> epochs() const;  // by the algorithm's clock
  // The batches that each rank had taken in the view of its role; of lost ones, where they are
  // known.
  std::map<Rank, std::int64_t> taken() const;
  Duration elapsed() const;  // training time until then
  // The members, where they had changed. Errors: bad_input.
  Expected<std::optional<SavedView>> view() const;

  // For a run of another number of ranks, none of them a server: the first of them continue, those
  // that are new join them, and those that are left out count as lost. `first_step`, `first_epoch`:
  // of the horizon of the run that saved it, where its members were those of the start. Errors
  // (bad_input): none of the ranks that would continue has a state.
  Expected<void> change_ranks(std::int32_t ranks, Step first_step, double first_epoch);

 private:
  template <class Value, class Read>
  std::vector<Value> by_rank(Read read) const;
};

// `path`: as checkpoint_at() has it. A run may write new ones there and remove old ones meanwhile.
// Errors (bad_input) name the file: one that is missing, damaged anywhere, or of another
// checkpoint.
Expected<Checkpoint> read_checkpoint(const std::string& path);
// The content of a file in the folder of a checkpoint. Errors (io): it is missing, no plain file,
// or has not the length and the CRC-32 that job.json says. Where job.json, of an earlier version,
// says none of it, any content counts.
Expected<std::string> read_marked_file(const std::string& checkpoint, const std::string& name);
// Removes unfinished files of killed runs from a folder of checkpoints, and gives a
// checkpoint its name back that was about to make room for another one. REQUIRES: no run writes
// there.
void remove_stale_checkpoints(const std::string& folder);
// The path of a checkpoint that was found before that, behind it.
std::string own_name_of(const std::string& checkpoint);

// The first difference of `present`, as an error that names both values.
Expected<void> check_same_job(const JobIdentity& saved, const JobIdentity& present,
                              const std::string& path);

}  // namespace grapevine
