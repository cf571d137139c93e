// The end of a run that was asked to stop: its last message, and the command of --requeue-command.
#pragma once
#include <functional>

#include "apps/train/train_job.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// For process 0, after the report of the run. `lacks_final`: the last checkpoint was not written.
// `requeue`: runs --requeue-command, after `release`, which closes the run's outputs and unlocks
// its folder: the command may start the next run there, at once. Gives an error in any case:
// Errc::stopped where the run can be resumed, else what prevents that.
Error end_of_stopped_run(const TrainJob& job, bool lacks_final, bool requeue,
                         const std::function<void()>& release);

}  // namespace grapevine
