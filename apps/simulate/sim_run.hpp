// One simulated run, from its job to its result.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "actors/run/runtime.hpp"
#include "apps/simulate/sim_job.hpp"

namespace grapevine {

struct SimOutcome {
  RunResult result;
  double virtual_seconds = 0;  // of the whole run, with what follows the training
  std::uint64_t trace_hash = 0;
  std::uint64_t events = 0;
};

// For runs of which only the result counts.
class UnseenRun : public RunObserver {
 public:
  void on_step(const StepReport&) override {}
  void on_validation(Epoch, const Evaluation&) override {}
  void on_checkpoint(const std::string&) override {}
  void on_warning(const std::string&) override {}
  void on_end(RunResult) override {}
};

// Runs on this thread. Equal jobs have equal hashes: over all deliveries with their times, and over
// the trace where there is one.
SimOutcome run_sim(RunConfig run, std::shared_ptr<RunObserver> observer);

}  // namespace grapevine
