// Makes the role of a rank from a plan.
#pragma once
#include <cstdint>
#include <memory>

#include "algorithms/parts/optimizer.hpp"
#include "algorithms/role.hpp"
#include "algorithms/wiring/nodes.hpp"
#include "algorithms/wiring/plan.hpp"

namespace grapevine {

// The role of one rank of `ranks`, servers included. `model` must outlive it; that of a server is
// cut to its slice.
std::unique_ptr<Role> make_role(const std::shared_ptr<const SharedParts>& parts, Rank rank,
                                std::int32_t ranks, ModelState& model);
// The role of one of `ranks`, which have servers and no heads. The model of a server is its slice
// already.
std::unique_ptr<Role> make_role_beside_servers(const std::shared_ptr<const SharedParts>& parts,
                                               const TrainingRanks& ranks, Rank rank,
                                               ModelState& model);
// The same as make_role(), ignoring plan.hierarchy: the role among `ranks` equals, without servers.
// `clients`: as RoleContext has it.
std::unique_ptr<Role> make_flat_role(const std::shared_ptr<const SharedParts>& parts, Rank rank,
                                     std::int32_t ranks, ModelState& model,
                                     std::int32_t clients = 0);
// That of a rank that trains.
std::unique_ptr<Optimizer> make_run_optimizer(const SharedParts& parts);

}  // namespace grapevine
