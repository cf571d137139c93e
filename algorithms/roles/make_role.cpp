#include "algorithms/roles/make_role.hpp"

#include "algorithms/roles/aggregate.hpp"
#include "algorithms/roles/bilateral.hpp"
#include "algorithms/roles/difference_gossip.hpp"
#include "algorithms/roles/gossip.hpp"
#include "algorithms/roles/group.hpp"
#include "algorithms/roles/hierarchy.hpp"
#include "algorithms/roles/partial.hpp"
#include "algorithms/roles/server.hpp"
#include "algorithms/roles/server_client.hpp"
#include "messages/check.hpp"

namespace grapevine {

std::unique_ptr<Role> make_role(const std::shared_ptr<const SharedParts>& parts, Rank rank,
                                std::int32_t ranks, ModelState& model) {
  const std::int32_t workers = ranks - parts->plan.servers;
  if (rank >= workers) {
    std::vector<Rank> clients;
    for (Rank client = 0; client < workers; client += parts->plan.hierarchy)
      clients.push_back(client);
    return std::make_unique<Server>(parts, rank, std::move(clients), rank - workers, model);
  }
  if (parts->plan.hierarchy > 1) return std::make_unique<Hierarchy>(parts, rank, ranks, model);
  return make_flat_role(parts, rank, ranks, model);
}

std::unique_ptr<Role> make_flat_role(const std::shared_ptr<const SharedParts>& parts, Rank rank,
                                     std::int32_t ranks, ModelState& model) {
  OptimizerConfig config = parts->optimizer;
  if (parts->plan.compression.momentum_correction) {
    config.momentum = 0;  // it works before the compression
    config.nesterov = false;
  }
  auto optimizer = make_optimizer(config);
  GRAPEVINE_CHECK(optimizer.ok(), "make_parts checked the optimizer");
  switch (parts->plan.exchange) {
    case Exchange::aggregate:
      return std::make_unique<Aggregate>(parts, rank, ranks, model, std::move(*optimizer));
    case Exchange::gossip:
      if (parts->plan.compression.enabled())
        return std::make_unique<DifferenceGossip>(parts, rank, model, std::move(*optimizer));
      return std::make_unique<Gossip>(parts, rank, model, std::move(*optimizer));
    case Exchange::bilateral:
      return std::make_unique<Bilateral>(parts, rank, ranks, model, std::move(*optimizer));
    case Exchange::partial:
      return std::make_unique<Partial>(parts, rank, ranks, model, std::move(*optimizer));
    case Exchange::group:
      return std::make_unique<Group>(parts, rank, ranks, model, std::move(*optimizer));
    case Exchange::server:
      return std::make_unique<ServerClient>(parts, rank, ranks - parts->plan.servers, model,
                                            std::move(*optimizer));
  }
  GRAPEVINE_CHECK(false, "an exchange without a role");
}

}  // namespace grapevine
