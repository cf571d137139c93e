#include "algorithms/registry.hpp"

#include <cmath>

#include "algorithms/roles/aggregate.hpp"
#include "algorithms/roles/gossip.hpp"

namespace grapevine {

Expected<std::shared_ptr<const GossipGraph>> GossipGraph::make(const std::string& topology,
                                                               const CountSchedule& peers,
                                                               std::int32_t ranks,
                                                               double rounds_per_epoch) {
  auto graph = std::make_shared<GossipGraph>();
  graph->peers_ = peers;
  graph->rounds_per_epoch_ = rounds_per_epoch;
  for (const std::int64_t count : peers.values()) {
    auto made = make_topology(topology, ranks, static_cast<std::int32_t>(count));
    if (!made) return made.error();
    graph->by_count_[count] = std::move(*made);
  }
  return std::shared_ptr<const GossipGraph>(std::move(graph));
}

const Topology& GossipGraph::topology_at(std::int64_t round) const {
  return *by_count_.at(peers_.at(static_cast<double>(round) / rounds_per_epoch_));
}

const std::vector<Rank>& GossipGraph::out(std::int64_t round, Rank rank) const {
  return topology_at(round).out(round, rank);
}

const std::vector<Rank>& GossipGraph::in(std::int64_t round, Rank rank) const {
  return topology_at(round).in(round, rank);
}

Expected<std::shared_ptr<const SharedParts>> make_parts(const Plan& plan, const Horizon& horizon,
                                                        const LrSchedule& lr,
                                                        const OptimizerConfig& optimizer,
                                                        std::int32_t ranks) {
  if (auto made = make_optimizer(optimizer); !made) return made.error();
  auto parts = std::make_shared<SharedParts>(SharedParts{plan, horizon, lr, optimizer, nullptr});
  if (plan.exchange == Exchange::gossip) {
    auto graph = GossipGraph::make(plan.topology, plan.peers, ranks, horizon.steps_per_epoch);
    if (!graph) return graph.error();
    parts->graph = std::move(*graph);
  }
  return std::shared_ptr<const SharedParts>(std::move(parts));
}

std::unique_ptr<Role> make_role(const std::shared_ptr<const SharedParts>& parts, Rank rank,
                                std::int32_t ranks, ModelState& model) {
  auto optimizer = make_optimizer(parts->optimizer);
  GRAPEVINE_CHECK(optimizer.ok(), "make_parts checked the optimizer");
  switch (parts->plan.exchange) {
    case Exchange::aggregate:
      return std::make_unique<Aggregate>(parts, rank, ranks, model, std::move(*optimizer));
    case Exchange::gossip:
      return std::make_unique<Gossip>(parts, rank, model, std::move(*optimizer));
  }
  GRAPEVINE_CHECK(false, "an exchange without a role");
}

}  // namespace grapevine
