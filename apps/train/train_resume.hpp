// The options in which a checkpoint and the job that resumes from it must agree.
#pragma once
#include "apps/train/train_job.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// The options that must be the same when a run is resumed. The number of steps may grow, files may
// have moved. With the value of each key of the wiring that counts. REQUIRES: the job's options,
// wiring, data and parameters.
JobIdentity identity_of(const TrainJob& job);
// The part of it that the options state, without the wiring. `workers`: those of one process until
// its place is known.
JobIdentity identity_of(const TrainOptions& options);

// The same with the value of every wiring key that counts: a job file of a run states the defaults,
// too. As it is where the wiring is of another version.
JobIdentity with_resolved_wiring(JobIdentity identity);

// That of a checkpoint, as identity_of() would have it. Versions whose identities lack the defaults
// added up around a ring.
JobIdentity saved_identity(const JobIdentity& stated);

// Reads the checkpoint of --resume, where there is one, into job.run.resume, and sets job.start.
// REQUIRES: the job's options and data. Errors (bad_input): none there, damaged.
Expected<void> read_resume(TrainJob& job);
// Checks it against the job, and describes in job.continues what that changes. REQUIRES:
// read_resume(), job.run.identity and parts. Errors (bad_input): it is of another job, or already
// further than this one goes.
Expected<void> check_resume(TrainJob& job);

// The step at which the ranks that begin end: where the members of a resumed run have changed, the
// samples that are left are dealt among those of now. REQUIRES: check_resume(), where it resumes.
Step last_step(const TrainJob& job);

}  // namespace grapevine
