// Options of `simulate`: those of `train`, and what replaces time, network and faults.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "apps/simulate/run_profile.hpp"
#include "apps/train/train_options.hpp"

namespace grapevine {

struct SimJob;

struct SimOptions {
  TrainOptions train;
  std::string maths = "full";                      // full | quadratic | none
  std::int64_t parameters = 0;                     // of the model; 0: as --model has
  std::string network = "alpha=25e-6,beta=8e-10";  // 10 Gbit/s
  std::string compute = "50ms";
  std::string fail;
  std::string from_trace;  // a run's folder
  // Read from it; gives the times of gradients and the network where the options do not.
  std::shared_ptr<const RunProfile> profile;
  bool own_compute = false, own_network = false;  // the options were given
  double deadline_s = 0;                          // virtual; 0: none
  std::string seeds;                              // A..B; empty: one run
  bool minimize = false;
  std::int64_t jobs = 0;  // processes of a campaign; 0: as many as cores
  bool writes = true;     // false: no folder; not an option of the command line
  bool twice = false;     // each seed of a campaign is run twice, and the hashes are compared
  // Changes the job before a checked run: for tests of the checks. Null: nothing does; not an
  // option of the command line.
  std::function<void(SimJob&)> alter;
};

// Declares the options, each also as GRAPEVINE_<NAME>.
void declare_sim_options(CLI::App& app, SimOptions& options);

// Reads --from-trace, where it is given: what the options do not say is as in that run, and the
// maths are none. Errors: as read_profile().
Expected<void> read_trace_option(const CLI::App& app, SimOptions& options, Console& console);

// Errors (bad_input): an option of `train` that means nothing in one simulated process, or a value
// out of range.
Expected<void> check_sim_options(const SimOptions& options);
// Undoes variables of the environment, as of a cluster's profile, whose options simulate refuses,
// and `out` of the job file for --minimize alone, which writes no files.
void leave_out_unsuited(CLI::App& app, SimOptions& options);

}  // namespace grapevine
