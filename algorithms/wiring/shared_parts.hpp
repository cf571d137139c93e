// What all ranks of a process share of a run: its plan, and the parts that are made from it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "algorithms/graphs/gossip_graph.hpp"
#include "algorithms/graphs/groups.hpp"
#include "algorithms/parts/optimizer.hpp"
#include "algorithms/schedules.hpp"
#include "algorithms/wiring/wiring.hpp"

namespace grapevine {

// How long training lasts. Every rank takes `steps` steps; where ranks do not wait for each other
// (bilateral) this is their mean, and the fast ones take more.
struct Horizon {
  Step steps = 0;              // gradients of each rank, >= 0
  double steps_per_epoch = 1;  // > 0

  double epoch_of(Step step) const { return static_cast<double>(step) / steps_per_epoch; }
};

// Where a named tensor of the model lies in the flat one.
struct TensorSpan {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t size = 0;
};

// Parts that all ranks of a process share.
struct SharedParts {
  Plan plan;
  Horizon horizon;
  LrSchedule lr;
  OptimizerConfig optimizer;
  std::shared_ptr<const GossipGraph>
      graph;                            // gossip, bilateral: of nodes where there is a hierarchy
  std::vector<bool> active;             // bilateral: by rank (or node), whether it asks or answers
  std::optional<GroupSchedule> groups;  // group
  std::vector<TensorSpan> layout = {};  // of the model, for figures; may be empty
};

// Ranks that exchange: one of each node. Errors (bad_input): nodes that are not all full.
Expected<std::int32_t> count_nodes(const Plan& plan, std::int32_t ranks);

// Checks everything that depends on the number of ranks, so that nothing can fail once training
// runs. `ranks`: those that train; a plan's servers come after them. Errors: bad_input.
Expected<std::shared_ptr<const SharedParts>> make_parts(const Plan& plan, const Horizon& horizon,
                                                        const LrSchedule& lr,
                                                        const OptimizerConfig& optimizer,
                                                        std::int32_t ranks);

// All ranks of a run: those that train, then the servers.
inline std::int32_t all_ranks_of(const Plan& plan, std::int32_t workers) {
  return workers + plan.servers;
}

}  // namespace grapevine
