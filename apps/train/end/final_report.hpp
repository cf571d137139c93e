// What a run leaves at its end: the model, its figures on the test data, summary.json and the lines
// for the user.
#pragma once
#include <functional>
#include <string>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "actors/run/supervisor.hpp"
#include "apps/console/run_display.hpp"
#include "apps/train/run_tally.hpp"
#include "apps/train/train_job.hpp"
#include "messages/expected.hpp"

namespace grapevine {

// How a run has ended, beside its result.
struct RunEnding {
  std::string date;                      // of its beginning, as summary.json has it
  bool early = false;                    // --early-stop has ended it
  bool thread_left_behind = false;       // such a thread may still use the evaluator
  std::function<bool()> stop_requested;  // by a signal, or by another program; also later
  nlohmann::ordered_json before;  // the summary that stays, of a run that was at its end; or null
  Step reported_steps = 0;        // at a stop, more than those of the checkpoint
};

// The summary of a run that was at its end already, and whose figures of speed would be lost; null
// for others.
nlohmann::ordered_json summary_before(const TrainJob& job, const RunResult& result);

// Saves the model, tests it and writes summary.json; where nothing has failed, prints the results.
// `app`: declared by declare_train_options() and parsed. Errors: the first failure of saving, of
// writing, of the run, of the evaluation, or a figure that is not finite.
Expected<void> report_end(const CLI::App& app, const TrainJob& job, const RunResult& result,
                          const RunTally& tally, const RunEnding& ending, RunDisplay& display);

}  // namespace grapevine
