// MemberRole: a role among the present members of a run, some of its ranks. The role knows them by
// their positions, ascending by rank; everything outside knows them by their ranks.
#pragma once
#include <memory>
#include <vector>

#include "algorithms/role.hpp"
#include "algorithms/roles/common_model.hpp"
#include "algorithms/wiring/nodes.hpp"
#include "algorithms/wiring/plan.hpp"

namespace grapevine {

// `parts`: of that many members (parts_among); `rank`: one of them, or of their servers, which know
// each other by their ranks. `model` must outlive it.
std::unique_ptr<Role> make_member_role(const std::shared_ptr<const SharedParts>& parts,
                                       TrainingRanks ranks, Rank rank, ModelState& model);

// CommonModel among them and the servers of the wiring before, in whose models a slice is among
// zeros.
std::unique_ptr<Role> make_common_model(const TrainingRanks& ranks, Rank rank, ModelState& model,
                                        CommonModel::Given given);

}  // namespace grapevine
