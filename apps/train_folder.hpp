// The folder that a run writes to.
#pragma once
#include <cstdint>
#include <string>

#include "apps/train_job.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// What a run has left in its folder.
bool has_summary(const std::string& out);
bool has_checkpoint(const std::string& out);

// Sets job.out: --out, the folder of the run that is resumed, or a new runs/<date>-<algorithm>. The
// head makes it with what belongs inside, and takes it for this run alone as long as that lasts.
// Errors (bad_input): it cannot be written to, or another run writes there.
Expected<void> make_folders(TrainJob& job);

// The trace of one process; a resumed run adds a file to those of the runs before it.
std::string trace_file(const std::string& out, std::int32_t process, bool resumed);

// Whether the job goes on in the folder of the run that it resumes.
bool goes_on_in_place(const TrainJob& job);

// Removes what an earlier run has left in its folder, by name: its model and its checkpoints are
// not those of the run that has begun.
void remove_outputs(const std::string& out);

}  // namespace grapevine
