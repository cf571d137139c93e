#include "algorithms/wiring/make_parts.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <string>
#include <utility>

#include "algorithms/wiring/nodes.hpp"
#include "algorithms/wiring/role_type.hpp"
#include "messages/check.hpp"
#include "messages/text/number_text.hpp"

namespace grapevine {

Expected<std::int32_t> count_nodes(const Plan& plan, std::int32_t ranks) {
  if (plan.hierarchy < 1)
    return bad_input(
        std::string(plan.role->parts_inside ? "ranks of a wiring.level" : "wiring.hierarchy") +
        " = 'node': no launcher says how many ranks a node has: give the number");
  if (ranks % plan.hierarchy != 0 && plan.role->parts_inside)
    return bad_input("wiring.level: groups of " + std::to_string(plan.hierarchy) +
                     " ranks do not divide " + std::to_string(ranks) +
                     " ranks: give every group the same number");
  if (ranks % plan.hierarchy == 0) return ranks / plan.hierarchy;
  return bad_input("wiring.hierarchy = " + std::to_string(plan.hierarchy) + " does not divide " +
                   std::to_string(ranks) +
                   " ranks: give every node the same number, or use hierarchy = 1");
}

namespace {

// `nodes`: those that exchange. `remaining`: see SharedParts.
Expected<std::shared_ptr<SharedParts>> make_parts_of(const Plan& plan, const Horizon& horizon,
                                                     const LrSchedule& lr,
                                                     const OptimizerConfig& optimizer,
                                                     std::int32_t nodes,
                                                     std::vector<TensorSpan> layout,
                                                     std::vector<Rank> remaining = {}) {
  if (auto made = make_optimizer(optimizer); !made) return made.error();
  if (plan.compression.momentum_correction && (optimizer.name != "sgd" || optimizer.momentum == 0))
    return bad_input(
        "wiring.momentum_correction = 'true' does not fit optimizer '" + optimizer.name +
        "' without momentum: choose --optimizer sgd with --momentum, or momentum_correction = "
        "'false'");
  if (plan.local.quasi_global > 0 && optimizer.name != "sgd")
    return bad_input("wiring.quasi_global does not fit optimizer '" + optimizer.name +
                     "': it takes the place of the momentum of sgd, choose --optimizer sgd or "
                     "quasi_global = 0");
  auto parts = std::make_shared<SharedParts>(
      SharedParts{plan, horizon, lr, optimizer, ExchangeSteps(plan.local.steps, horizon, lr),
                  nullptr, nullptr, std::move(layout)});
  parts->remaining = std::move(remaining);
  if (plan.role->prepare)
    if (auto prepared = plan.role->prepare(*parts, nodes); !prepared) return prepared.error();
  return parts;
}

}  // namespace

Expected<std::shared_ptr<const SharedParts>> make_parts(const Plan& plan, const Horizon& horizon,
                                                        const LrSchedule& lr,
                                                        const OptimizerConfig& optimizer,
                                                        std::int32_t ranks,
                                                        std::vector<TensorSpan> layout) {
  const auto nodes = count_nodes(plan, ranks);
  if (!nodes) return nodes.error();
  auto parts = make_parts_of(plan, horizon, lr, optimizer, *nodes, std::move(layout));
  if (!parts) return parts.error();
  return std::shared_ptr<const SharedParts>(*std::move(parts));
}

Expected<std::shared_ptr<const SharedParts>> make_parts_of_remaining(
    const Plan& plan, const Horizon& horizon, const LrSchedule& lr,
    const OptimizerConfig& optimizer, std::vector<Rank> remaining, std::vector<TensorSpan> layout) {
  const std::size_t groups = first_of_each_node(remaining, plan.hierarchy).size();
  auto parts = make_parts_of(plan, horizon, lr, optimizer, static_cast<std::int32_t>(groups),
                             std::move(layout), std::move(remaining));
  if (!parts) return parts.error();
  return std::shared_ptr<const SharedParts>(*std::move(parts));
}

Expected<std::shared_ptr<const SharedParts>> parts_among(const SharedParts& parts,
                                                         const MemberChange& change) {
  if (parts.plan.role->changes_by_mean)
    return make_parts_of_remaining(parts.plan, change.horizon, parts.lr.among(change.horizon),
                                   parts.optimizer, change.members, parts.layout);
  const std::vector<std::int32_t>& before =
      change.nodes_before.empty() ? change.before : change.nodes_before;
  auto changed =
      make_parts_of(parts.plan, change.horizon, parts.lr.among(change.horizon), parts.optimizer,
                    static_cast<std::int32_t>(before.size()), parts.layout);
  if (!changed) return changed.error();
  (*changed)->before = before;
  return std::shared_ptr<const SharedParts>(*std::move(changed));
}

namespace {

// For a run that continues with another batch size and keeps the rounds that lie behind, `behind`
// of them in `epochs`: both ends of a message of theirs that is still on its way see the graph of
// the run before.
CountSchedule by_round(const CountSchedule& by_epoch, double behind, double epochs,
                       double rounds_per_epoch) {
  constexpr double kRounding = 1e-6;  // must not put off a change by a round
  if (by_epoch.values().size() == 1) return by_epoch;
  std::string text;
  std::istringstream entries(by_epoch.to_string());
  for (std::string entry; std::getline(entries, entry, ',');) {
    const std::size_t colon = entry.find(':');
    double epoch = 0;
    std::from_chars(entry.data(), entry.data() + colon, epoch);
    const double round =
        epoch < epochs ? epoch * behind / epochs : behind + (epoch - epochs) * rounds_per_epoch;
    text += (text.empty() ? "0" : "," + number_text(std::max(round - kRounding, round / 2))) +
            entry.substr(colon);
  }
  const auto schedule = CountSchedule::parse(text);
  GRAPEVINE_CHECK(schedule.ok(), text);
  return *schedule;
}

// Two, as both directions of a ring, are accepted also where they lead to one rank. Lost ranks may
// leave fewer than were chosen.
Expected<void> check_peers_per_round(const SharedParts& parts, std::int32_t ranks) {
  if (parts.horizon.members_have_changed()) return {};
  const GraphSettings& graph = parts.plan.graph;
  const std::int64_t most = std::max(2, ranks - 1);
  for (const std::int64_t peers : graph.peers.values())
    if (peers > most)
      return bad_input("wiring.peers = " + std::to_string(peers) +
                       ", peers per round, in topology '" + graph.topology + "' of " +
                       std::to_string(ranks) + (parts.plan.hierarchy > 1 ? " nodes" : " ranks") +
                       ": choose at most " + std::to_string(most));
  return {};
}

}  // namespace

Expected<void> make_graph(SharedParts& parts, std::int32_t ranks) {
  if (auto fits = check_peers_per_round(parts, ranks); !fits) return fits;
  const Horizon& horizon = parts.horizon;
  const std::string& topology = parts.plan.graph.topology;
  const CountSchedule& peers = parts.plan.graph.peers;
  const double local_steps = parts.exchanges.mean_local_steps();
  const double rounds_per_epoch = horizon.steps_per_epoch / local_steps;
  const double behind = static_cast<double>(horizon.first_step) / local_steps;
  // Other members count their rounds from where they take over.
  const bool begin_anew = horizon.members_have_changed() || behind == 0;
  auto graph =
      begin_anew
          ? GossipGraph::make(topology, peers, ranks, rounds_per_epoch, horizon.first_epoch)
          : GossipGraph::make(
                topology, by_round(peers, behind, horizon.first_epoch, rounds_per_epoch), ranks, 1);
  if (!graph) return graph.error();
  parts.graph = std::move(*graph);
  return {};
}

ReductionSettings reduction_settings(const SharedParts& parts) {
  return {parts.plan.compression, parts.optimizer.momentum, parts.optimizer.nesterov};
}

}  // namespace grapevine
