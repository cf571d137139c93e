// The lines with which a run begins.
#pragma once
#include "apps/console/run_display.hpp"
#include "apps/train/train_job.hpp"

namespace grapevine {

// What runs where, and how vacant places are taken. For process 0.
void announce(const TrainJob& job, RunDisplay& display);

}  // namespace grapevine
