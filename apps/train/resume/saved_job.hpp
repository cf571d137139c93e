// The job of an earlier run, from which another one continues.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "actors/record/checkpoints/checkpoint.hpp"
#include "apps/train/train_options.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// --resume auto: continues the run in --out if it has a checkpoint, else begins. Changes
// options.resume to --out, or to nothing. Errors (bad_input): --out is not given.
Expected<void> settle_resume(TrainOptions& options);

struct SavedJob {
  std::string path;  // of the file, for errors
  std::string text;  // as it was checked, for check_toml_text(), too: a run may replace the file
};

// The job.toml of the checkpoint that `resume` names, or, of checkpoints without one, of its run: a
// run, its folder of checkpoints, or one of them. None: there is no such file. Errors (bad_input):
// that of the checkpoint is damaged, and its run has none; a text that no parser of TOML should
// get.
Expected<std::optional<SavedJob>> find_saved_job(const std::string& resume);

// The options that a run may change when it continues: they are not part of its state. Those of
// `saved` that `present` changes, as sentences such as "lr 0.03 instead of 0.1", and `saved` with
// the values of `present` for them.
struct AllowedChanges {
  std::vector<std::string> lines;
  JobIdentity saved;
  bool batch_size = false;  // another number of steps makes an epoch
  bool rate = false;        // the learning rate, its schedule or warm-up
};
AllowedChanges allow_changes(JobIdentity saved, const JobIdentity& present);

// What the epochs of a run are counted by where its numbers have changed. Kept in its checkpoints.
struct HorizonStart {
  // Where the samples of a step have changed: see Horizon.
  Step step = 0;
  double epoch = 0;
  // The ranks with which the run began, if others continue: an epoch keeps the batches that those
  // share. 0: the workers of the job.
  std::int64_t ranks = 0;
};
HorizonStart horizon_start_in(const JobIdentity& identity);
void put_horizon_start(const HorizonStart& start, JobIdentity& identity);
// The same for a process that joins: a line of the job file, empty where nothing has changed, and
// its value as it is read, STEP@EPOCH or STEP@EPOCH/RANKS. Errors (bad_input): another text.
std::string clock_start_line(const HorizonStart& start);
Expected<HorizonStart> parse_clock_start(const std::string& text);

}  // namespace grapevine
