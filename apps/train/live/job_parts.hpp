// The parts of a job: of its options at the start, and of those that change while it
// runs.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>

#include "actors/run/control/live_settings.hpp"
#include "apps/train/train_job.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// What the options say of the rate and of the optimizer. That of a rate lacks what a job knows
// alone: the samples of a step of all its workers, the length of the run and of an epoch.
LrConfig rate_of(const TrainOptions& o);
OptimizerConfig optimizer_of(const TrainOptions& o);

// REQUIRES: the job's options, with its workers, and its start. Errors (bad_input): a wiring that
// does not fit them.
Expected<std::shared_ptr<const SharedParts>> make_job_parts(const TrainJob& job,
                                                            double steps_per_epoch);
// The steps of each worker after which that many epochs lie behind: without --steps, those of a
// run.
Step steps_of_epochs(double epochs, const HorizonStart& start, double steps_per_epoch);

// For a running job: the options that it began with, and others in their place. REQUIRES:
// job.run.parts.
ChangeParts change_of(const TrainJob& job, double steps_per_epoch);
// The identity of a checkpoint after such a change. REQUIRES: job.run.identity.
std::function<JobIdentity(const LiveSettings&)> identity_after(const TrainJob& job);
// Reads --schedule, in process 0, and checks each change with those before it. REQUIRES:
// job.run.change. Errors (bad_input): read_schedule(), settings that do not fit.
Expected<void> add_schedule(TrainJob& job);

}  // namespace grapevine
