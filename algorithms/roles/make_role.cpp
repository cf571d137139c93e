#include "algorithms/roles/make_role.hpp"

#include <utility>

#include "algorithms/collectives/collective.hpp"
#include "algorithms/parts/server_rules.hpp"
#include "algorithms/roles/aggregate/aggregate.hpp"
#include "algorithms/roles/bilateral/bilateral.hpp"
#include "algorithms/roles/gossip/gossip.hpp"
#include "algorithms/roles/group/group.hpp"
#include "algorithms/roles/levels/hierarchy.hpp"
#include "algorithms/roles/partial/partial.hpp"
#include "algorithms/roles/server/server_settings.hpp"
#include "algorithms/wiring/make_parts.hpp"
#include "messages/check.hpp"

namespace grapevine {
namespace {

// The list of roles.
std::vector<const RoleType*>& all_roles() {
  static std::vector<const RoleType*> roles = {&aggregate_role(), &gossip_role(), &bilateral_role(),
                                               &partial_role(),   &group_role(),  &server_role()};
  return roles;
}

}  // namespace

const std::vector<const RoleType*>& role_types() { return all_roles(); }

Expected<void> register_role(const RoleType& type) {
  for (const RoleType* role : all_roles())
    if (role->name == type.name)
      return bad_input("role '" + type.name + "' exists already: choose another name");
  all_roles().push_back(&type);
  return {};
}

std::unique_ptr<Role> make_role(const std::shared_ptr<const SharedParts>& parts, Rank rank,
                                std::int32_t ranks, ModelState& model) {
  const std::int32_t workers = ranks - parts->plan.servers;
  if (rank >= workers) {
    std::vector<Rank> clients;
    for (Rank client = 0; client < workers; client += parts->plan.hierarchy)
      clients.push_back(client);
    const std::int32_t index = rank - workers;
    model.x = part_of(model.x, slice_of(model.x.numel(), parts->plan.servers, index));
    return parts->plan.role->make_server({parts, rank, std::move(clients), index, model});
  }
  if (node_size(parts->plan) > 1) {
    const std::vector<Rank> members = all_ranks(workers);
    const TrainingRanks all{members, first_of_each_node(members, parts->plan.hierarchy)};
    return std::make_unique<Hierarchy>(parts, all, rank, model);
  }
  return make_flat_role(parts, rank, ranks, model);
}

std::unique_ptr<Role> make_role_beside_servers(const std::shared_ptr<const SharedParts>& parts,
                                               const TrainingRanks& ranks, Rank rank,
                                               ModelState& model) {
  const Rank first = ranks.servers.front();
  if (rank < first)
    return make_flat_role(parts, rank, first + parts->plan.servers, model,
                          static_cast<std::int32_t>(ranks.members.size()));
  return parts->plan.role->make_server({parts, rank, ranks.members, rank - first, model});
}

std::unique_ptr<Role> make_flat_role(const std::shared_ptr<const SharedParts>& parts, Rank rank,
                                     std::int32_t ranks, ModelState& model, std::int32_t clients) {
  return parts->plan.role->make(
      {parts, rank, ranks - parts->plan.servers, model, make_run_optimizer(*parts), clients});
}

std::unique_ptr<Optimizer> make_run_optimizer(const SharedParts& parts) {
  OptimizerConfig config = parts.optimizer;
  if (parts.plan.compression.momentum_correction || parts.plan.local.quasi_global > 0) {
    config.momentum = 0;  // it works before the compression, or on the mixed model
    config.nesterov = false;
  }
  auto optimizer = make_optimizer(config);
  GRAPEVINE_CHECK(optimizer.ok(), "make_parts checked the optimizer");
  return std::move(*optimizer);
}

}  // namespace grapevine
