// Makes the role of a rank from a plan.
#pragma once
#include <cstdint>
#include <memory>

#include "algorithms/role.hpp"
#include "algorithms/wiring/shared_parts.hpp"

namespace grapevine {

// The role of one rank of `ranks`, servers included. `model` must outlive it; that of a server is
// cut to its slice.
std::unique_ptr<Role> make_role(const std::shared_ptr<const SharedParts>& parts, Rank rank,
                                std::int32_t ranks, ModelState& model);
// The same, ignoring plan.hierarchy: the role among `ranks` equals, without servers.
std::unique_ptr<Role> make_flat_role(const std::shared_ptr<const SharedParts>& parts, Rank rank,
                                     std::int32_t ranks, ModelState& model);

}  // namespace grapevine
