// MemberRole: a role among the present members of a run, some of its ranks. The role knows them by
// their positions, ascending by rank; everything outside knows them by their ranks.
#pragma once
#include <memory>
#include <vector>

#include "algorithms/role.hpp"
#include "algorithms/wiring/nodes.hpp"
#include "algorithms/wiring/shared_parts.hpp"

namespace grapevine {

// `parts`: of that many members (parts_among); `rank`: one of them, or of their servers, which know
// each other by their ranks. `model` must outlive it.
std::unique_ptr<Role> make_member_role(const std::shared_ptr<const SharedParts>& parts,
                                       TrainingRanks ranks, Rank rank, ModelState& model);

// CommonModel among them; `optimizer`: Role::optimizer_state() of the role before.
std::unique_ptr<Role> make_common_model(std::vector<Rank> members, Rank rank, ModelState& model,
                                        at::Tensor optimizer);

}  // namespace grapevine
