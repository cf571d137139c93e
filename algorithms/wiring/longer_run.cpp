#include "algorithms/wiring/longer_run.hpp"

#include "algorithms/wiring/role_type.hpp"

namespace grapevine {

std::optional<Step> end_begins(const SharedParts& longer, Step end, bool members_changed) {
  const Plan& plan = longer.plan;
  const RoleType& role = *plan.role;
  if (role.exchanges_at_the_end && !longer.exchanges.on_schedule(end)) return end - 1;
  // Ranks with a common model take over at one operation, the others each at its own step: these
  // end in different rounds.
  const bool ends_differ = members_changed && role.plans_each_rank && !role.replicates;
  const bool tells = role.announces_end(plan) || plan.hierarchy > 1 || ends_differ;
  return tells ? std::optional<Step>(end) : std::nullopt;
}

}  // namespace grapevine
