// The job of a run as it is now, with the changes that the run has taken, and its job.toml.
#pragma once
#include <memory>
#include <mutex>
#include <string>

#include <CLI/CLI.hpp>

#include "actors/run/control/live_settings.hpp"
#include "apps/console/run_display.hpp"
#include "apps/train/job_file.hpp"
#include "apps/train/run_output.hpp"
#include "apps/train/train_job.hpp"

namespace grapevine {

// The part of a job that changes while it runs.
struct ChangingJob {
  TrainOptions options;
  TrainOptions resolved;  // for job.toml
  Wiring wiring;
  JobOrigin origin;

  // REQUIRES: the run has accepted `settings`.
  void apply(const LiveSettings& settings);
  // Its job.toml. `app`: declared by declare_train_options() and parsed.
  std::string text(const CLI::App& app) const;
};

// REQUIRES: job.run, before it is moved into the Runtime.
ChangingJob as_it_begins(const TrainJob& job);

struct LiveJob {
  std::mutex mutex;
  ChangingJob now;  // guarded by mutex

  // Also waits for a change that is being written.
  void put_into(TrainJob& job);
};

// Writes each change of the run to `display` and to the job.toml in its folder. REQUIRES: before
// the run; `app` and `display` live until it has ended.
std::shared_ptr<LiveJob> follow_changes(const CLI::App& app, const TrainJob& job, RunOutput& output,
                                        RunDisplay& display);

}  // namespace grapevine
