// The run as the process sees it that reports it: its folder, its progress, its end.
#pragma once
#include <string>

#include "apps/console/run_display.hpp"
#include "apps/console/signals.hpp"
#include "apps/train/train_job.hpp"

namespace grapevine {

// From the outputs of the run to its report. `app`: that of `train`, after parsing, and outlives
// the call. `date`: of the beginning, for summary.json. For process 0. Errors: bad_input before
// anything is trained; those of the run; those of its files, after the model is saved.
Expected<void> lead_run(TrainJob& job, const CLI::App& app, const std::string& date,
                        RunDisplay& display, SignalFlags& signals, Console& console);

}  // namespace grapevine
