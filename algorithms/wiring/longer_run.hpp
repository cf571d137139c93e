// Whether a run that was about to end may be made longer.
#pragma once
#include <optional>

#include "algorithms/wiring/plan.hpp"

namespace grapevine {

// The step from which on a rank acts differently because the run ends at step `end`; nothing: it
// does not. From there on a run can be made longer only once all ranks have ended. `longer`: of the
// longer run; `members_changed`: since its start.
//
// Ranks that announce their end are left out by the others, also where members have changed and so
// are at different steps of a round; the first rank of a node sends the last parameters; and an
// exchange follows the last step even where local steps would require none.
std::optional<Step> end_begins(const SharedParts& longer, Step end, bool members_changed);

}  // namespace grapevine
