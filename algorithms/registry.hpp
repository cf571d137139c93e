// Registry: makes roles and their parts from a plan.
#pragma once
#include <cstdint>
#include <map>
#include <memory>

#include "algorithms/optimizer.hpp"
#include "algorithms/role.hpp"
#include "algorithms/schedules.hpp"
#include "algorithms/topology.hpp"
#include "algorithms/wiring.hpp"

namespace grapevine {

// How long training lasts. Every rank takes the same number of steps.
struct Horizon {
  Step steps = 0;              // gradients of each rank, >= 0
  double steps_per_epoch = 1;  // > 0

  double epoch_of(Step step) const { return static_cast<double>(step) / steps_per_epoch; }
};

// The communication graph over a whole run: the number of peers follows a schedule. A pure function
// of the round, so that sender and receiver always agree on who talks. Immutable, shared by all
// ranks.
class GossipGraph {
 public:
  // Errors (bad_input): see make_topology; checked for every count in the schedule.
  static Expected<std::shared_ptr<const GossipGraph>> make(const std::string& topology,
                                                           const CountSchedule& peers,
                                                           std::int32_t ranks,
                                                           double rounds_per_epoch);

  const std::vector<Rank>& out(std::int64_t round, Rank rank) const;
  const std::vector<Rank>& in(std::int64_t round, Rank rank) const;

 private:
  const Topology& topology_at(std::int64_t round) const;

  CountSchedule peers_;
  double rounds_per_epoch_ = 1;
  std::map<std::int64_t, std::shared_ptr<const Topology>> by_count_;
};

// Parts that all ranks of a process share.
struct SharedParts {
  Plan plan;
  Horizon horizon;
  LrSchedule lr;
  OptimizerConfig optimizer;
  std::shared_ptr<const GossipGraph> graph;  // gossip only
};

// Checks everything that depends on the number of ranks, so that nothing can fail once training
// runs. Errors: bad_input.
Expected<std::shared_ptr<const SharedParts>> make_parts(const Plan& plan, const Horizon& horizon,
                                                        const LrSchedule& lr,
                                                        const OptimizerConfig& optimizer,
                                                        std::int32_t ranks);

// The role of one rank. `model` must outlive it.
std::unique_ptr<Role> make_role(const std::shared_ptr<const SharedParts>& parts, Rank rank,
                                std::int32_t ranks, ModelState& model);

}  // namespace grapevine
