// Registry: makes roles and their parts from a plan.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "algorithms/gossip_graph.hpp"
#include "algorithms/groups.hpp"
#include "algorithms/optimizer.hpp"
#include "algorithms/role.hpp"
#include "algorithms/schedules.hpp"
#include "algorithms/wiring.hpp"

namespace grapevine {

// How long training lasts. Every rank takes `steps` steps; where ranks do not wait for each other
// (bilateral) this is their mean, and the fast ones take more.
struct Horizon {
  Step steps = 0;              // gradients of each rank, >= 0
  double steps_per_epoch = 1;  // > 0

  double epoch_of(Step step) const { return static_cast<double>(step) / steps_per_epoch; }
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
};

// Ranks that exchange: one of each node. Errors (bad_input): nodes that are not all full.
Expected<std::int32_t> count_nodes(const Plan& plan, std::int32_t ranks);

// Checks everything that depends on the number of ranks, so that nothing can fail once training
// runs. Errors: bad_input.
Expected<std::shared_ptr<const SharedParts>> make_parts(const Plan& plan, const Horizon& horizon,
                                                        const LrSchedule& lr,
                                                        const OptimizerConfig& optimizer,
                                                        std::int32_t ranks);

// The role of one rank. `model` must outlive it.
std::unique_ptr<Role> make_role(const std::shared_ptr<const SharedParts>& parts, Rank rank,
                                std::int32_t ranks, ModelState& model);
// The same without a look at plan.hierarchy: the role among `ranks` equals.
std::unique_ptr<Role> make_flat_role(const std::shared_ptr<const SharedParts>& parts, Rank rank,
                                     std::int32_t ranks, ModelState& model);

}  // namespace grapevine
