// Makes the parts that all ranks of a process share from a plan.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "algorithms/collectives/reduction.hpp"
#include "algorithms/wiring/plan.hpp"

namespace grapevine {

// Ranks that exchange: one of each node. Errors (bad_input): nodes that are not all full.
Expected<std::int32_t> count_nodes(const Plan& plan, std::int32_t ranks);

// Checks everything that depends on the number of ranks, so that nothing can fail once training
// runs. `ranks`: those that train; a plan's servers follow them. `layout`: see SharedParts. Errors:
// bad_input.
Expected<std::shared_ptr<const SharedParts>> make_parts(const Plan& plan, const Horizon& horizon,
                                                        const LrSchedule& lr,
                                                        const OptimizerConfig& optimizer,
                                                        std::int32_t ranks,
                                                        std::vector<TensorSpan> layout = {});

// The same among `remaining` of those ranks, where the role is made of others: its groups may have
// lost some of theirs.
Expected<std::shared_ptr<const SharedParts>> make_parts_of_remaining(
    const Plan& plan, const Horizon& horizon, const LrSchedule& lr,
    const OptimizerConfig& optimizer, std::vector<Rank> remaining, std::vector<TensorSpan> layout);

// Who takes part from a step on.
struct MemberChange {
  // Where each member that trains was among those before; -1: it joins.
  std::vector<std::int32_t> before;
  Horizon horizon;  // of the members, from then on
  // Where there is a hierarchy: of each node, its position among those before; -1: it joins.
  std::vector<std::int32_t> nodes_before = {};
  std::vector<Rank> members = {};  // their ranks, ascending; empty: all of the start
};
// The same parts for other members. Errors (bad_input): the wiring does not fit their number.
Expected<std::shared_ptr<const SharedParts>> parts_among(const SharedParts& parts,
                                                         const MemberChange& change);

// For roles that exchange along a topology: parts.graph.
Expected<void> make_graph(SharedParts& parts, std::int32_t ranks);
// For roles that add up.
ReductionSettings reduction_settings(const SharedParts& parts);

// All ranks of a run: those that train, then the servers.
inline std::int32_t all_ranks_of(const Plan& plan, std::int32_t workers) {
  return workers + plan.servers;
}

}  // namespace grapevine
