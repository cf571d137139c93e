// What a run offers to others while it lasts: its figures, and questions and changes.
#pragma once
#include <memory>
#include <vector>

#include "apps/console/run_display.hpp"
#include "apps/control/control_server.hpp"
#include "apps/train/run_output.hpp"
#include "apps/train/train_job.hpp"

namespace grapevine {

// The outputs beside metrics.csv that grow during the run: --tensorboard, --metrics-port.
// `first_steps`: of each rank, the step from which its rows are new; empty: not a resumed run.
// Errors: the folder; the port.
Expected<void> add_followers(const TrainJob& job, const std::vector<Step>& first_steps,
                             RunOutput& output, RunDisplay& display);

// Where others ask the run and change it: a socket in its folder, and --control. Errors
// (bad_input): not on the given port.
using ControlServers = std::vector<std::unique_ptr<ControlServer>>;
Expected<ControlServers> listen_for_control(const TrainJob& job, RunOutput& output,
                                            RunDisplay& display);

}  // namespace grapevine
