#include "algorithms/wiring/shared_parts.hpp"

#include <iomanip>
#include <sstream>

#include "algorithms/compressors/compressor.hpp"

namespace grapevine {
namespace {

// The rules that commit plain steps have no place for another optimizer's.
Expected<void> check_rule(const Plan& plan, const OptimizerConfig& optimizer) {
  if (plan.exchange != Exchange::server || plan.rule == ServerRule::easgd) return {};
  const std::string what = plan.rule == ServerRule::gem ? "gem" : "downpour, adaptive or agn";
  if (optimizer.name != "sgd")
    return bad_input("--optimizer " + optimizer.name + " does not fit rule = '" + what +
                     "': clients commit steps along the gradient, use sgd, or rule = 'easgd'");
  if (optimizer.nesterov)
    return bad_input("--nesterov does not fit rule = '" + what +
                     "': only easgd steps by an optimizer of its own, drop it");
  return {};
}

std::string three_digits(double number) {
  std::ostringstream text;
  text << std::setprecision(3) << number;
  return text.str();
}

// Vectors that name every element are sent whole to each other rank, the ring sends slices: from a
// number of ranks on compression costs more than it saves.
Expected<void> check_dense_bytes(const Plan& plan, std::int32_t ranks) {
  const bool reduces = plan.exchange == Exchange::aggregate || plan.exchange == Exchange::partial;
  if (!reduces || !plan.compression.enabled()) return {};
  const auto compressor = make_compressor(plan.compression);
  if (compressor->sparse()) return {};
  constexpr std::int64_t kElements = 1 << 22;  // whole blocks: the figures hold for any large model
  const double packed = static_cast<double>(compressor->bytes(kElements, 0)) / kElements;
  const double others = ranks - 1, ring = 8 * others / ranks;
  if (others * packed <= ring) return {};
  const auto most = static_cast<std::int64_t>(8 / packed);
  const std::string who = plan.hierarchy > 1 ? " nodes" : " ranks";
  return bad_input("wiring.compress = '" + plan.compression.name + "' with " +
                   std::to_string(ranks) + who + ": each would send " +
                   three_digits(others * packed) + " bytes per parameter and exchange, without " +
                   "compression " + three_digits(ring) + ": choose compress = 'none' or 'top-k', " +
                   "or at most " + std::to_string(most) + who +
                   (plan.hierarchy > 1 ? "" : " (wiring.hierarchy exchanges between nodes only)"));
}

}  // namespace

Expected<std::int32_t> count_nodes(const Plan& plan, std::int32_t ranks) {
  if (ranks % plan.hierarchy == 0) return ranks / plan.hierarchy;
  return bad_input("wiring.hierarchy = " + std::to_string(plan.hierarchy) + " does not divide " +
                   std::to_string(ranks) +
                   " ranks: give every node the same number, or use hierarchy = 1");
}

Expected<std::shared_ptr<const SharedParts>> make_parts(const Plan& plan, const Horizon& horizon,
                                                        const LrSchedule& lr,
                                                        const OptimizerConfig& optimizer,
                                                        std::int32_t ranks) {
  if (auto made = make_optimizer(optimizer); !made) return made.error();
  if (plan.compression.momentum_correction && (optimizer.name != "sgd" || optimizer.momentum == 0))
    return bad_input(
        "wiring.momentum_correction = 'true' does not fit optimizer '" + optimizer.name +
        "' without momentum: choose --optimizer sgd with --momentum, or momentum_correction = "
        "'false'");
  if (auto fits = check_rule(plan, optimizer); !fits) return fits.error();
  const auto nodes = count_nodes(plan, ranks);
  if (!nodes) return nodes.error();
  if (auto saves = check_dense_bytes(plan, *nodes); !saves) return saves.error();
  auto parts =
      std::make_shared<SharedParts>(SharedParts{plan, horizon, lr, optimizer, nullptr, {}, {}, {}});
  if (plan.exchange == Exchange::gossip || plan.exchange == Exchange::bilateral) {
    auto graph = GossipGraph::make(plan.topology, plan.peers, *nodes,
                                   horizon.steps_per_epoch / static_cast<double>(plan.local_steps));
    if (!graph) return graph.error();
    parts->graph = std::move(*graph);
    const bool shares =
        plan.exchange == Exchange::gossip && plan.averaging != MixingRule::symmetric;
    if (shares && !plan.compression.enabled())
      if (auto mixes = parts->graph->check_strongly_connected(); !mixes) return mixes.error();
  }
  if (plan.exchange == Exchange::bilateral) {
    auto sides = parts->graph->bipartition();
    if (!sides)
      return bad_input("exchange = 'bilateral' pairs ranks that ask with ranks that answer: " +
                       sides.error().message);
    parts->active = std::move(*sides);
  }
  if (plan.exchange == Exchange::partial && plan.quorum > *nodes)
    return bad_input("wiring.quorum = " + std::to_string(plan.quorum) + " of " +
                     std::to_string(*nodes) + " ranks: expected at most as many");
  if (plan.exchange == Exchange::group) {
    auto groups = GroupSchedule::make(*nodes, plan.group_size, plan.seed);
    if (!groups) return groups.error();
    parts->groups = *groups;
  }
  return std::shared_ptr<const SharedParts>(std::move(parts));
}

}  // namespace grapevine
