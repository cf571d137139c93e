// The folder that a run writes to.
#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/train/train_job.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// The files that a run has left in its folder.
bool has_summary(const std::string& out);
bool has_checkpoint(const std::string& out);
// A summary that reports no error.
bool has_finished(const std::string& out);

// Errors (bad_input): `out` holds a finished or interrupted run, or files of such names that no run
// has written: they are not to be replaced. A run that failed without a checkpoint counts for
// nothing, as does an empty name.
Expected<void> check_no_run_in(const std::string& out, bool overwrite);

// Sets job.out: --out, the folder of the run that is resumed, or a new runs/<date>-<algorithm>. The
// head makes it with its contents, and locks it for this run.
// Errors (bad_input): it cannot be written to, another run writes there, or it holds one that is
// not to be replaced.
Expected<void> make_folders(TrainJob& job);

// Whether the job continues in the folder of the run that it resumes.
bool continues_in_place(const TrainJob& job);

// The files that an earlier run has left in its folder, by name: its model and its checkpoints are
// not those of a run that begins there. REQUIRES: no run writes there.
struct EarlierOutput {
  std::filesystem::path path;
  std::uint64_t device = 0, inode = 0;
  std::int64_t modified_ns = 0;
};
std::vector<EarlierOutput> earlier_outputs(const std::string& out);
// Of a run that is continued: its figures are no longer those of the run.
std::vector<EarlierOutput> earlier_summary(const std::string& out);
// Gives the checkpoints among them the names of unfinished ones, that of the newest last, and
// returns them: a process that is killed amid the removal leaves that run as it was, or none to
// continue.
std::vector<std::filesystem::path> hide_checkpoints(const std::vector<EarlierOutput>& outputs);
// Removes only these: a newer file of the same name stays. The checkpoints lose their names first.
void remove_outputs(const std::vector<EarlierOutput>& outputs);

}  // namespace grapevine
