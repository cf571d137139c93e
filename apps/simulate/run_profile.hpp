// RunProfile: what a run's trace measured, for simulations of other runs on the same machines.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "actors/run/delay.hpp"
#include "apps/console/command.hpp"
#include "apps/simulate/link_fit.hpp"
#include "messages/expected.hpp"

namespace grapevine {

struct RunProfile {
  std::string path;
  std::string algorithm;
  std::int32_t workers = 0;
  std::int64_t parameters = 0;
  std::int64_t steps = 0;
  std::int64_t batch_size = 32;
  // By worker, in their order, seconds: from the request of each gradient to its arrival, data,
  // stragglers and all. The first is left out where there are others: it warms up.
  std::vector<std::vector<float>> gradients;
  double overhead = 0;      // s: the rest of a mean step, neither gradient nor wait
  double step_seconds = 0;  // mean
  LinkFit::Result links;    // of those that connect ranks as far apart as there are
  // Where ranks share machines, or processes of one machine: those inside.
  LinkFit::Result inside;
  std::int32_t ranks_per_node = 1;  // 1: nothing is known of such links

  double mean_gradient() const;
  // The recorded times again and again, and the overhead. Further ranks have the times of others,
  // from another step on.
  DelayModel::Term compute_time() const;
  NetworkModel network() const;
  // The assumptions about the network; empty: none.
  std::string network_note() const;
};

// Reads the summary and the trace of a run's folder. Errors (bad_input): none is there, or it has
// no gradients.
Expected<RunProfile> read_profile(const std::string& run, Console& console);

}  // namespace grapevine
