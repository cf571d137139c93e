// The levels of a wiring, for questions about each of them.
#pragma once
#include "algorithms/wiring/plan.hpp"
#include "algorithms/wiring/role_type.hpp"

namespace grapevine {

// Whether holds(parts) is true of `parts` or of those of a role inside.
template <class F>
bool any_level(const SharedParts& parts, const F& holds) {
  if (parts.plan.role->parts_inside)
    for (const auto& level : parts.plan.role->parts_inside(parts))
      if (any_level(*level, holds)) return true;
  return holds(parts);
}

}  // namespace grapevine
