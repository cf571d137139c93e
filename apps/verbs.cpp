#include "apps/verbs.hpp"

#include "apps/average/average_command.hpp"
#include "apps/bench/bench_command.hpp"
#include "apps/compare/compare_command.hpp"
#include "apps/control/control_command.hpp"
#include "apps/data/data_command.hpp"
#include "apps/evaluate/evaluate_command.hpp"
#include "apps/launch/launch_command.hpp"
#include "apps/node/node_command.hpp"
#include "apps/plot/plot_command.hpp"
#include "apps/simulate/advise_command.hpp"
#include "apps/simulate/simulate_command.hpp"
#include "apps/top/top_command.hpp"
#include "apps/topology/topology_command.hpp"
#include "apps/trace/trace_command.hpp"
#include "apps/train/train_command.hpp"
#include "apps/wiring/wiring_command.hpp"

namespace grapevine {

const std::vector<CommandEntry>& verbs() {
  static const std::vector<CommandEntry> table = {
      {"train", "train a model with actors", make_train_command},
      {"simulate", "train in virtual time: any network, faults at given times, one seed",
       make_simulate_command},
      {"advise", "the fastest wirings for what a run measured", make_advise_command},
      {"launch", "start a command in several processes, here or over ssh", make_launch_command},
      {"node", "a node that runs the jobs of 'train --cluster'", make_node_command},
      {"control", "ask a running job how it does, stop it, change it", make_control_command},
      {"top", "a running job in the terminal: ranks, rates, who waits for whom", make_top_command},
      {"evaluate", "the figures of a trained model on data", make_evaluate_command},
      {"compare", "runs side by side: final figures and different options", make_compare_command},
      {"data", "check a data set: read all of it once", make_data_command},
      {"average", "distributed averaging without a model", make_average_command},
      {"topology", "a communication graph: its rounds and how fast it mixes",
       make_topology_command},
      {"wiring", "presets, and what a wiring consists of", make_wiring_command},
      {"trace", "a run's message trace: staleness, provenance, contributions", make_trace_command},
      {"plot", "curves of runs as a figure", make_plot_command},
      {"bench", "micro-benchmarks of transports and collectives", make_bench_command},
  };
  return table;
}

}  // namespace grapevine
