// SimJob: everything that a simulated run needs, made and checked before it starts.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "apps/simulate/fault_plan.hpp"
#include "apps/simulate/sim_options.hpp"
#include "apps/train/train_job.hpp"

namespace grapevine {

struct SimJob {
  TrainJob job;  // job.run.world is set
  std::vector<Fault> faults;
  std::string network;          // as --network takes it
  std::string network_note;     // what was assumed of it; empty: nothing
  Duration expected{0};         // of the training without faults, roughly
  std::int64_t parameters = 0;  // of the model
  std::int64_t stand_in = 0;    // parameters that stand for them in --maths none
  bool real = false;            // gradients of the model: --maths full
};

// Errors (bad_input): as make_train_job(), and options of the simulation.
Expected<SimJob> make_sim_job(const SimOptions& options);

// How many workers a run with default bounds survives the loss of.
std::int32_t most_crashes(const RunConfig& run);

}  // namespace grapevine
