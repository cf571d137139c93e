// The wirings that a run's machines and network would train fastest.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "apps/simulate/sim_options.hpp"

namespace grapevine {

// A wiring, and what a simulation of it predicts.
struct Advice {
  std::string algorithm;         // preset
  std::vector<std::string> set;  // wiring.KEY=VALUE on top
  double step_seconds = 0;       // mean of a worker
  double bytes_per_step = 0;     // of all ranks, for a step of each worker
  double staleness_mean = 0;
  std::int64_t staleness_max = 0;
  std::string command;  // words for `grapevine train`
};

struct Advices {
  std::vector<Advice> ranked;                              // the fastest first
  std::vector<std::pair<std::string, std::string>> unfit;  // wiring, why it does not fit
};

// Simulates each candidate with these options, whose profile is set, and ranks them by the time of
// a step. `progress`: done and all.
Advices search_wirings(const SimOptions& base,
                       const std::function<void(std::size_t, std::size_t)>& progress);

}  // namespace grapevine
