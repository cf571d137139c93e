// The folder of a simulated run: the same files as those of a real one.
#pragma once
#include <functional>
#include <memory>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "apps/console/run_display.hpp"
#include "apps/simulate/sim_run.hpp"
#include "apps/train/run_output.hpp"
#include "apps/train/run_tally.hpp"

namespace grapevine {

// Runs the job with its files, metrics.csv and the trace among them. `stop`: see VirtualWorld.
class SimOutput {
 public:
  // `app` outlives this. Errors: a file that cannot be written.
  static Expected<SimOutput> create(const CLI::App& app, SimJob& job, RunDisplay& display);

  SimOutcome run(SimJob& job);
  // Writes summary.json and, where the maths are the model's own, model.pt. Returns the summary.
  // Errors: a file; a run that failed.
  Expected<nlohmann::ordered_json> report(const SimJob& job, const SimOutcome& outcome) const;

 private:
  const CLI::App* app_ = nullptr;
  std::string date_;  // of the start
  std::shared_ptr<RunOutput> rows_;
  std::shared_ptr<RunTally> tally_;
  // Of writing job.toml, at the first step.
  std::shared_ptr<std::optional<Error>> job_file_error_ = std::make_shared<std::optional<Error>>();
};

}  // namespace grapevine
