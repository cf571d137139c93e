// A simulated run without a folder, with all checks.
#pragma once
#include <string>
#include <vector>

#include "actors/run/simulation/run_check.hpp"
#include "apps/simulate/sim_run.hpp"

namespace grapevine {

// What the wiring promises.
CheckedRun checked_run(const TrainJob& job);

// Makes `checks` watch the run.
void watch(SimJob& made, const std::shared_ptr<RunChecks>& checks);

struct CheckedOutcome {
  std::uint64_t trace_hash = 0;
  std::uint64_t events = 0;
  double virtual_seconds = 0;
  std::string faults;                   // as --fail takes them
  std::vector<std::string> violations;  // one line each; empty: the run kept its promises
};

// Makes the job of these options and runs it. Where no deadline is given it is long enough for
// every run that makes progress. Errors (bad_input): as make_sim_job().
Expected<CheckedOutcome> run_checked(SimOptions options);

}  // namespace grapevine
